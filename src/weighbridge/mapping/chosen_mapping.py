"""Choose the mapping of two checkpoints: from what was asked for, and from what headers and configuration say.

Where nothing says it, names map as they are, after one rename, or by a layout that is known. Nothing is guessed: a
rename takes away or puts before only what is listed, and must be the only one that fits.
"""

import itertools
import re
from collections.abc import Mapping
from functools import partial
from typing import Any, NoReturn

from weighbridge.core import Fields, SubjectError, replace
from weighbridge.mapping.gguf_mapping import Sides
from weighbridge.mapping.gguf_mapping import plan as gguf_plan
from weighbridge.mapping.gguf_rules import rules
from weighbridge.mapping.mapping_plan import COMPUTED, Pairing, Plan, Shapes, identity, inverse, whole
from weighbridge.mapping.mapping_plan import table as by_table
from weighbridge.mapping.renaming import AVERAGED, OF_MODELS, WRAPPED, renamings, unwrapped
from weighbridge.mapping.tensor_rules import Numbers, RuleError, buffer, built_in, encoders, made, projectors, rule_of
from weighbridge.views.checkpoint import MAX_CONFIG, CheckpointView, config_beside, json_beside

ARCHITECTURE = "general.architecture"
PARAMETERS = "params.json"  # what Meta's and Mistral's files have in the place of config.json
TRAINING_STATE = "training state beside the model"
SECOND = "of {}, another set of weights beside {}, not compared; save it by itself to compare it"
HALVES = "vision_config", "audio_config"  # what a configuration says of the encoder before the text model
CLIP = "clip"  # the architecture of every mmproj file
SPOKEN = "of what draws or speaks, which the converter leaves out"
ENCODER_HALF = "of what goes before the text model, into the mmproj file"
TEXT_HALF = "of the text model, into its own GGUF file"
SIGLIP_HEAD, HEAD = ".vision_model.head.", "SigLIP's head, which the converter leaves out"
OF_META = {"rope.freqs": COMPUTED}  # of Meta's files


def planned(source: CheckpointView, candidate: CheckpointView, options: Fields) -> Plan:
    """Return which source tensors make which tensor of the candidate; refuse with `mapping` where nothing says how."""
    shapes, there = models(source, candidate), models(candidate, source)
    second = {**_averaged(shapes, there), **_averaged(there, shapes)} if options.get("map") != "table" else {}
    shapes, there = ({name: one[name] for name in one if name not in second} for one in (shapes, there))
    plan = _planned(source, candidate, shapes, there, options)
    beside = sorted((source.tensors.keys() - shapes.keys()) | (candidate.tensors.keys() - there.keys()))
    alone = [*(shapes.keys() - plan.used() - plan.drop_rules.keys()), *(there.keys() - plan.pairings.keys())]
    apart = dict.fromkeys(beside, TRAINING_STATE) | second | {name: why for name in alone if (why := buffer(name))}
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
    # Of names that were meant to change, fewer than half are on both sides.
    renamed = bool(shapes) and 2 * len(shapes.keys() & there.keys()) < len(there)
    if chosen == "identity" or (architecture and not renamed):
        return identity(shapes, there)
    if source.format == "gguf" and not architecture and renamed:
        if (beside := config_beside(candidate)) is None:
            _refuse(candidate, "the source is a GGUF file, and no config.json beside the import says its head counts")
        return inverse(converted(_sides(source, beside, there, shapes)), there)
    if not architecture:
        try:
            return automatic(shapes, there, known)
        except RuleError as problem:
            _refuse(candidate, f"the tensors have the names of a known layout, but {problem}")
    if (config := config_beside(source)) is None:
        _refuse(source, "the tensors have other names, and no config.json beside the source says its head counts")
    return converted(_sides(candidate, config, shapes, there))


def _sides(file: CheckpointView, config: Mapping[str, Any], source: Shapes, candidate: Shapes) -> Sides:
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


def _averaged(own: Shapes, other: Shapes) -> dict[str, str]:
    """Return a side's averages of its model's weights, which a trainer saves beside them, where the other has none."""
    bare = {WRAPPED.sub("", name): shape for name, shape in own.items()}
    keys, found = {name.partition(".")[0] for name in own}, dict[str, str]()
    for key in keys.intersection(AVERAGED).difference(name.partition(".")[0] for name in other):
        inside = {name: WRAPPED.sub("", name.removeprefix(f"{key}.")) for name in own if name.startswith(f"{key}.")}
        for holder in keys.intersection(OF_MODELS):
            # A count of what was averaged is no weight; else each has the name and shape of one of the model's own.
            if all(not own[name] or bare.get(f"{holder}.{end}") == own[name] for name, end in inside.items()):
                found |= dict.fromkeys(inside, SECOND.format(key, holder))
    return found


def numbers(*sides: CheckpointView) -> Mapping[str, int]:
    """Return the numbers that a rule may name, from the first side that says them: its config.json or params.json."""
    configs = (config_beside(view) or json_beside(view, PARAMETERS, MAX_CONFIG) or {} for view in sides)
    return next((found for config in configs if (found := numbers_of(config))), {})


