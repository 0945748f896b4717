"""What is measured of the machine that weighs."""

from __future__ import annotations

from typing import Annotated

from weighbridge.core import Doc, dataclass
from weighbridge.quantities.base import record


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """Whether a CUDA device works for this process."""

    cuda: Annotated[bool, Doc("a product computed on a device was right", typical=True)]
    devices: Annotated[int, Doc("CUDA devices that torch sees", typical=1)]
    why: Annotated[str, Doc("why no device works, empty where one does", typical="")]
    hidden: Annotated[bool, Doc("the environment hides every device", typical=False)]


QUANTITIES = (record("host", Host),)
