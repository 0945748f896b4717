"""Choose the mapping of two checkpoints: from what was asked for, and from what headers and configuration say."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

from weighbridge.core import Fields, SubjectError
from weighbridge.mapping.automatic_mapping import automatic, converted, differ, numbers_of, with_made
from weighbridge.mapping.gguf_mapping import Sides
from weighbridge.mapping.inverse_plan import inverse
from weighbridge.mapping.known_layouts import buffer
from weighbridge.mapping.mapping_plan import Plan, Shapes, identity
from weighbridge.mapping.mapping_plan import table as by_table
from weighbridge.mapping.tensor_rules import RuleError, made, rule_of
from weighbridge.views.checkpoint import MAX_CONFIG, CheckpointView, config_beside, json_beside

ARCHITECTURE = "general.architecture"
PARAMETERS = "params.json"  # what Meta's and Mistral's files have in the place of config.json
TRAINING_STATE = "training state beside the model"


def planned(source: CheckpointView, candidate: CheckpointView, options: Fields) -> Plan:
    """Return which source tensors make which tensor of the candidate; refuse with `mapping` where nothing says how."""
    shapes, there = models(source, candidate), models(candidate, source)
    plan = _planned(source, candidate, shapes, there, options)
    beside = sorted((source.tensors.keys() - shapes.keys()) | (candidate.tensors.keys() - there.keys()))
    alone = [*(shapes.keys() - plan.used() - plan.drop_rules.keys()), *(there.keys() - plan.pairings.keys())]
    apart = dict.fromkeys(beside, TRAINING_STATE) | {name: why for name in alone if (why := buffer(name))}
    return replace(plan, left_out={**apart, **plan.left_out}) if apart else plan


def _planned(source: CheckpointView, candidate: CheckpointView, shapes: Shapes, there: Shapes, options: Fields) -> Plan:
    chosen, known = options.get("map", "auto"), partial(numbers, source, candidate)
    if chosen == "table":
        given: Any = {key: options.get(key) or () for key in ("rename", "make")} | {"names": options.get("names") or {}}
        try:
            pairs = [(str(rule["from"]), str(rule["to"])) for rule in given["rename"]]
            plan = by_table(shapes, there, names=given["names"], rename=pairs)
            return with_made(plan, made([*map(rule_of, given["make"])], there, shapes, there, known, strict=True))
        except re.error as problem:
            _refuse(candidate, f"a pattern in `rename` cannot be used: {problem}")
        except RuleError as problem:
            _refuse(candidate, f"a rule in `make` cannot be used: {problem}")
    architecture = str(candidate.metadata.get(ARCHITECTURE) or "") if candidate.format == "gguf" else ""
    if chosen == "identity" or (architecture and not differ(shapes, there)):
        return identity(shapes, there)
    if source.format == "gguf" and not architecture and differ(shapes, there):
        beside = config_beside(candidate)
        if beside is None:
            _refuse(candidate, "the source is a GGUF file, and no config.json beside the import says its head counts")
        return inverse(converted(_sides(source, beside, there, shapes)), there)
    if not architecture:
        try:
            return automatic(shapes, there, known)
        except RuleError as problem:
            _refuse(candidate, f"the tensors have the names of a known layout, but {problem}")
    config = config_beside(source)
    if config is None:
        _refuse(source, "the tensors have other names, and no config.json beside the source says its head counts")
    return converted(_sides(candidate, config, shapes, there))


def _sides(file: CheckpointView, config: Mapping[str, Any], source: Shapes, candidate: Shapes) -> Sides:
    """Return both sides of a conversion to a GGUF file; numbers that the rules need are read from its header."""
    from weighbridge.formats.gguf_file import LongValues

    architecture, whole = str(file.metadata.get(ARCHITECTURE) or ""), next(iter(file.files.values()))
    named = (file.metadata.get(f"clip.{one}projector_type") for one in ("", "vision.", "audio."))
    sides = Sides(architecture=architecture, config=config, source=source, candidate=candidate)
    projectors = tuple(str(one) for one in named if one)
    return replace(sides, projectors=projectors, numbers=lambda key: LongValues(whole).numbers(key))


def models(view: CheckpointView, other: CheckpointView) -> Shapes:
    """Return the shapes of a side's tensors: without training state, where the other side has none."""
    alone = all(one.weight for one in other.tensors.values())
    return {name: one.shape for name, one in view.tensors.items() if one.weight or not alone}


def numbers(*sides: CheckpointView) -> Mapping[str, int]:
    """Return the numbers that a rule may name, from the first side that says them: its config.json or params.json."""
    configs = (config_beside(view) or json_beside(view, PARAMETERS, MAX_CONFIG) or {} for view in sides)
    return next((found for config in configs if (found := numbers_of(config))), {})


def _refuse(view: CheckpointView, what: str) -> NoReturn:
    where = next(iter(view.files), "")
    remedy = "bind the model's directory with its config.json, or say how names map: --map FILE"
    raise SubjectError("mapping", what, where=where, remedy=remedy)
