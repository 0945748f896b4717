"""Weaken one clause of each judge at a time: on some example of the kind's card the pass must not get through.

What is left out stands here by name, with the reason why no pass can come of it. The list is exact: a mutant that is
noticed may not stand in it, and one that is gone may not either.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from tests.gates.mutation import called_by_judge, mutants, unnoticed, unweakened
from tests.gates.runs import passing

from weighbridge import card_checks
from weighbridge.cards import gate_card
from weighbridge.clauses import column_basis, mechanisms
from weighbridge.clauses.kind import Kind
from weighbridge.gates import (
    KINDS,
    byte_identity,
    config_agreement,
    corpus_wrap_around,
    device_refusal,
    dtype_preservation,
    forward_parity,
    label_plausibility,
    no_silent_cpu_fallback,
    step_metrics,
    tensor_coverage,
    tensor_statistics,
    value_preservation,
    wall_time_budget,
)

MODULES: Mapping[str, types.ModuleType] = {
    "byte-identity": byte_identity,
    "config-agreement": config_agreement,
    "corpus-wrap-around": corpus_wrap_around,
    "device-refusal": device_refusal,
    "dtype-preservation": dtype_preservation,
    "forward-parity": forward_parity,
    "label-plausibility": label_plausibility,
    "no-silent-cpu-fallback": no_silent_cpu_fallback,
    "step-metrics": step_metrics,
    "tensor-coverage": tensor_coverage,
    "tensor-statistics": tensor_statistics,
    "value-preservation": value_preservation,
    "wall-time-budget": wall_time_budget,
}
BASIS = (column_basis, called_by_judge(column_basis, ["basis_of"]))
SHARED: Mapping[str, tuple[types.ModuleType, list[str]]] = {
    "byte-identity": (dtype_preservation, ["listed"]),
    "step-metrics": BASIS,
    "wall-time-budget": BASIS,
}

# Called when the outcome is decided: they choose figures and words.
TELLING: Mapping[str, set[str]] = {
    "byte-identity": {"_offence", "_size"},
    "config-agreement": {"_figures", "_two_sided", "_offences", "_told", "_lacking"},
    "corpus-wrap-around": {"_figures"},
    "device-refusal": {"_last_line"},
    "dtype-preservation": {"_not_compared", "_figures", "_summary"},
    "forward-parity": {"_over", "_within", "_share", "_setting", "_asked", "_figures", "detectable"},
    "label-plausibility": {"_offence", "_figures", "_precision", "_unread"},
    "no-silent-cpu-fallback": {"_offence", "_stray_ops", "_summary"},
    "step-metrics": {"_told", "_words"},
    "tensor-coverage": {"_figures"},
    "tensor-statistics": {"_figures", "_offence"},
    "value-preservation": {"_not_compared", "_offences", "_figures", "_explanation", "_summary"},
    "wall-time-budget": {"_figures", "_slowest"},
}

WORDS = "only figures or words change"
LOOKED = "it says that it looked at fewer places, and judges all of them as before"
SAME = "the same for every measurement that there can be"
RAISES = "what is of another type raises, and a judge that raises passes nothing"
NOT_GREENER = "another outcome than PASS in place of another"

NO_EQUAL_MARGIN = "no float lies at exactly this distance, so < and <= are the same"
NO_RANK_TWICE = "ranks that differ are not equal"
NEVER_CROSSED = "a least value is never above a greatest"
MARGIN = "abs(_number(row['range_over_std']) - UNIFORM_RANGE) <= RANGE_MARGIN"
HOLDS = (
    "over >= RELATED_SAMPLES and over >= MIN_SHARE * _number(row['finite']) and (deviation <= MAX_DEVIATION) "
    "and (deviation * MIN_CONTRAST <= _number(row['relative_spread']))"
)
IN_BASIS = {
    "basis_of: GtE: row['min'] == row['max']": NEVER_CROSSED,
    f"is_noise: Lt: {MARGIN}": NO_EQUAL_MARGIN,
    "_comes_first: LtE: _rank(partner) < _rank(column)": NO_RANK_TWICE,
}
TOO_FEW_FOR_NOISE = "so few samples are never called noise, so a formula is told or not, and passes all the same"
WHOLE_ELEMENTS = "elements are counted whole, and a share of them does not lie so near to the limit"
LAST_OF_ALL = "every other verdict sorts before undecided"
CPU_COMES_FIRST = "no device that a run can ask for sorts before cpu"


def shown(*limits: str) -> dict[str, str]:
    """Name limits, as `function: limit`, that are read there to be told, not to be held against anything."""
    split = (limit.split(": ") for limit in limits)
    return {f"{function}: a little {way}: {limit}": WORDS for function, limit in split for way in ("more", "less")}


HARMLESS: Mapping[str, Mapping[str, str]] = {
    "byte-identity": {},
    "config-agreement": {
        "judge: first only: for row in rows": LOOKED,
        "judge: last only: for row in rows": LOOKED,
        "judge: first only: for row, _ in broken": WORDS,
        "judge: last only: for row, _ in broken": WORDS,
    },
    "corpus-wrap-around": {
        "judge: never: if code and placeholders:": NOT_GREENER,
        "judge: without operand 0: code and placeholders": WORDS,
        "judge: never: ['speed'] if limits.min_step_share is not None else []": WORDS,
        "judge: always: ['speed'] if limits.min_step_share is not None else []": WORDS,
        "judge: Is: limits.min_step_share is not None": WORDS,
        "judge: without *speed: ['loss', *speed, 'tokens', 'coverage', *(str(row['pass']) for row in passes)]": WORDS,
        "judge: without *(str(row['pass']) for row in passes): "
        "['loss', *speed, 'tokens', 'coverage', *(str(row['pass']) for row in passes)]": LOOKED,
        "judge: first only: for row in passes": LOOKED,
        "judge: last only: for row in passes": LOOKED,
        "judge: the other sign: len(passes) - 1": WORDS,
        "judge: first only: for key in told": WORDS,
        "judge: last only: for key in told": WORDS,
        "_tokens: first only: for key in kept": WORDS,
        "_tokens: last only: for key in kept": WORDS,
        "_passes: first only: for code in _pass(row, progress, limits):": WORDS,
        "_passes: last only: for code in _pass(row, progress, limits):": WORDS,
        **{
            f"_passes: {what}: for key, value in _figures(passes=passes, progress=progress).items() "
            "if key in _SHARED": WORDS
            for what in ("without its filter", "first only", "last only")
        },
        "_passes: NotIn: key in _SHARED": WORDS,
        "_number: always: value if isinstance(value, (int, float)) else math.nan": RAISES,
        "_list: without its filter: for item in items if isinstance(item, Mapping)": RAISES,
        **shown("_speed: limits.min_step_share #3"),
    },
    "device-refusal": {
        "judge: without *(['leftovers'] if limits.leaves_no else []): "
        "['exit', 'time', 'output', *(['leftovers'] if limits.leaves_no else [])]": WORDS,
        "judge: never: ['leftovers'] if limits.leaves_no else []": WORDS,
        "judge: always: ['leftovers'] if limits.leaves_no else []": WORDS,
        "_offences: without operand 0: code is not None and (not _refuses(code, limits))": NOT_GREENER,
        "_offences: first only: for item in left": WORDS,
        "_offences: last only: for item in left": WORDS,
        "_left: without its filter: for item in left if isinstance(item, Mapping)": RAISES,
        "_refuses: without operand 0: isinstance(code, int) and code > 0 "
        "and (_wanted(limits) in (NONZERO, code))": RAISES,
        "_refuses: GtE: code > 0": "an exit code of 0 has already failed",
        "_wanted: always: limits.exit if isinstance(limits.exit, int) else NONZERO": SAME,
        **shown("judge: limits.within_s", "_offences: limits.within_s #2"),
    },
    "dtype-preservation": {
        "_offences: without its filter: for row, code in codes if code in EXPLAINED": WORDS,
        "accepts: LtE: limits.policy == 'lossless'": "there are two policies, and same sorts after lossless",
    },
    "forward-parity": {
        "judge: without *_absent(rows, limits): [*map(_place, rows), *_absent(rows, limits)]": WORDS,
        "_number: always: float(value) if isinstance(value, (int, float)) else math.nan": RAISES,
        "_doubt: Gt: row['nonfinite_reference'] != 0": SAME,
        "_code: Gt: row['nonfinite_candidate'] != 0": SAME,
        "_code: LtE: row['truth_norm'] == 0": SAME,
        "_code: LtE: row['candidate_error'] == 0": SAME,
        **shown("judge: limits.min_points", "_unclear: limits.min_points #2"),
    },
    "label-plausibility": {
        "judge: Lt: decision.verdict != UNDECIDED": LAST_OF_ALL,
        "_refused: Lt: verdict != UNDECIDED": LAST_OF_ALL,
        "_refused: without *refused: (*refused, 'implausible')": NOT_GREENER,
        "_refused: a little more: limits.implausible_at_most_share": WHOLE_ELEMENTS,
        "_refused: a little more: limits.wrong_at_most_share": WHOLE_ELEMENTS,
        "_doubt: a little more: limits.one_sign_at_most_share": WHOLE_ELEMENTS,
    },
    "no-silent-cpu-fallback": {
        "judge: first only: for row in rows": LOOKED,
        "judge: last only: for row in rows": LOOKED,
        "judge: the other sign: len(rows) - len(unseen)": WORDS,
        "target: LtE: row['requested'] == AUTO": "no device that a run can ask for sorts before auto",
        "_witnesses: without its filter: for witness in witnesses if isinstance(witness, Mapping)": RAISES,
        "_confirms: without operand 0: isinstance(used, (int, float)) and used >= limits.min_device_memory_mib": RAISES,
        "_files_confirm: LtE: wanted == CPU": CPU_COMES_FIRST,
        "needed_bytes: a little less: limits.min_device_memory_mib": "memory is counted in whole bytes",
        **shown("_unseen: limits.external_witnesses #2"),
    },
    "step-metrics": {
        "judge: never: _count(steps, 'steps') if steps else 0": WORDS,
        "judge: never: str(row['column']) if row else name": WORDS,
        "judge: first only: for name, row in required.items()": WORDS,
        "judge: last only: for name, row in required.items()": WORDS,
        "judge: without *named: [STEP, *named, *rows]": WORDS,
        "judge: without *rows: [STEP, *named, *rows]": LOOKED,
        "_cells: first only: for key in ('rows', 'steps_missing', 'unreadable', 'nan', 'infinite')": WORDS,
        "_cells: last only: for key in ('rows', 'steps_missing', 'unreadable', 'nan', 'infinite')": WORDS,
        "_basis: first only: for key in (*statistics, 'range_over_std', 'first_step') if key in row": WORDS,
        "_basis: last only: for key in (*statistics, 'range_over_std', 'first_step') if key in row": WORDS,
        "_basis: without *statistics: (*statistics, 'range_over_std', 'first_step')": WORDS,
        f"_holds: without operand 0: {HOLDS}": TOO_FEW_FOR_NOISE,
        "_holds: Gt: over >= RELATED_SAMPLES": TOO_FEW_FOR_NOISE,
        **IN_BASIS,
        **shown("judge: limits.min_steps #2", "_rate: limits.rate_tolerance"),
    },
    "tensor-coverage": {
        "judge: In: name not in rows": WORDS,
        "judge: first only: for name in names #2": WORDS,
        "judge: last only: for name in names #2": WORDS,
    },
    "tensor-statistics": {
        "judge: first only: for offence in _broken(row, bound)": NOT_GREENER,
        "judge: last only: for offence in _broken(row, bound)": NOT_GREENER,
        "judge: first only: for row, _ in named": LOOKED,
        "judge: last only: for row, _ in named": LOOKED,
    },
    "value-preservation": {
        "class_of: always: Class.VALUE_EQUAL if _widened(row) else Class.ROUNDED_EXACT": WORDS,
        "_inexact: never: if row['same_values']:": WORDS,
        "_code: without operand 0: found is Class.DIFFERENT and row['source_shape'] != row['candidate_shape']": SAME,
        "needed: Lt: verb != 'same'": "every other word sorts before same",
        "needed: GtE: verb == 'requant'": "no word from requant on has a block type as its target",
        "_rounding_meant: GtE: verb == 'rounded'": "no word from rounded on has another target",
        "_rounding_meant: Gt: last_dimension(row) % BLOCK[MIXTURES[target]] != 0": SAME,
    },
    "wall-time-budget": {
        "judge: first only: for value in values": WORDS,
        "judge: last only: for value in values": WORDS,
        "judge: Gt: value >= least": WORDS,
        "judge: the other sign: len(values) - over": WORDS,
        "_inside: never: if all(map(operator.le, series.step, itertools.islice(series.step, 1, None))):": SAME,
        "_take: never: if isinstance(indices, range):": SAME,
        "_samples: GtE: min(values) == max(values)": NEVER_CROSSED,
        **IN_BASIS,
        **shown("judge: limits.budget", "judge: limits.least_excess #2", "_samples: limits.needed"),
    },
}


def weakened(kind: str) -> Iterator[tuple[str, Kind[Any]]]:
    module = MODULES[kind]
    yield from mutants(module, [name for name in called_by_judge(module) if name not in TELLING[kind]])
    if kind in SHARED:
        of, functions = SHARED[kind]
        yield from mutants(module, functions, of)


def noticed_by_selftest(name: str, kind: Kind[Any], monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr(card_checks, "KINDS", {**KINDS, name: kind})
    try:
        return any(check.wrong for check in card_checks.check_gate_card(gate_card(name)))
    except Exception:
        return True


def test_every_kind_is_weakened() -> None:
    assert set(MODULES) == set(TELLING) == set(HARMLESS) == set(KINDS)


@pytest.mark.parametrize("kind", MODULES)
def test_a_judge_that_is_loaded_unchanged_gets_through(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    same = unweakened(MODULES[kind])
    assert unnoticed(same, list(passing(kind).values()))
    assert not noticed_by_selftest(kind, same, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("kind", MODULES)
def test_no_clause_of_a_judge_can_be_weakened_unnoticed(kind: str) -> None:
    examples = list(passing(kind).values())
    assert {name for name, mutant in weakened(kind) if unnoticed(mutant, examples)} == set(HARMLESS[kind])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["corpus-wrap-around", "device-refusal"])
def test_the_self_test_notices_what_makes_another_failure_of_a_failure(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    turned = {name: mutant for name, mutant in weakened(kind) if HARMLESS[kind].get(name) is NOT_GREENER}
    assert turned
    assert [name for name, mutant in turned.items() if not noticed_by_selftest(kind, mutant, monkeypatch)] == []


@pytest.mark.slow
def test_the_self_test_notices_a_mechanism_that_explains_less_than_it_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    found = mutants(dtype_preservation, ["mechanism"], mechanisms)
    kind = "dtype-preservation"
    assert [name for name, mutant in found if not noticed_by_selftest(kind, mutant, monkeypatch)] == []
