"""Every row of the table of packings is recognised by the names and dtypes that it gives."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from weighbridge.formats.tensor import Tensor
from weighbridge.packing.packed_weights import Packing, marked, packings
from weighbridge.packing.packing_rules import RULES
from weighbridge.views.checkpoint import CheckpointView


def view(**dtypes: str) -> CheckpointView:
    tensors = {f"a{end}": SimpleNamespace(name=f"a{end}", dtype=dtype) for end, dtype in dtypes.items()}
    return cast("CheckpointView", SimpleNamespace(tensors=cast("dict[str, Tensor]", tensors)))


KNOWN = [packing for packing in packings() if packing.mark != ".weight"]  # which says that scales are lost


@pytest.mark.parametrize("packing", KNOWN, ids=lambda packing: f"{packing.name}{packing.mark}")
def test_every_packing_is_recognised_and_not_under_another_dtype(packing: Packing) -> None:
    beside: dict[str, Any] = dict.fromkeys((packing.mark, *packing.needs, *packing.may), "F16")
    for dtype in packing.dtypes:
        (found,) = marked(view(**{**beside, packing.codes: dtype}))
        assert (found.name, found.packing) == (f"a{packing.weight}", packing)
        assert found.members.keys() == {packing.codes, *beside}
    assert packing not in [one.packing for one in marked(view(**{**beside, packing.codes: "F64"}))]


def test_every_packing_has_a_rule_and_every_rule_a_packing() -> None:
    assert RULES.keys() == {packing.name for packing in packings()}
    assert len({packing.mark for packing in packings()}) == len(packings()) == 25
