"""The quantity. A judge imports this and nothing that measures, so a bundle is judged again without the verifier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from weighbridge.core.limits import Doc
from weighbridge.quantities.base import rows


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadRows:
    """How many rows of one tensor are all zeros."""

    name: Annotated[str, Doc("name of the tensor", typical="model.embed_tokens.weight")]
    rows: Annotated[int, Doc("rows: what is left of the shape without its last dimension", typical=8)]
    dead: Annotated[int, Doc("rows of which every byte is zero", typical=0)]


DEAD_ROWS = rows("dead_rows", DeadRows)
