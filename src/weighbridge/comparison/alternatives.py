"""Other makings of one tensor than the one that was meant, each under its mechanism. Reads no tensor."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace

from weighbridge.core import SubjectError
from weighbridge.mapping.mapping_plan import Pairing, Part, Plan, rope_order
from weighbridge.model_config.model_keys import field_keys
from weighbridge.views.checkpoint import CheckpointView, config_beside

HEADED = re.compile(r".*(attn_q|attn_k|q_proj|k_proj|wq|wk)\.(weight|bias)")
NORM = re.compile(r".*norm\d?\.weight")
HEAD_COUNTS = (".attention.head_count", ".attention.head_count_kv")  # of a GGUF header
LAYER = re.compile(r"(.*?\.)(\d+)(\..*)")
SWAPPED = ("ffn_gate", "ffn_up"), ("ffn_up", "ffn_gate"), ("gate_proj", "up_proj"), ("up_proj", "gate_proj")


def alternatives(plan: Plan, meant: Pairing) -> Iterator[tuple[str, Pairing]]:
    """Yield other makings of one tensor by mechanism, the likeliest first; several may bear one name."""
    for name, made in (*_ordered(plan, meant), *_computed(meant), *_turned(meant), *_matched(plan, meant)):
        if made != meant:
            yield name, made


def _ordered(plan: Plan, meant: Pairing) -> Iterator[tuple[str, Pairing]]:
    part = meant.parts[0]
    if part.order or (len(meant.parts) > 1 and len({one.source for one in meant.parts}) == 1):
        yield "permutation-missing", replace(meant, parts=(replace(part, view=(), take=None, order=()),))
    if not HEADED.fullmatch(meant.candidate) or len(meant.parts) != 1 or not meant.shape:
        return
    rows = meant.shape[0]
    for heads in dict.fromkeys(heads for heads in plan.heads if heads and rows % (2 * heads) == 0):
        order = rope_order(part.source, heads, rows)
        other = replace(part, view=order.view, order=order.order)
        if part.plain:
            yield "permuted-unasked", replace(meant, parts=(other,))
            yield "permutation-inverse", replace(meant, parts=(_inverse(other),))
        elif part.order and other.view != part.view:
            yield "wrong-head-count", replace(meant, parts=(other,))
    if part.order and len(part.view) == 3 and part.view[1] == 2:
        yield "permutation-twice", replace(meant, parts=(replace(part, times=2),))
        yield "permutation-inverse", replace(meant, parts=(_inverse(part),))


def _inverse(part: Part) -> Part:
    """Put the halves of each head one after the other again."""
    return replace(part, view=(part.view[0], part.view[2], 2))


def _computed(meant: Pairing) -> Iterator[tuple[str, Pairing]]:
    if meant.arithmetic == "+1":
        yield "plus-one-missing", replace(meant, arithmetic="")
        yield "plus-one-twice", replace(meant, arithmetic="+2")
    elif meant.arithmetic == "-exp":
        yield "minus-exp-missing", replace(meant, arithmetic="")
    elif NORM.fullmatch(meant.candidate):
        yield "plus-one-unasked", replace(meant, arithmetic="+1")


def _turned(meant: Pairing) -> Iterator[tuple[str, Pairing]]:
    part = meant.parts[0]
    whole = not part.view or math.prod(part.view) == meant.shape[0]  # so many rows of the source are put in order
    if len(meant.parts) == 1 and len(meant.shape) == 2 and not part.take and whole:
        turned = replace(part, transposed=not part.transposed)
        yield "transposed", replace(meant, parts=(turned,), shape=meant.shape[::-1])


def _matched(plan: Plan, meant: Pairing) -> Iterator[tuple[str, Pairing]]:
    """Yield what another tensor of the candidate was meant to be: gate for up, or the neighbour layer's."""
    found = LAYER.fullmatch(meant.candidate)
    if found is None:
        return
    before, number, behind = found.groups()
    swapped = (behind.replace(old, new) for old, new in SWAPPED if f".{old}" in behind)
    others = [("gate-and-up-swapped", f"{before}{number}{one}") for one in swapped]
    others += [(f"layer-{way}", f"{before}{int(number) + by}{behind}") for way, by in (("before", -1), ("after", 1))]
    for name, candidate in others:
        other = plan.pairings.get(candidate)
        if other is not None and other.shape == meant.shape:
            yield name, replace(other, candidate=meant.candidate)


def head_counts(view: CheckpointView) -> tuple[int, ...]:
    """Return the head counts that a side states, of queries and of keys, in any layer."""
    try:
        config = config_beside(view) or {}
    except SubjectError:  # reported where configurations are compared; only a mechanism's name hangs on it here
        config = {}
    counts = ("head_count", "head_count_kv") if config else ()
    stated = [config.get(key) for count in counts for key in field_keys()[count].config]
    stated += [value for key, value in view.metadata.items() if key.endswith(HEAD_COUNTS)]
    each = (one for value in stated for one in (value if isinstance(value, (list, tuple)) else (value,)))
    return tuple(dict.fromkeys(one for one in each if isinstance(one, int) and one > 0))
