"""Choose the mapping between two checkpoints, from what was asked for and what their headers and configuration say."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NoReturn

from weighbridge.comparison.mapping_plan import Plan, identity, table
from weighbridge.errors import SubjectError
from weighbridge.model import Fields
from weighbridge.model_config.sidecar_files import config_beside
from weighbridge.views.checkpoint import CheckpointView

ARCHITECTURE = "general.architecture"


def planned(source: CheckpointView, candidate: CheckpointView, options: Fields) -> Plan:
    """Return which tensors of the source make which tensor of the candidate; `map` is auto, identity or table.

    Raises:
        SubjectError: `mapping`, where names must be mapped and nothing says how.
    """
    shapes, there = ({name: one.shape for name, one in view.tensors.items()} for view in (source, candidate))
    chosen = options.get("map", "auto")
    if chosen == "table":
        names: Any = options.get("names") or {}
        rename: Any = options.get("rename") or ()
        try:
            pairs = [(str(rule["from"]), str(rule["to"])) for rule in rename]
            return table(shapes, candidate.names(), names=names, rename=pairs)
        except re.error as problem:
            _refuse(candidate, f"a pattern in `rename` cannot be used: {problem}")
    architecture = str(candidate.metadata.get(ARCHITECTURE) or "") if candidate.format == "gguf" else ""
    if chosen == "identity" or not architecture or not _renamed(shapes, there):
        return identity(shapes, candidate.names())
    from weighbridge.comparison import gguf_mapping

    config = config_beside(source)
    if config is None:
        _refuse(source, "the tensors have other names, and no config.json beside the source says its head counts")
    sides = gguf_mapping.Sides(architecture=architecture, config=config, source=shapes, candidate=there)
    found = gguf_mapping.plan(sides)
    return found or _refuse(candidate, f"the architecture {architecture!r} has no known names")


def _renamed(source: Mapping[str, Any], candidate: Mapping[str, Any]) -> bool:
    """Return whether so many names changed that they were meant to: fewer than half of them are on both sides."""
    return bool(source) and 2 * len(source.keys() & candidate.keys()) < len(candidate)


def _refuse(view: CheckpointView, what: str) -> NoReturn:
    where = next(iter(view.files), "")
    remedy = "bind the model's directory with its config.json, or say how names map: --map FILE"
    raise SubjectError("mapping", what, where=where, remedy=remedy)
