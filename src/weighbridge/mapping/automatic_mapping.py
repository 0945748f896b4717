"""Choose how names map where nothing says it: as they are, after one rename, or by a layout that is known.

Nothing is guessed: a rename takes away or puts before only what is listed, and must be the only one that fits.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from weighbridge.mapping.gguf_mapping import Sides
from weighbridge.mapping.gguf_mapping import plan as gguf_plan
from weighbridge.mapping.known_layouts import built_in, encoders, projectors
from weighbridge.mapping.mapping_plan import Pairing, Plan, Shapes, identity, whole
from weighbridge.mapping.renaming import WRAPPED, renamings, unwrapped
from weighbridge.mapping.tensor_rules import Numbers, made

HALVES = "vision_config", "audio_config"  # what a configuration says of the encoder before the text model
CLIP = "clip"  # the architecture of every mmproj file
ENCODER = re.compile(
    r"(.*\.)?(vision_tower|vision_model|vision_encoder|visual|audio_tower|embed_vision|embed_audio|multi_modal_projector|"
    r"mm_projector|vision_language_adapter|vision_adapter|vision_projection|patch_merger|vit|mlp_AR|aligner|merger|"
    r"connector)\..*"
)
SPEAKER = re.compile(r"(model\.)?(vqmodel|generation_(embeddings|aligner|head)|talker|code2wav)\..*")
SPOKEN = "of what draws or speaks, which the converter leaves out"  # januspro.py:23, chameleon.py, qwen3vl.py:316
ENCODER_HALF = "of what goes before the text model, into the mmproj file"
TEXT_HALF = "of the text model, into its own GGUF file"
SIGLIP_HEAD, HEAD = ".vision_model.head.", "SigLIP's head, which the converter leaves out"
COMPUTED = {"rope.freqs": "a table that the loader computes"}  # of Meta's files


def automatic(source: Shapes, candidate: Shapes, numbers: Numbers) -> Plan:
    """Plan by names alone; a RuleError for a layout that is known, and whose head counts are not."""
    plan = identity(source, candidate)
    wrapped = any(map(WRAPPED.search, source.keys() ^ candidate.keys()))
    tried = wrapped or 2 * len(plan.pairings) <= len(candidate)
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
    spoken = {name: SPOKEN for name in every if SPEAKER.fullmatch(name)}
    sides = replace(sides, source={name: shape for name, shape in every.items() if name not in spoken})
    if encoder:
        of_clip = sides.architecture == CLIP
        half = {name: shape for name, shape in sides.source.items() if bool(ENCODER.fullmatch(name)) is of_clip}
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
    return replace(plan, pairings={**plan.pairings, **found}, left_out=COMPUTED) if found else plan


def numbers_of(config: Mapping[str, Any]) -> dict[str, int]:
    """Return the numbers that a rule may name, by what a configuration says."""
    heads, groups = Sides(architecture="", config=config, source={}, candidate={}).heads
    return {"heads": heads, "kv_heads": groups} if heads else {}


def differ(source: Mapping[str, Any], candidate: Mapping[str, Any]) -> bool:
    """Return whether so many names changed that they were meant to: fewer than half of them are on both sides."""
    return bool(source) and 2 * len(source.keys() & candidate.keys()) < len(candidate)
