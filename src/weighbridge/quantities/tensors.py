"""What is measured of the tensors of one checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from weighbridge.limits import Doc
from weighbridge.quantities.base import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorMoments(Row):
    """Mean, spread and extremes of one tensor, over its finite elements; None where the dtype has no single values."""

    name: Annotated[str, Doc("name of the tensor", typical="model.norm.weight")]
    dtype: Annotated[str, Doc("stored dtype", typical="F32")]
    shape: Annotated[tuple[int, ...], Doc("dimensions", typical=(8, 4))]
    elements: Annotated[int, Doc("number of elements", typical=32)]
    finite: Annotated[int | None, Doc("elements that are finite: those of which the statistics are", typical=32)]
    mean: Annotated[float | None, Doc("arithmetic mean", typical=0.0)]
    std: Annotated[float | None, Doc("standard deviation, divided by the number of elements", typical=0.02)]
    min: Annotated[float | None, Doc("least element", typical=-0.06)]
    max: Annotated[float | None, Doc("largest element", typical=0.06)]
    absmax: Annotated[float | None, Doc("largest magnitude", typical=0.06)]
    rms: Annotated[float | None, Doc("root mean square", typical=0.02)]
    zero_share: Annotated[float | None, Doc("share of elements that are zero", typical=0.0)]
