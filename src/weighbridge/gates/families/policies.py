"""Policies: what a conversion was meant to make, in words, in parts, and tensor by tensor."""

import functools
import itertools
from collections.abc import Mapping

from weighbridge.core import closest, dataclass, quoted
from weighbridge.gates.families import block_types
from weighbridge.gates.families.block_types import BLOCK, HALVED_WITH_TERNARY, REQUANTISED, TERNARY
from weighbridge.quantities.tensors import TensorPair

ALONE, CEILING = ("same", "lossless"), "at-most:"
TARGETS: Mapping[str, tuple[str, ...]] = {
    "rounded": ("F16", "BF16", "F8_E4M3", "F8_E5M2"),
    "requant": REQUANTISED,
    "quantised": tuple(block_types.MIXTURES),
}
CLASSES = {"packed": "packing", "rounded": "rounding", "requant": "blocks", "quantised": "blocks"}
PARTS = ("packed", *(f"{verb}:{target}" for verb, targets in TARGETS.items() for target in targets))
POLICIES = (*ALONE, *PARTS)
FORM = "same, lossless, packed, rounded:TYPE, requant:TYPE, quantised:FTYPE or at-most:POLICY, joined by +"
_PART = f"(?:{'|'.join(PARTS)})"
PATTERN = rf"{'|'.join(ALONE)}|(?:{CEILING})?{_PART}(?:\+{_PART})*"
SYNONYMS = {
    **dict.fromkeys(("f32", "fp32", "float32", "exact"), "lossless"),
    **dict.fromkeys(("float16", "fp16", "half"), "f16"),
    **dict.fromkeys(("quantized", "quant"), "quantised"),
    **dict.fromkeys(("requantised", "requantized"), "requant"),
    **dict.fromkeys(("fp8", "float8", "f8", "float8_e4m3fn", "fp8_e4m3"), "f8_e4m3"),
    **dict.fromkeys(("gptq", "awq", "pack"), "packed"),
    "bfloat16": "bf16",
    "round": "rounded",
    "identical": "same",
}
FLOATS = ("F64", "F32", "F16", "BF16")


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The parts of a policy: of each class the target, "" where it has none; a ceiling says what is allowed at most."""

    ceiling: bool = False
    same: bool = False
    packed: bool = False
    rounded: str = ""
    requant: str = ""
    quantised: str = ""

    @property
    def blocks(self) -> str:
        """Return the mixture, or the type, of the blocks that are meant."""
        return self.quantised or self.requant

    @property
    def numbers(self) -> tuple[int, ...]:
        """Return the file types that the header of what this makes may state; none where any may stand there."""
        if self.ceiling or not (self.blocks or self.rounded in block_types.ROUNDED_TYPES):
            return ()
        return (block_types.recipe(self.blocks).number if self.blocks else block_types.ROUNDED_TYPES[self.rounded],)

    def lacking(self, pair: TensorPair) -> str:
        """Return what this makes of a tensor where the candidate holds something else; a ceiling makes nothing."""
        dtype, shape = pair.candidate_dtype, pair.candidate_shape
        if self.ceiling or pair.source_dtype not in FLOATS or not (self.blocks or self.rounded):
            return ""
        if len(shape) < 2:
            return "no blocks, for it is no matrix" if dtype in BLOCK else ""
        kept = min(shape[-2:]) < 2 or block_types.KEPT.fullmatch(pair.name)
        made = self._types(pair.name, shape)
        return "" if kept or not made or dtype in made else " or ".join(made)

    def _types(self, name: str, shape: tuple[int, ...]) -> tuple[str, ...]:
        if self.quantised:
            alone = block_types.recipe(self.quantised).default in block_types.EXPERTS_ALONE and len(shape) < 3
            return () if alone else block_types.types_of(self.quantised, name, shape[-1])
        if self.requant and self.requant in TERNARY and name in HALVED_WITH_TERNARY:
            return ("F16",)
        if self.requant:
            return (self.requant,) if shape[-1] % BLOCK[self.requant] == 0 else ("F16",)
        return (self.rounded,)


@functools.cache
def parse(text: str) -> Policy:
    """Return the parts of a policy that `spelled` gave."""
    parts = dict(part.partition(":")[::2] for part in text.removeprefix(CEILING).split("+"))
    rounded, requant, quantised = (parts.get(verb, "") for verb in TARGETS)
    alone = {"ceiling": text.startswith(CEILING), "same": "same" in parts, "packed": "packed" in parts}
    return Policy(rounded=rounded, requant=requant, quantised=quantised, **alone)


def spelled(text: str) -> str:
    """Return a policy as it is kept, whatever its letter case; raise ValueError that says what is wrong, and where."""
    folded = {one.casefold(): one for one in POLICIES}
    ceiling = CEILING if text.casefold().startswith(CEILING) else ""
    written = text[len(ceiling) :].split("+")
    if len(written) > len(set(CLASSES.values())):
        raise ValueError(f"{quoted(text)}: {len(written)} parts; one part a class")
    parts = [folded.get(part.casefold(), "") for part in written]
    if "" in parts:
        at = parts.index("")
        meant = "+".join(known or _meant(part) for known, part in zip(parts, written, strict=True))
        near = f"; did you mean {ceiling + meant!r}?" if _meant(written[at]) and len(meant) < 99 else ""
        where = f" (part {at + 1} of {quoted(text)})" if text != written[at] else ""
        raise ValueError(_unknown(written[at], where) + near)
    if (len(parts) > 1 or ceiling) and (alone := next((part for part in parts if part in ALONE), "")):
        raise ValueError(f"{quoted(text)}: {alone} stands alone")
    for one, other in itertools.combinations(parts, 2):
        if (what := CLASSES[one.partition(":")[0]]) == CLASSES[other.partition(":")[0]]:
            raise ValueError(f"{quoted(text)}: {one} and {other} both say the {what}; one part a class")
    return ceiling + "+".join(sorted(parts, key=POLICIES.index))


def _unknown(part: str, where: str) -> str:
    """Return what is wrong with a part, and what may stand there: the targets of its verb by their first letters."""
    verb, colon, _ = part.casefold().partition(":")
    verb = SYNONYMS.get(verb, verb)
    if not colon or verb not in TARGETS:
        return f"{quoted(part)}{where} is not {FORM}"
    groups = (" ".join(group) for _, group in itertools.groupby(sorted(TARGETS[verb]), lambda one: one.split("_")[0]))
    return f"{quoted(part)}{where} is no {verb}:TYPE; TYPE is one of {', '.join(groups)}"


def _meant(text: str) -> str:
    """Return the part that a text means in other words, as `bf16` or `rounded:float16` do; "" where none is near."""
    words = [SYNONYMS.get(word, word) for word in text.casefold().replace("-", "_").split(":")[:2]]
    folded = {policy.casefold(): policy for policy in POLICIES}
    ends = {policy.partition(":")[2]: folded[policy] for policy in reversed(folded) if ":" in policy}
    near = closest(":".join(words), [*folded])
    return folded.get(":".join(words)) or ends.get(words[-1]) or (folded[near[0]] if near else "")
