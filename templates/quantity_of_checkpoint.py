"""The row of `new_quantity`, as it is put into `quantities/tensors.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from weighbridge.core.limits import Doc


@dataclass(frozen=True, slots=True, kw_only=True)
class NewQuantity:
    """What is measured of one tensor."""

    name: Annotated[str, Doc("name of the tensor", typical="model.norm.weight")]
    zero_bytes: Annotated[int, Doc("bytes that are zero", unit="bytes", typical=0)]
