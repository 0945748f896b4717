"""Damage conversions of many families in the same ways, and print the page that says what is named of each.

Reads a folder of families that were made and converted before, FAMILY-DTYPE with `f32.gguf`, `f16.gguf`, `bf16.gguf`
and `q8_0.gguf` beside the source:

    python -m benchmarks.damaged_families /tmp/families > spec/damaged-families.md

A family whose conversion is not accepted undamaged is left out and counted. `right`, `honest` and `WRONG` are those of
`damaged_conversions.py`. Tensors are measured and judged; configurations are not compared.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import ml_dtypes
import numpy as np
from benchmarks import damages
from benchmarks.stored_tensors import Stored, Tensors, read, write

from weighbridge.core.errors import WeighbridgeError
from weighbridge.core.limits import read as read_limits
from weighbridge.core.model import Measurement, Outcome
from weighbridge.gates.families.tensor_pairs import UNEXPLAINED
from weighbridge.gates.value_preservation import KIND
from weighbridge.mapping.chosen_mapping import planned
from weighbridge.mapping.mapping_plan import Plan
from weighbridge.verifiers.tensor_values import VERIFIER
from weighbridge.views.checkpoint import CheckpointView, open_checkpoint

MATRIX = ("ffn_up.weight", "ffn_down.weight", "attn_output.weight", "ssm_in.weight", "ssm_out.weight")
ATTENTION = ".attention."
NEIGHBOURS = {"layer-before", "layer-after", "other-tensor"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A conversion that is to be damaged: its tensors, those of the same one in F32, and how it was made."""

    tensors: Tensors
    wide: Tensors
    plan: Plan
    heads: tuple[int, int]

    def headed(self, place: str) -> int:
        """Return the head count of queries or keys."""
        return self.heads[".attn_k." in place]

    def permutes(self, place: str) -> bool:
        """Return whether the rows were meant to be put in another order."""
        return bool(self.plan.pairings[place].parts[0].order)


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """What is done to which tensor of which conversion, and the mechanisms that are right."""

    name: str
    change: Callable[[Case, str], None]
    right: Callable[[Case, str], set[str]]
    at: tuple[str, ...] = MATRIX
    source: str = "float32"
    outtype: str = "f32"
    policy: str = "lossless"
    fits: Callable[[Case, str], bool] = field(default=lambda _case, _place: True)


def each(new: Callable[[Any], Any]) -> Callable[[Case, str], None]:
    """Change the values of the tensor."""
    return lambda case, place: damages.each(new, place)(case.tensors)


def of_heads(new: Callable[[Any, int], Any]) -> Callable[[Case, str], None]:
    """Change the order of the rows, by the head count that belongs to them."""
    return lambda case, place: each(lambda x: new(x, case.headed(place)))(case, place)


def stored(dtype: str, values: Callable[[Any], bytes]) -> Callable[[Case, str], None]:
    """Store bytes that are made of the values in F32."""

    def change(case: Case, place: str) -> None:
        tensor = case.wide[place]
        case.tensors[place] = Stored(dtype, tensor.shape, values(tensor.values))

    return change


def exchange(case: Case, place: str) -> None:
    """Exchange the tensor and that of the first layer."""
    damages.exchanged(place, _first(place))(case.tensors)


def _first(place: str) -> str:
    return "blk.0." + place.split(".", 2)[2]


def quantised(values: Any) -> bytes:
    """Quantise values that were rounded to F16 before."""
    data: bytes = gguf.quantize(damages.narrowed(values, np.float16), gguf.GGMLQuantizationType.Q8_0).tobytes()
    return data


def named(*right: str) -> Callable[[Case, str], set[str]]:
    """Return the mechanisms that are right whatever the family."""
    return lambda _case, _place: set(right)


def by_order(permuted: str, plain: str) -> Callable[[Case, str], set[str]]:
    """Return the mechanism that is right where rows are permuted, and where they are not."""
    return lambda case, place: {permuted if case.permutes(place) else plain}


def _halves(case: Case, place: str) -> bool:
    rows, heads = case.tensors[place].shape[0], case.headed(place)
    return heads > 0 and rows % (2 * heads) == 0 and rows // heads > 2


def _square_enough(case: Case, place: str) -> bool:
    return len(case.tensors[place].shape) == 2 and min(case.tensors[place].shape) > 1


def _plus_one(case: Case, place: str) -> set[str]:
    return {"plus-one-twice" if case.plan.pairings[place].arithmetic == "+1" else "plus-one-unasked"}


