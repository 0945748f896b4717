"""label-plausibility: from one file alone, can each tensor's bits be what its label says that they are?

Weights have zero-centred magnitudes of a few octaves; under a wrong reading of their bits they have not. What is not
like weights (norms, constants, rotary tables, tiny tensors) cannot be decided so, and is undecided.
"""

import collections
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple

from weighbridge.clauses.clause import every_glob_names, listed
from weighbridge.clauses.kind import Evidence, Kind, Need, blocked, codes, failed, passed, rows_of
from weighbridge.clauses.mutations import Moves
from weighbridge.core import Doc, Fields, Offence, SubjectKind, Verdict, dataclass, field
from weighbridge.gates.trials import implausible_bits as faults
from weighbridge.quantities.tensors import BitReading, TensorBits

READING: Mapping[str, str] = {"F16": "F16", "BF16": "BF16", "F32": "BF16"}  # of F32 the upper half is read
OTHER: Mapping[str, str] = {"F16": "BF16", "BF16": "F16"}
OK, UNDECIDED = "ok", "undecided"
CODES = "no F16, BF16 or F32"  # as codes and blocks are
WRONG = ("mislabelled", "byte-swapped", "pairs")
REFUSED = "of the decided elements, how many may be mislabelled, swapped or pairs"
NO_FIT = "of the decided elements, how many may fit no reading"
SHARE = "of the elements of the named tensors, how many must be decided"
UNUSED = "by dtype, how many last bits of the mantissa may be unused: 12 of F32 refuses F16 and BF16 values in F32"
PAIRS = "divergence of upper and lower halves of words that are pairs"


def _decision(text: str, must: str, moves: Moves, **more: Any) -> Doc:
    return Doc(text, must=must, moves=moves, tight="", **more)


def _bits(text: str, must: str, moves: Moves, *, le: float | None = 8, lt: float | None = None) -> Doc:
    return _decision(text, must, moves, unit="bits", gt=0, le=le, lt=lt)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When a reading counts as plausible, by numbers whose errors `benchmarks/label_plausibility.py` measures."""

    tensors: Annotated[tuple[str, ...], Doc("globs of the tensors to look at", min_items=1, tight="up")] = ("*",)
    wrong_at_most_share: Annotated[float, Doc(REFUSED, ge=0, lt=1, must="at most", moves=faults.WRONG)] = 0.0
    implausible_at_most_share: Annotated[float, Doc(NO_FIT, ge=0, lt=1, must="at most", moves=faults.IMPLAUSIBLE)] = 0.5
    decided_at_least_share: Annotated[float, Doc(SHARE, ge=0.01, le=1, must="at least", moves=faults.too_little)] = 0.5
    trailing_zero_bits_at_most: Annotated[
        Mapping[str, int], Doc(UNUSED, ge=0, le=51, keys="^(F64|F32|F16|BF16)$", tight="down")
    ] = field(default_factory=dict)
    min_nonzero: Annotated[
        int, _decision("sampled elements that a decision takes", "at least", faults.FEW, ge=64, le=65536)
    ] = 256
    min_symbols: Annotated[
        int, _decision("different magnitudes that a decision takes", "at least", faults.FEW_SYMBOLS, ge=2, le=128)
    ] = 6
    one_sign_at_most_share: Annotated[
        float, _decision("of either sign; beyond it nothing is decided", "at most", faults.ONE_SIGN, gt=0.5, lt=1)
    ] = 0.9
    fits_below_bits: Annotated[float, _bits("excess of a reading that fits", "below", faults.NO_FIT)] = 0.5
    fits_not_above_bits: Annotated[float, _bits("excess of a reading that does not", "above", faults.STILL_FITS)] = 1.0
    apart_above_bits: Annotated[
        float, _bits("that a reading which fits is better than the other", "above", faults.NO_BETTER)
    ] = 0.5
    implausible_above_bits: Annotated[float, _bits("excess of both readings", "above", faults.ALMOST, le=16)] = 1.5
    halves_alike_below_bits: Annotated[float, _bits(PAIRS, "below", faults.HALVES_APART, le=None, lt=1)] = 0.3
    random_from_bits: Annotated[
        float, _bits("entropy of halves that are noise, not pairs", "below", faults.HALVES_OF_NOISE)
    ] = 7.7


class Decision(NamedTuple):
    """What one tensor came to, and, where nothing can be decided, why."""

    verdict: str
    why: str = ""


def decide(row: TensorBits, limits: Limits) -> Decision:
    """Return what one tensor's bits say of its label."""
    stored, swapped = row.as_stored, row.byte_swapped
    if stored is None or swapped is None:
        return Decision(UNDECIDED, "all zeros" if row.dtype in READING else CODES)
    fits, turned = stored.excess[READING[row.dtype]], swapped.excess[READING[row.dtype]]
    is_bad = fits > limits.fits_not_above_bits
    if is_bad and turned < limits.fits_below_bits and not _doubt(row, swapped, limits):
        return Decision("byte-swapped")
    doubt = _doubt(row, stored, limits)
    if doubt:
        return Decision(UNDECIDED, doubt)
    divergence, entropy = row.half_divergence, row.half_entropy
    if divergence is None or entropy is None:
        raise ValueError(f"the halves of {row.dtype} words were not looked at")
    if divergence < limits.halves_alike_below_bits and entropy < limits.random_from_bits:
        return Decision("pairs")
    rival = stored.excess[OTHER[row.dtype]] if row.dtype in OTHER else turned
    if row.dtype in OTHER and is_bad and rival < limits.fits_below_bits:
        return Decision("mislabelled")
    if fits < limits.fits_below_bits and rival - fits > limits.apart_above_bits:
        return Decision(OK)
    if fits > limits.implausible_above_bits and rival > limits.implausible_above_bits:
        return Decision("implausible")
    return Decision(UNDECIDED, "like weights under neither reading, or under both")


