"""What is known of a run or a checkpoint as a whole, one row a fact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from weighbridge.limits import Doc
from weighbridge.model import Basis
from weighbridge.quantities.base import rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One fact with its basis and with what contradicts it; a fact that was not found has no row."""

    name: Annotated[str, Doc("name of the fact", typical="tokens_per_step")]
    value: Annotated[object, Doc("what was found, any JSON; null where sources contradict each other", typical=512)]
    basis: Annotated[Basis, Doc("how the value came about", typical=Basis.MEASURED)]
    contradicted_by: Annotated[tuple[str, ...], Doc("what other sources say that cannot be true as well", typical=())]


QUANTITIES = (rows("facts", Fact),)