HALF, BRAIN, BLOCKS = (
    {"outtype": outtype, "policy": policy}
    for outtype, policy in (("f16", "rounded:F16"), ("bf16", "rounded:BF16"), ("q8_0", "requant:Q8_0"))
)
OWN_BRAIN = {"source": "bfloat16", "outtype": "bf16"}
HEADED = {"at": ("attn_q.weight", "attn_k.weight"), "fits": _halves}


def _(name: str, change: Callable[[Case, str], None], *right: str, **where: Any) -> Damage:
    return Damage(name=name, change=change, **{"right": named(*right or (UNEXPLAINED,)), **where})


DAMAGES = (
    _("BF16 bytes labelled F16", lambda c, at: damages.labelled(at, "F16")(c.tensors), "bf16-bits-as-f16", **OWN_BRAIN),
    _("values rounded to F16 and labelled BF16", stored("BF16", lambda x: x.astype("<f2").tobytes()),
      "f16-bits-as-bf16", **BRAIN),
    _("silent rounding to F16", each(lambda x: x), "value-cast", outtype="f16"),
    _("one bit flipped in F32", each(damages.flipped)),
    _("one bit flipped in BF16 that was widened", each(damages.flipped), source="bfloat16"),
    _("one bit flipped in F16", each(damages.flipped), **HALF),
    _("one bit flipped in Q8_0", each(damages.flipped), **BLOCKS),
    _("one NaN", each(damages.with_nan)),
    _("a tail of zeros", each(damages.with_tail_of_zeros)),
    _("bytes swapped", each(lambda x: x.byteswap()), "byte-swapped"),
    _("bytes swapped in BF16", each(lambda x: x.view("<u2").byteswap().view(x.dtype)), "byte-swapped", **OWN_BRAIN),
    _("transposed, shape and all", each(lambda x: x.T), "transposed", fits=_square_enough),
    _("queries or keys transposed", each(lambda x: x.T), "transposed", **HEADED),
    _("rope permutation once more", of_heads(damages.permuted), right=by_order("permutation-twice", "permuted-unasked"),
      **HEADED),
    _("rope permutation undone", of_heads(damages.unpermuted),
      right=by_order("permutation-missing", "permutation-inverse"), **HEADED),
    _("vocabulary rows shifted by one", each(lambda x: np.roll(x, 1, 0)), at=("token_embd.weight",)),
    _("two layers exchanged", exchange, *NEIGHBOURS, fits=lambda case, at: at != _first(at) in case.tensors),
    _("one added to a norm", each(lambda x: x + np.float32(1)), right=_plus_one, at=("attn_norm.weight",)),
    _("scaled by 1.01", each(lambda x: x * np.float32(1.01)), "scaled"),
    _("scaled by 1.01 in BF16", each(lambda x: x.astype("f4") * np.float32(1.01)), "scaled", **OWN_BRAIN),
    _("scaled by 1.01 in F16", each(lambda x: x.astype("f4") * np.float32(1.01)), "scaled", **HALF),
    _("the sign turned", each(lambda x: -x), "scaled"),
    _("silent round trip through BF16", each(lambda x: damages.narrowed(x, ml_dtypes.bfloat16)), "through-bf16"),
    _("silent round trip through F16", each(lambda x: damages.narrowed(x, np.float16)), "through-f16"),
    _("silent round trip through BF16 that was cut", each(lambda x: damages.cut(x).astype("f4")),
      "truncated-through-bf16"),
    _("cut to BF16 instead of rounded", stored("BF16", lambda x: damages.cut(x).tobytes()), "truncated", **BRAIN),
    _("cut to F16 instead of rounded", stored("F16", lambda x: damages.cut_half(x).tobytes()), "truncated", **HALF),
    _("rounded to F16, then quantised", stored("Q8_0", quantised), "requantised-through-f16", **BLOCKS),
)  # fmt: skip


def heads_of(view: CheckpointView) -> tuple[int, int]:
    """Return the head counts that a file states, the most of any layer; 0 where it states none."""
    stated: dict[str, Any] = {
        name.rpartition(".")[2]: value for name, value in view.metadata.items() if ATTENTION in name
    }
    counts = (stated.get(key) or 0 for key in ("head_count", "head_count_kv"))
    heads, groups = (max(one, default=0) if isinstance(one, (list, tuple)) else one for one in counts)
    return heads, groups or heads


