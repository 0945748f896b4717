"""optimizer-digest: is the digest that an epoch states not a formula of its seed, its number and its tokens?"""

from dataclasses import replace
from typing import Any

from weighbridge.clauses.clause import ClauseJudge, Each, Requires
from weighbridge.clauses.kind import Kind, Need, NoOptions, rows_of, settings
from weighbridge.clauses.mutations import in_rows
from weighbridge.core import Doc, Outcome, SubjectKind, plain
from weighbridge.quantities.runs import StatedDigest

NEED, FORMULA = "digests", "formula"


KIND: Kind[Any] = Kind(
    name="optimizer-digest", version=1, roles={"run": SubjectKind.RUN}, limits=NoOptions,
    measure=settings(column=(str, Doc("the column of digests"), "optimizer_state_sha")),
    needs={NEED: Need("digest_formulas", of=("run",), options=("column",))},
    codes={"no-digest": Outcome.BLOCKED, FORMULA: Outcome.FAIL},
    judge=ClauseJudge(lambda _limits: (
        Requires(code="no-digest", lacking=lambda of: None if rows_of(of, NEED, StatedDigest) else {}),
        Each(code=FORMULA, need=NEED, row=StatedDigest, broken=lambda row: plain(row) if row.formula else None),
    )),
    mutations=(
        in_rows("a digest of a formula", FORMULA, NEED, StatedDigest, lambda row, _: replace(row, formula="of epoch 2"),
                why="there is no digest"),
    ),
)  # fmt: skip
