"""tensor-statistics: are the mean, spread and extremes of the named tensors inside the bounds that a contract gives?

Bounds are the contract's alone: no figure is normal for every model.
"""

import operator
from collections.abc import Sequence
from typing import Annotated, Any

from weighbridge.clauses.clause import Bounded, Clause, ClauseJudge, every_figure_is_known, every_glob_names
from weighbridge.clauses.kind import Kind, Need, codes, settings
from weighbridge.clauses.mutations import column_moves
from weighbridge.core import Doc, SubjectKind, dataclass
from weighbridge.quantities.tensors import STATISTICS, TensorMoments

MOST = 1e308


def _inclusive(must: Any, code: str) -> Doc:
    moves = column_moves(code, "moments", "statistic", names="tensors", unknown="not-measured", idle="names-nothing")
    return Doc("inclusive", ge=-MOST, le=MOST, must=must, moves=moves)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """One statistic of the tensors of one role, bounded on one side or on both."""

    tensors: Annotated[str, Doc("glob over tensor names")]
    statistic: Annotated[str, Doc("of the finite elements", choices=STATISTICS)]
    at_least: Annotated[float | None, _inclusive("at least", "below")] = None
    at_most: Annotated[float | None, _inclusive("at most", "above")] = None


def clauses(limits: Any) -> Sequence[Clause]:
    """Return each bound of each tensor that it names; then that every glob names one, and every figure is known."""
    bounded = [
        Bounded(code=code, need="moments", row=TensorMoments, value=operator.attrgetter(one.statistic), must=must,
                bound=bound, names=(one.tensors,), figures={"statistic": one.statistic, "glob": one.tensors})
        for one in limits.bounds
        for code, must, bound in (("below", "at least", one.at_least), ("above", "at most", one.at_most))
        if bound is not None
    ]  # fmt: skip
    named = every_glob_names("names-nothing", "moments", TensorMoments, [one.tensors for one in limits.bounds])
    return *bounded, named, every_figure_is_known("not-measured", bounded)


def check(limits: Any, _measure: object) -> list[str]:
    """Return which bounds bound nothing, or cannot be met."""
    wrong = []
    for at, bound in enumerate(limits.bounds):
        if bound.at_least is None and bound.at_most is None:
            wrong.append(f"bounds[{at}] has neither at_least nor at_most")
        elif bound.at_least is not None and bound.at_most is not None and bound.at_least > bound.at_most:
            wrong.append(f"bounds[{at}]: at_least {bound.at_least} is more than at_most {bound.at_most}")
    return wrong


KIND: Kind[Any] = Kind(
    name="tensor-statistics", version=3, roles={"candidate": SubjectKind.CHECKPOINT},
    needs={"moments": Need("tensor_moments", of=("candidate",))},
    limits=settings(bounds=(tuple[Bound, ...], Doc("all of them must hold", min_items=1, tight="up"))),
    codes=codes("below", "above", blocked=("not-measured", "names-nothing")),
    judge=ClauseJudge(clauses, lambda _, limits: {"bounds": len(limits.bounds), "unit": "tensors"}), check=check,
)  # fmt: skip
