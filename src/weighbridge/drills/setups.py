"""The drills as data: what each run trains, which one variable it changes, and what the gates must say of it."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from weighbridge.core import UsageError, dataclass, nearest
from weighbridge.core.data import table

BASE, DIAGNOSTICS = "baseline", "builtin:diagnostics"
TRANSFORMERS = "transformers"
KNOCK = 110  # the step from which on tensors are knocked


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """All that one training of a drill is made from; two that are equal train the same run."""

    seed: int = 0
    steps: int = 150
    layers: int = 6
    dtype: str = "float32"
    attention: str = "fused"  # or written-out; or transformers, a Qwen2 of theirs whose heads can be seen
    causal: bool = True  # else every token sees those after it
    normed: bool = True  # else nothing but queries, keys and the end is
    residual: float = 1.0  # by what the path past a block is multiplied
    init_scale: float = 1.0  # of every matrix
    warmup: int = 50
    rate: float = 1e-3
    optimizer: str = "adamw"  # or sgd
    clip: float = 1.0
    zeroed: str = ""  # tensors that are kept at zero, by pattern
    left_out: str = ""  # of the optimizer, by pattern
    louder: str = ""  # tensors whose gradients arrive 1000 times as large, by pattern
    same_heads: str = ""  # tensors of which every head is kept as the first is, by pattern
    knocked: str = ""  # tensors that are `knock` times as large from that step on, by pattern; or rotation
    knock: float = 5.0
    rope_base: float = 10_000.0
    text: int = 900_000  # bytes to train on
    inside: int = 0  # every how many steps activations and attention are looked at; 0 is never


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One run of a drill: what it changes, against which run, and what the gates must say of it."""

    name: str
    setup: Setup
    against: str = ""  # the run that it is one variable from
    role: str = ""  # what it is bound to as `against` is judged: replay, reference
    beside: str = ""  # the role that the baseline is bound to as this one is judged
    fails: tuple[str, ...] = ()
    passes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Drill:
    """One experiment: what it asks, its runs in order, and what it teaches."""

    number: int
    name: str
    title: str
    teaches: str
    arms: tuple[Arm, ...]
    ranked: bool = False  # by how far each arm's loss rises above the one that it is compared with, from the knock on


def differing(one: Setup, other: Setup) -> dict[str, tuple[Any, Any]]:
    """Return every variable in which two setups differ, with both values."""
    names = (field.name for field in dataclasses.fields(Setup))
    return {name: both for name in names if (both := (getattr(one, name), getattr(other, name)))[0] != both[1]}


def row_of(gate: str) -> str:
    """Return the row of the playbook that a gate is."""
    return gate.removeprefix("GATE-DIAG-")


def drills() -> tuple[Drill, ...]:
    """Return every drill in order, each checked."""
    return tuple(map(drill_of, table("drills/drills")))


def named(word: str) -> Drill:
    """Return a drill by its number or its name."""
    every = drills()
    if found := next((one for one in every if word in (str(one.number), one.name)), None):
        return found
    what = f"there is no drill {word!r}{nearest(word, [one.name for one in every])}"
    raise UsageError("unknown-drill", what, remedy="`weighbridge drill` lists them")


def drill_of(row: Mapping[str, Any]) -> Drill:
    """Return a drill as its row describes it; refuse one whose runs differ from what they are compared with by two."""
    name, first = row["name"], Setup(**row.get("setup", {}))
    made = {BASE: Arm(name=BASE, setup=first, **row.get("baseline", {}))}
    for given in row["arms"]:
        against = given.get("against", BASE)
        setup = dataclasses.replace(made[against].setup, **given.get("change", {}))
        rest = {key: value for key, value in given.items() if key not in ("change", "against")}
        made[given["name"]] = one = Arm(setup=setup, against=against, **rest)
        found, wanted = differing(made[against].setup, setup), 0 if one.role == "replay" else 1
        if len(found) != wanted:
            many = f"{len(found)} variables ({', '.join(found) or 'nothing'}), not {wanted}"
            what = f"drill {name}: {one.name} differs from {against} in {many}"
            remedy = "change one variable a run, so that what follows has one cause"
            raise UsageError("one-variable", what, remedy=remedy)
    rest = {key: value for key, value in row.items() if key not in ("setup", "baseline", "arms")}
    return Drill(**rest, arms=tuple(made.values()))
