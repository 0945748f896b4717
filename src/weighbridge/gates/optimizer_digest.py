"""optimizer-digest: is the digest that an epoch states not a formula of its seed, its number and its tokens?"""

from dataclasses import dataclass, replace
from typing import Annotated, Any

from weighbridge.clauses.clause import ClauseJudge, Each, Requires
from weighbridge.clauses.kind import Kind, Need, NoOptions, rows_of
from weighbridge.clauses.mutations import in_rows
from weighbridge.core import Doc, Fields, Outcome, SubjectKind, plain
from weighbridge.quantities.runs import StatedDigest

NEED = "digests"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """Which digests are looked at."""

    column: Annotated[str, Doc("the column of digests")] = "optimizer_state_sha"


def _broken(row: StatedDigest) -> Fields | None:
    return plain(row) if row.formula else None


KIND: Kind[Any] = Kind(
    name="optimizer-digest",
    version=1,
    roles={"run": SubjectKind.RUN},
    needs={NEED: Need("digest_formulas", of=("run",), options=("column",))},
    limits=NoOptions,
    measure=Measure,
    codes={"no-digest": Outcome.BLOCKED, "formula": Outcome.FAIL},
    judge=ClauseJudge(
        lambda _limits: (
            Requires(code="no-digest", lacking=lambda of: None if rows_of(of, NEED, StatedDigest) else {}),
            Each(code="formula", need=NEED, row=StatedDigest, broken=_broken),
        )
    ),
    mutations=(
        in_rows(
            "a digest of a formula",
            "formula",
            NEED,
            StatedDigest,
            lambda row, _: replace(row, formula="epoch 2"),
            why="there is no digest",
        ),
    ),
)
