"""Units of logged columns, and their factors to what standard names promise; contradictions are refused."""

import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from weighbridge.core import SubjectError, data

DECIMAL = {"kB": 1e3 / 2**20, "KB": 1e3 / 2**20, "MB": 1e6 / 2**20, "GB": 1e9 / 2**20}  # in MiB
SCALES: Mapping[str, Mapping[str, float]] = {
    "time": {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3, "min": 6e4, "h": 3.6e6},
    "rate": {"1/s": 1.0, "tok/s": 1.0, "1/ms": 1e3},
    "share": {"%": 1.0, "1": 100.0},
    "memory": {"B": 2.0**-20, "KiB": 2.0**-10, "MiB": 1.0, "GiB": 2.0**10, **DECIMAL},
}
SAME = {unit: f"{kind} {size}" for kind, scale in SCALES.items() for unit, size in scale.items()}  # two spellings
PROMISED = {"_ms": "ms", "_pct": "%", "_per_sec": "1/s", "_mib": "MiB"}
SUFFIXES: Mapping[str, str] = PROMISED | data.table("run_logs/endings")
# So many a second, not seconds: `tok_s`, `tokens_per_s`, `it/s`.
RATE = re.compile(
    r"(.*[_/.])?(tok|toks|tokens?|samples?|it|its|iters?|steps?|imgs?|images?|examples?|seqs?|words?|frames?|t?flops?|per)"
    r"[_/](s|sec)"
)
DATE = "date"
# Standard columns that are plain numbers: 3 % of a loss, or a day, is none.
PLAIN = frozenset({"step", "loss", "lr", "grad_norm", "tokens", "tokens_seen", "epoch", "wraps", "corpus_position"})


def named_unit(name: str) -> str:
    """Return the unit that a column's name ends in, or none; the endings of rates and of times look alike."""
    if RATE.fullmatch(name.lower()):
        return "1/s"
    return next((unit for ending, unit in SUFFIXES.items() if name.lower().endswith(ending) and name != ending), "")


def promised_unit(standard: str) -> str:
    """Return the unit that a standard name promises, or none."""
    return next((unit for ending, unit in PROMISED.items() if standard.endswith(ending)), "")


def factor(standard: str, logged: str, declared: str, said: AbstractSet[str], *, mapped: bool, where: str) -> float:
    """Return what a logged number is multiplied by for its standard name's unit; refuse contradictions with `unit`.

    `said` are the units in header and cells, "" where some say none; `mapped`: the contract gave the column this name.
    """
    promised, named = promised_unit(standard), named_unit(logged)
    inside = said - {"", DATE}
    if len(inside) > 1 or (inside and "" in said):
        listed = ", ".join(sorted(one or "none" for one in said))
        raise _refused(where, logged, f"its cells are of several units: {listed}", "log it in one unit")
    units = {one for one in (*inside, declared, named) if one}
    if (promised or declared) and len({SAME.get(one, one) for one in units}) > 1:
        what = f"{' and '.join(sorted(units))} contradict each other"
        raise _refused(where, logged, what, "declare the unit that it has, and name it so")
    unit = declared or next(iter(inside), "") or named
    if not promised or not (unit or mapped):
        return 1.0
    if not unit:
        what = f"{standard} is in {promised}, and nothing tells the unit of {logged!r}"
        raise _refused(where, logged, what, f"declare it: {standard}: {{from: {logged}, unit: …}}")
    scale = next((scale for scale in SCALES.values() if promised in scale), {})
    if unit not in scale:
        what = f"{standard} is in {promised}, and {unit} is none of {', '.join(scale)}"
        raise _refused(where, logged, what, "map another")
    if scale[unit] != scale[promised] and not declared:
        what = f"{standard} is in {promised}, and {logged!r} in {unit}"
        raise _refused(where, logged, what, f"declare it: {standard}: {{from: {logged}, unit: {unit}}}")
    return scale[unit] / scale[promised]


def _refused(where: str, logged: str, what: str, remedy: str) -> SubjectError:
    return SubjectError("unit", f"the column {logged[:60]!r}: {what}", where=where, remedy=remedy)
