"""What is measured of the tensors of a run: norms of each one over the steps at which a recorder looked."""

from __future__ import annotations

import enum
from typing import Annotated, TypeAlias

from weighbridge.core import Doc, dataclass
from weighbridge.quantities.base import rows

Norms: TypeAlias = tuple[float | None, ...]


class Role(enum.StrEnum):
    """What a tensor is for, as its name tells: shapes, and whether keys are rotated, are not logged."""

    MATRIX = "matrix"
    NORM = "norm"
    EMBEDDING = "embedding"
    HEAD = "head"
    BIAS = "bias"
    KEY_BIAS = "key bias"


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorCourse:
    """One trained tensor over the steps at which it was looked at; null where a norm was not logged.

    Numbers are rounded to six digits.
    """

    tensor: Annotated[str, Doc("name", typical="h.0.w")]
    layer: Annotated[str, Doc("the numbered layer that its name is of, empty where it is of none", typical="h.0")]
    role: Annotated[Role, Doc("what it is for, by its name", typical="matrix")]
    last_step: Annotated[int, Doc("last step of the run, or of the window", unit="step", typical=3)]
    step: Annotated[tuple[int, ...], Doc("steps, rising", unit="step", typical=(0, 1, 2, 3))]
    lr: Annotated[Norms, Doc("learning rate of the step", typical=(0.001, 0.001, 0.001, 0.001))]
    grad: Annotated[Norms, Doc("2-norm of its gradient as it arrived", typical=(1.0, 1.1, 1.2, 1.3))]
    grad_used: Annotated[Norms, Doc("2-norm of its gradient as the update used it", typical=(1.0, 1.1, 1.2, 1.3))]
    weight: Annotated[Norms, Doc("2-norm of the tensor after the update", typical=(10.0, 10.1, 10.2, 10.3))]
    update: Annotated[Norms, Doc("2-norm of what the update changed", typical=(0.01, 0.011, 0.012, 0.013))]


QUANTITIES = (rows("layer_course", TensorCourse, "tensor"),)