def _refuse(view: CheckpointView, what: str) -> NoReturn:
    where = next(iter(view.files), "")
    remedy = "bind the model's directory with its config.json, or say how names map (`map:`, compare --map)"
    raise SubjectError("mapping", what, where=where, remedy=remedy)


def automatic(source: Shapes, candidate: Shapes, numbers: Numbers) -> Plan:
    """Plan by names alone; a RuleError for a layout that is known, and whose head counts are not."""
    plan = identity(source, candidate)
    tried = any(map(WRAPPED.search, source.keys() ^ candidate.keys())) or 2 * len(plan.pairings) <= len(candidate)
    found = renamings(source, candidate, more_than=len(plan.pairings)) if tried else ()
    if len(found) == 1 and found[0].known:
        pairings = {new: whole(new, old, source) for new, old in found[0].origin.items()}
        plan = replace(plan, name=f"renamed: {found[0].summary}", pairings=pairings)
    known = _by_layout(source, candidate, plan, numbers)
    plan = replace(plan, name=f"{plan.name}, {len(known)} by a known layout") if known else plan
    return with_made(plan, known)


def _by_layout(source: Shapes, candidate: Shapes, plan: Plan, numbers: Numbers) -> Mapping[str, Pairing]:
    """Return what known layouts make of the names that no plan pairs, whatever key holds all weights of a side."""
    unpaired = candidate.keys() - plan.pairings.keys()
    for new, old in itertools.product(unwrapped(candidate), unwrapped(source)) if unpaired else ():
        there = {bare: candidate[name] for bare, name in new.items()}
        here = {bare: source[name] for bare, name in old.items()}
        if found := made(built_in(), [bare for bare in new if new[bare] in unpaired], here, there, numbers):
            pairings = {new[bare]: replace(one, candidate=new[bare]) for bare, one in found.items()}
            kept = {new[at]: whole(new[at], old[at], source) for at in new.keys() & old.keys() if new[at] in unpaired}
            return {**kept, **replace(plan, pairings=pairings).of(old).pairings}
    return {}


def converted(sides: Sides) -> Plan:
    """Return the plan for a GGUF file by the names that pair most, without wrappers and keys that hold all weights."""
    # Of a model that sees or hears, such a file holds one half: the text model, or (`clip`) what goes before it.
    every, encoder = sides.source, next((sides.config[key] for key in HALVES if sides.config.get(key)), None)
    depth = encoder.get("num_hidden_layers") or encoder.get("depth") if isinstance(encoder, dict) else None
    encoder = {**encoder, "num_hidden_layers": depth} if isinstance(encoder, dict) else {}
    spoken = {name: SPOKEN for name in every if re.fullmatch(rules().speaker, name)}
    sides = replace(sides, source={name: shape for name, shape in every.items() if name not in spoken})
    if encoder:
        of_clip, before = sides.architecture == CLIP, re.compile(rules().encoder)
        half = {name: shape for name, shape in sides.source.items() if bool(before.fullmatch(name)) is of_clip}
        sides = replace(sides, source=half, config={**sides.config, **encoder} if of_clip else sides.config)
    best: Plan | None = None
    for names in unwrapped(sides.source):
        bare = {bare: every[name] for bare, name in names.items()}
        plan = gguf_plan(replace(sides, source=bare))
        if sides.architecture == CLIP:
            there = sides.candidate
            plan = with_made(plan, made(encoders(), there, bare, there, partial(numbers_of, sides.config)))
            if not {*sides.projectors} <= {*projectors()}:  # no rule speaks of what one that was never tried leaves
                unpaired = frozenset((bare.keys() - plan.used()) | (there.keys() - plan.pairings.keys()))
                plan = replace(plan, without_rule=unpaired, untried=f"projector {' '.join(sides.projectors)!r}")
        if best is None or len(plan.pairings) > len(best.pairings):
            wrapped = any(bare != name for bare, name in names.items())
            name = f"{plan.name}, what holds or wraps the names taken away" if wrapped else plan.name
            best = replace(plan.of(names), name=name)
    other = TEXT_HALF if sides.architecture == CLIP else ENCODER_HALF
    left_out = {name: other for name in every if name not in sides.source} | spoken
    left_out |= {name: HEAD for name in sides.source if sides.architecture == CLIP and SIGLIP_HEAD in name}
    assert best is not None  # a name without a wrapper is its own
    return replace(best, left_out=left_out)


def with_made(plan: Plan, found: Mapping[str, Pairing]) -> Plan:
    """Return a plan with what rules make of tensors."""
    return replace(plan, pairings={**plan.pairings, **found}, left_out=OF_META) if found else plan


def numbers_of(config: Mapping[str, Any]) -> dict[str, int]:
    """Return the numbers that a rule may name, by what a configuration says."""
    heads, groups = Sides(architecture="", config=config, source={}, candidate={}).heads
    return {"heads": heads, "kv_heads": groups} if heads else {}
