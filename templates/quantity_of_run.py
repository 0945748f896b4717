"""The row of `new_quantity`, as it is put into `quantities/runs.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from weighbridge.core.limits import Doc


@dataclass(frozen=True, slots=True, kw_only=True)
class NewQuantity:
    """What is measured of one numeric column."""

    column: Annotated[str, Doc("standard name", typical="loss")]
    largest: Annotated[float | None, Doc("largest finite number; None where there is none", typical=2.5)]
