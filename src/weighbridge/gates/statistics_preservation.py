"""statistics-preservation: are mean, spread and extremes of each tensor near its source's, where values may change?

Of a lossy import no value need be the source's, but its statistics hardly move; a wrong scale, a wrong block or another
tensor moves them. What passes is near, and not shown to be the same.
"""

import operator
from collections.abc import Sequence
from typing import Annotated, Any

from weighbridge.clauses.clause import Bounded, Clause, ClauseJudge, Requires, every_figure_is_known
from weighbridge.clauses.kind import Evidence, Kind, Need, codes, rows_of, settings
from weighbridge.clauses.mutations import column_moves
from weighbridge.core import Doc, Fields, SubjectKind, dataclass
from weighbridge.gates.families.tensor_pairs import Look
from weighbridge.quantities.tensors import STATISTICS, MomentChanges

CHANGED = column_moves(
    "changed", "changes", "statistic", names="tensors", exempt="exempt", unknown="not-measured", idle="names-nothing"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """How far one statistic of some tensors may be from the source's."""

    tensors: Annotated[str, Doc("glob over the candidate's tensor names")]
    statistic: Annotated[str, Doc("of the finite elements, or their number", choices=(*STATISTICS, "finite"))]
    change_at_most: Annotated[
        float, Doc("|it - the source's| / |the source's|, inclusive", ge=0, le=1e6, must="at most", moves=CHANGED)
    ]
    exempt: Annotated[tuple[str, ...], Doc("globs of tensors that this does not hold", tight="down")] = ()


def _bounded(one: Bound) -> Bounded[MomentChanges]:
    return Bounded(
        code="changed", need="changes", row=MomentChanges, value=operator.attrgetter(one.statistic), must="at most",
        bound=one.change_at_most, names=(one.tensors,), exempt=one.exempt,
        figures={"statistic": one.statistic, "glob": one.tensors},
        more=lambda row: {"was": row.source.get(one.statistic), "now": row.candidate.get(one.statistic)},
    )  # fmt: skip


def clauses(limits: Any) -> Sequence[Clause]:
    """Return each bound of each tensor that it names; then that every glob names one, and every change is known."""
    bounded = list(map(_bounded, limits.bounds))

    def idle(evidence: Evidence) -> Fields | None:
        globs = sorted({glob for one in bounded for glob in one.names if not any(one.promised(evidence))})
        names = len(rows_of(evidence, "changes", MomentChanges))
        return {"globs": globs, "names": names} if globs else None

    return (*bounded, Requires(code="names-nothing", lacking=idle), every_figure_is_known("not-measured", bounded))


KIND: Kind[Any] = Kind(
    name="statistics-preservation",
    version=2,
    roles={"source": SubjectKind.CHECKPOINT, "candidate": SubjectKind.CHECKPOINT},
    needs={"changes": Need("moment_changes", of=("source", "candidate"), options=("map", "names", "rename"))},
    limits=settings(bounds=(tuple[Bound, ...], Doc("all of them must hold", min_items=1, tight="up"))),
    measure=Look,
    codes=codes("changed", blocked=("not-measured", "names-nothing")),
    judge=ClauseJudge(clauses, lambda _, limits: {"bounds": len(limits.bounds), "unit": "tensors"}),
)