def answer(source: Path, candidate: Path, policy: str) -> tuple[str, Mapping[str, str]]:
    """Compare, and return the outcome and what is named at each place."""
    views = open_checkpoint(source), open_checkpoint(candidate)
    found = VERIFIER.measure(views, {})
    assert isinstance(found, Measurement)
    verdict = KIND.judge({"pairs": found}, read_limits(KIND.limits, {"policy": policy}))
    return str(verdict.outcome), {one.place: str(one.figures.get("mechanism") or one.code) for one in verdict.offences}


def tried(folder: Path, family: str, damage: Damage) -> Iterator[str]:
    """Yield how one damage of one family is judged, with what was named where that is wrong."""
    source = folder / f"{family}-{damage.source}"
    candidate = source / f"{damage.outtype}.gguf"
    if not candidate.exists():
        return
    plan = planned(open_checkpoint(source), open_checkpoint(candidate), {})
    head, tensors = read(candidate)
    case = Case(
        tensors=tensors, wide=read(source / "f32.gguf")[1], plan=plan, heads=heads_of(open_checkpoint(candidate))
    )
    there = [name for at in damage.at for name in reversed(tensors) if name.endswith("." + at) or name == at]
    dtype = damage.outtype.upper() if damage.at == MATRIX else None
    places = [name for name in there if name in plan.pairings and tensors[name].dtype == (dtype or tensors[name].dtype)]
    for place in [name for name in places if damage.fits(case, name)][: 2 if damage.at == HEADED["at"] else 1]:
        right = damage.right(case, place)
        case = Case(tensors=dict(tensors), wide=case.wide, plan=plan, heads=case.heads)
        damage.change(case, place)
        target = write(Path(tempfile.gettempdir()) / f"damaged-{family}.gguf", head, case.tensors)
        outcome, found = answer(source, target, damage.policy)
        target.unlink()
        told = found.get(place, "nothing")
        if outcome != Outcome.FAIL or told not in right | {UNEXPLAINED}:
            yield f"WRONG {place}: {outcome} {told}"
        else:
            yield "honest" if told == UNEXPLAINED else "right"


def accepted(folder: Path, family: str) -> bool:
    """Return whether every conversion of a family is what was meant, undamaged."""
    for damage in {(one.source, one.outtype): one for one in DAMAGES}.values():
        source = folder / f"{family}-{damage.source}"
        policy = {"f32": "lossless", "bf16": "rounded:BF16", "f16": "rounded:F16", "q8_0": "requant:Q8_0"}
        try:
            if answer(source, source / f"{damage.outtype}.gguf", policy[damage.outtype])[0] != Outcome.PASS:
                return False
        except (WeighbridgeError, OSError):
            return False
    return True


PAGE = """# Damages of many families

Written by `benchmarks/damaged_families.py`: tiny models with random weights of {of} families, as llama.cpp's own
converter makes GGUF files of them, each damaged in every way that it has a tensor for. {many} families are accepted
undamaged, from F32 and BF16 sources, and damaged here; [conversions](conversions.md) says what is told of the others.

`right` names what was done, `honest` refuses and says no more than different content, `WRONG` names another mechanism
or accepts. A flipped bit, a NaN, zeros and rows in another order have no mechanism, so `honest` is all that is due.

| damage | conversion | policy | tried | right | honest | WRONG |
|---|---|---|---|---|---|---|"""


def main() -> None:
    """Print the page: a line a damage, all of them together, and each wrong answer."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", action="append", default=[])
    given = parser.parse_args()
    every = given.only or sorted({path.name.rpartition("-")[0] for path in given.folder.iterdir()})
    families = [family for family in every if accepted(given.folder, family)]
    print(PAGE.format(of=len(every), many=len(families)))
    wrong: dict[str, list[str]] = defaultdict(list)
    together: Counter[str] = Counter()
    for damage in DAMAGES:
        counts: Counter[str] = Counter()
        for family in families:
            for told in tried(given.folder, family, damage):
                counts[told.partition(" ")[0]] += 1
                if told.startswith("WRONG"):
                    wrong[damage.name].append(f"{family} {told[6:]}")
        together += counts
        print(line(damage.name, f"{damage.source} → {damage.outtype}", damage.policy, counts), flush=True)
    print(line("all", "", "", together))
    for name, places in wrong.items():
        print(f"\nWRONG, {name}: " + "; ".join(places))
    print("\nThe families: " + ", ".join(families) + ".")
    sys.exit(bool(wrong))


def line(name: str, conversion: str, policy: str, counts: Counter[str]) -> str:
    """Write a line of the table."""
    cells = name, conversion, policy, counts.total(), counts["right"], counts["honest"], counts["WRONG"]
    return "| " + " | ".join(map(str, cells)) + " |"


if __name__ == "__main__":
    main()