def _doubt(row: TensorBits, reading: BitReading, limits: Limits) -> str:
    if row.nonzero < limits.min_nonzero:
        return "too few elements"
    if reading.symbols < limits.min_symbols:
        return "too few magnitudes"
    if max(reading.negative, row.nonzero - reading.negative) > limits.one_sign_at_most_share * row.nonzero:
        return "of one sign, as norms are"
    return ""


def judge(evidence: Evidence, limits: Limits) -> Verdict:
    """Return whether enough is decided, and no more of it than allowed against its label."""
    rows = [row for row in rows_of(evidence, "bits", TensorBits) if listed(row.name, limits.tensors)]
    decisions = [decide(row, limits) for row in rows]
    votes: collections.Counter[str] = collections.Counter()  # elements by verdict
    for row, decision in zip(rows, decisions, strict=True):
        votes[decision.verdict] += row.elements
    decided = sum(count for verdict, count in votes.items() if verdict != UNDECIDED)
    refused = WRONG if sum(votes[code] for code in WRONG) > limits.wrong_at_most_share * decided else ()
    if votes["implausible"] > limits.implausible_at_most_share * decided:
        refused = (*refused, "implausible")
    found = [(row, one.verdict) for row, one in zip(rows, decisions, strict=True) if one.verdict in refused]
    found += [(row, "unused-bits") for row in rows if _unused(row, limits)]
    found.sort(key=lambda one: -votes[one[1]])  # the verdict of the most elements first
    looked = [row.name for row, one in zip(rows, decisions, strict=True) if one.verdict != UNDECIDED]
    figures = _figures(rows, decisions, votes)
    if found:
        offences = [Offence(place=row.name, code=code, figures=_seen(row)) for row, code in found]
        return failed(offences, looked=looked, of=len(rows), unit="tensors", figures=figures)
    if not looked:
        return blocked("nothing-decided", figures)
    idle = every_glob_names("names-nothing", "bits", TensorBits, limits.tensors).lacking(evidence)
    if idle:
        return blocked("names-nothing", idle)
    if decided < limits.decided_at_least_share * sum(votes.values()):
        return blocked("too-little-decided", {**figures, "needed_percent": 100 * limits.decided_at_least_share})
    return passed(looked=looked, unit="tensors", figures=figures)


def _unused(row: TensorBits, limits: Limits) -> bool:
    most, unused = limits.trailing_zero_bits_at_most.get(row.dtype), row.trailing_zero_bits
    return most is not None and unused is not None and row.nonzero >= limits.min_nonzero and unused > most


def _seen(row: TensorBits) -> Fields:
    stored = row.as_stored.excess if row.as_stored else {}
    swapped = row.byte_swapped.excess if row.byte_swapped else {}
    reading, other = READING.get(row.dtype, ""), OTHER.get(row.dtype, "")
    columns = ("dtype", "sampled", "half_divergence", "trailing_zero_bits", "mantissa_bits")
    bits = {"fits_bits": stored.get(reading), "other_bits": stored.get(other), "swapped_bits": swapped.get(reading)}
    return {**{name: getattr(row, name) for name in columns}, "other": other, **bits}


def _figures(rows: Sequence[TensorBits], decisions: Sequence[Decision], votes: Mapping[str, int]) -> Fields:
    decided = {verdict: count for verdict, count in sorted(votes.items()) if verdict != UNDECIDED}
    why = collections.Counter(one.why for one in decisions if one.why)
    elements = sum(votes.values())
    precision = collections.Counter(
        f"{row.dtype} with {row.mantissa_bits - row.trailing_zero_bits} of {row.mantissa_bits} bits"
        for row in rows
        if row.trailing_zero_bits is not None and row.mantissa_bits is not None
    )
    return {
        "vote": max(decided, key=lambda verdict: decided[verdict]) if decided else UNDECIDED,
        "tensors": len(rows),
        "decided": len(rows) - sum(why.values()),
        "undecided": sum(why.values()),
        "decided_percent": round(100 * sum(decided.values()) / elements, 2) if elements else 0.0,
        "why": dict(sorted(why.items())),
        "precision": dict(sorted(precision.items())),
    }


def check(limits: Limits, _measure: object) -> list[str]:
    """Return which limits contradict each other."""
    steps = (limits.fits_below_bits, limits.fits_not_above_bits, limits.implausible_above_bits)
    if list(steps) == sorted(steps):
        return []
    return ["fits_below_bits, fits_not_above_bits and implausible_above_bits must rise in this order"]


BLOCKED = ("nothing-decided", "names-nothing", "too-little-decided")
KIND = Kind(
    name="label-plausibility", version=5, roles={"candidate": SubjectKind.CHECKPOINT},
    needs={"bits": Need("tensor_bits", of=("candidate",))}, limits=Limits,
    codes=codes(*WRONG, "implausible", "unused-bits", blocked=BLOCKED), judge=judge, mutations=faults.MUTATIONS,
    check=check,
)  # fmt: skip
