"""Choose the mapping between two checkpoints, from what was asked for and what their headers and configuration say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weighbridge.comparison import gguf_mapping, mapping_plan
from weighbridge.comparison.mapping_plan import Plan, identity
from weighbridge.errors import SubjectError
from weighbridge.model import Fields
from weighbridge.model_config.config_json import config_beside
from weighbridge.views.checkpoint import CheckpointView

ARCHITECTURE = "general.architecture"


def planned(source: CheckpointView, candidate: CheckpointView, options: Fields) -> Plan:
    """Say which tensors of the source make which tensor of the candidate; `map` is auto, identity or table.

    Raises:
        SubjectError: `mapping`, where names must be mapped and nothing says how.
    """
    shapes = {name: tensor.shape for name, tensor in source.tensors.items()}
    chosen = options.get("map", "auto")
    if chosen == "table":
        return _table(shapes, candidate, options)
    converted = gguf_mapping.looks_converted(source.tensors, candidate.tensors) and _architecture(candidate)
    if chosen == "identity" or not converted:
        return identity(shapes, candidate.names())
    config = config_beside(source)
    if config is None:
        _refuse(source, "the tensors have other names, and no config.json beside the source says its head counts")
    there = {name: tensor.shape for name, tensor in candidate.tensors.items()}
    sides = gguf_mapping.Sides(
        architecture=_architecture(candidate), config=config or {}, source=shapes, candidate=there
    )
    found = gguf_mapping.plan(sides)
    if found is None:
        _refuse(candidate, f"the architecture {_architecture(candidate)!r} has no known names")
    assert found is not None
    return found


def _architecture(view: CheckpointView) -> str:
    return str(view.metadata.get(ARCHITECTURE) or "") if view.format == "gguf" else ""


def _table(shapes: Mapping[str, Any], candidate: CheckpointView, options: Fields) -> Plan:
    import re

    names, rename = options.get("names") or {}, options.get("rename") or ()
    assert isinstance(names, Mapping)
    assert isinstance(rename, (list, tuple))
    try:
        pairs = [(str(rule["from"]), str(rule["to"])) for rule in rename]
        return mapping_plan.table(shapes, candidate.names(), names=dict(names), rename=pairs)  # type: ignore[arg-type]
    except re.error as problem:
        _refuse(candidate, f"a pattern in `rename` cannot be used: {problem}")
        raise AssertionError from None


def _refuse(view: CheckpointView, what: str) -> None:
    where = next(iter(view.files), "")
    remedy = "bind the model's directory with its config.json, or say how names map: --map FILE"
    raise SubjectError("mapping", what, where=where, remedy=remedy)
