"""new-kind: is no element of the named tensors larger than the contract allows?

A whole kind, to be replaced: each limit says what it bounds and how trials break it, each clause what is promised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from weighbridge.clauses.clause import Bounded, Clause, ClauseJudge, every_figure_is_known, every_glob_names
from weighbridge.clauses.kind import Kind, Need, codes
from weighbridge.clauses.mutations import column_moves
from weighbridge.core.limits import Doc
from weighbridge.core.model import SubjectKind
from weighbridge.quantities.tensors import TensorMoments

BEYOND = column_moves("too-large", "moments", "absmax", names="tensors", unknown="not-measured", idle="names-nothing")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How large an element of which tensors may be."""

    tensors: Annotated[str, Doc("glob over tensor names")] = "*"
    at_most: Annotated[float, Doc("no magnitude is more than this", ge=0, le=1e308, must="at most", moves=BEYOND)]


def clauses(limits: Limits) -> Sequence[Clause]:
    """Return that the glob names a tensor, that its figure is known, and that it is within the bound."""
    bounded = Bounded(
        code="too-large",
        need="moments",
        row=TensorMoments,
        value=lambda row: row.absmax,
        must="at most",
        bound=limits.at_most,
        names=(limits.tensors,),
    )
    return (
        every_glob_names("names-nothing", "moments", TensorMoments, (limits.tensors,)),
        every_figure_is_known("not-measured", (bounded,)),
        bounded,
    )


KIND = Kind(
    name="new-kind",
    version=1,
    roles={"candidate": SubjectKind.CHECKPOINT},
    needs={"moments": Need("tensor_moments", of=("candidate",))},
    limits=Limits,
    codes=codes("too-large", blocked=("not-measured", "names-nothing")),
    judge=ClauseJudge(clauses, lambda _, limits: {"limit": limits.at_most, "unit": "tensors"}),
)
