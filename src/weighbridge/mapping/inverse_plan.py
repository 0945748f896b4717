"""Turn a plan round: how the tensors that were converted come back from what they became.

Rows go back where they came from, and a one that was added is taken away. What else was computed, or cut, has no rule.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from weighbridge.mapping.mapping_plan import NO_RULE, Pairing, Part, Plan, Shape, Shapes

BACK = {"": "", "+1": "-1.0"}


class _Use(NamedTuple):
    """Where rows of one source tensor went: the pairing, the part of it, and the first row there."""

    pairing: Pairing
    part: Part
    first: int


def inverse(plan: Plan, there: Shapes) -> Plan:
    """Return the plan by which the sources of another, of these shapes, are made of its candidate."""
    uses: dict[str, list[_Use]] = {}
    for pairing in plan.pairings.values():
        first = 0
        for part in pairing.parts:
            uses.setdefault(part.source, []).append(_Use(pairing, part, first))
            axis, start, stop = part.take or (0, 0, _rows(there[part.source]))
            first += (stop - start) * (math.prod(part.view) // part.view[axis] if part.take and part.view else 1)
    return Plan(
        name=plan.name.replace("gguf:auto", "from gguf:auto"),
        pairings={name: _back(name, there[name], used) for name, used in uses.items()},
        tied={name: plan.tied[name] for name in plan.tied if name in there and name not in uses},
        left_out={
            **plan.left_out,
            **plan.drop_rules,
            **dict.fromkeys(plan.generated, "a table that the loader computes"),
        },
        heads=plan.heads,
        without_rule=plan.without_rule | plan.in_header.keys(),
        untried=plan.untried or ("a number that stands in the header" if plan.in_header else ""),
    )


def _back(name: str, shape: Shape, used: Sequence[_Use]) -> Pairing:
    """Return how a tensor is made of what became of it."""
    (arithmetic, *others) = {BACK.get(use.pairing.arithmetic, NO_RULE) for use in used}
    parts = tuple(_whole(shape, used[0]) if len(used) == 1 else _apart(used))
    # Nothing was done to the rows but what is undone here.
    plain = (replace(use.part, view=(), take=None, order=(), transposed=False) for use in used)
    known = all(part == Part(source=part.source) for part in plain) and not any(use.pairing.zeros for use in used)
    if not parts or others or not known:
        arithmetic, parts = NO_RULE, (Part(source=used[0].pairing.candidate),)
    done = ", ".join(dict.fromkeys(use.pairing.transform for use in used if use.pairing.transform))
    transform = f"back from {done}" if done else ""
    return Pairing(candidate=name, parts=parts, shape=shape, arithmetic=arithmetic, transform=transform)


def _whole(shape: Shape, use: _Use) -> Iterator[Part]:
    """Yield the one stretch of rows that a whole tensor went into, in its old order; nothing where rows were cut."""
    pairing, part, first = use
    if part.take is not None:
        return
    name, rows, many = pairing.candidate, _rows(pairing.shape), _rows(shape)
    if part.transposed:
        yield from [Part(source=name, transposed=True)] if len(pairing.parts) == 1 else []
        return
    sizes = tuple(part.view[axis] for axis in part.order)
    order = tuple(sorted(range(len(part.order)), key=part.order.__getitem__))
    if len(pairing.parts) == 1:
        yield Part(source=name, view=sizes, order=order)
        return
    each = math.prod(sizes[1:])
    view = (rows // each, *sizes[1:]) if sizes else (rows,)
    if part.order[:1] in ((), (0,)) and rows % each == first % each == 0:
        yield Part(source=name, view=view, take=(0, first // each, (first + many) // each), order=order)


def _apart(used: Sequence[_Use]) -> Iterator[Part]:
    """Yield, group for group, the rows that were put apart by one dimension; nothing where some of them are lost."""
    cuts = sorted((use for use in used if use.part.take is not None), key=lambda use: use.part.take or ())
    views, takes = {use.part.view for use in used}, [use.part.take for use in cuts if use.part.take]
    ends = [0, *(stop for _, _, stop in takes)]
    view = next(iter(views))
    alone = len(views) == 1 and len(view) == 3 and len(takes) == len(used) and not any(use.part.order for use in used)
    if not alone or takes != [(1, *cut) for cut in itertools.pairwise(ends)] or ends[-1] != view[1]:
        return
    for group in range(view[0]):
        for use, (_, start, stop) in zip(cuts, takes, strict=True):
            many = (stop - start) * view[2]
            first = use.first + group * many
            yield Part(source=use.pairing.candidate, view=(_rows(use.pairing.shape),), take=(0, first, first + many))


def _rows(shape: Shape) -> int:
    return math.prod(shape[:-1]) if len(shape) > 1 else math.prod(shape)
