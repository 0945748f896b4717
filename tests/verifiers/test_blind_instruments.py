"""Blind each instrument and weigh what passes: a frozen, half-blind or short-sighted one must let no PASS come out.

The blinded instrument stands in the runner's table of verifiers; everything else is as in `weighbridge verify`. It
lies about how much it looked at, so that its canary, its extent and the judge's trials have to notice.
"""

from __future__ import annotations

import dataclasses
import types
from pathlib import Path

import pytest
from tests.verifiers.blinding import ANSWERS, Blinding, columns, events, frozen, of_places, rows, short_sighted, tensors
from tests.verifiers.weighing import CASES, Case, outcome

from weighbridge.core.model import Outcome, SubjectKind
from weighbridge.evaluation import runner
from weighbridge.gates import KINDS
from weighbridge.verifiers import (
    VERIFIERS,
    adapted_values,
    checkpoint_facts,
    corpus_epochs,
    corpus_progress,
    device_evidence,
    digest_formulas,
    forward_errors,
    model_config,
    run_facts,
    step_columns,
    step_series,
    tensor_values,
)
from weighbridge.verifiers.verifier import Verifier

Key = tuple[str, tuple[SubjectKind, ...]]
CONDITIONS = ("facts", "host")  # what `where:` and `requires:` of any gate are compared with


def key_of(case: str) -> Key:
    """Return the verifier of a case, which is called after its quantity, and after its subject where it needs to be."""
    quantity = case.partition(",")[0]
    found = [key for key in VERIFIERS if quantity in (key[0], f"{key[0]}-{'-'.join(key[1])}")]
    return min(found, key=lambda key: len(key[1]))  # without the roles that are optional


KEYS: dict[str, Key] = {case: key_of(case) for case in CASES}


@pytest.fixture
def case(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    if request.param == "forward_errors":
        pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    return CASES[request.param](tmp_path)


def with_instrument(monkeypatch: pytest.MonkeyPatch, key: Key, instrument: Verifier) -> None:
    monkeypatch.setattr(runner, "VERIFIERS", {**VERIFIERS, key: instrument})


def refused(case: Case, folder: Path) -> bool:
    return outcome(case.evaluate(folder))[0] is not Outcome.PASS


def test_every_verifier_that_a_kind_needs_is_blinded() -> None:
    """One that no kind needs yet cannot let a pass come out; the self-test blinds it all the same."""
    needed = {
        (need.quantity, tuple(kind.roles[role] for role in need.of))
        for kind in KINDS.values()
        for need in kind.needs.values()
    }
    assert {key for key in VERIFIERS if key in needed or key[0] in CONDITIONS} == set(KEYS.values())
    assert needed <= set(VERIFIERS)


@pytest.mark.parametrize("case", CASES, indirect=True)
def test_what_is_weighed_passes_with_instruments_that_see(case: Case, tmp_path: Path) -> None:
    assert outcome(case.evaluate(tmp_path)) == (Outcome.PASS, "pass")


# --- Answers and looks that are cut -----------------------------------------------------------------------------------

RECORDS = {"facts-checkpoint", "facts-run", "corpus_progress", "host", "command_outcome"}  # one place each
LOOKS: dict[str, dict[str, Blinding]] = {
    "tensor_values, byte for byte": of_places(tensors, "tensor"),
    "tensor_values, by dtype": of_places(tensors, "tensor"),
    "tensor_values": of_places(tensors, "tensor"),
    "tensor_values, widened": of_places(tensors, "tensor"),
    "moment_changes": of_places(tensors, "tensor"),
    "facts-checkpoint": of_places(tensors, "tensor"),
    "step_columns": of_places(rows, "row") | of_places(columns, "column"),
    "step_series": of_places(rows, "row"),
    "column_agreement-run-run": of_places(rows, "row") | of_places(columns, "column"),
    "corpus_progress": of_places(rows, "row"),
    "corpus_epochs": of_places(rows, "row") | of_places(events, "event"),
    "device_evidence": of_places(events, "event"),
    "digest_formulas": of_places(rows, "row"),
    "facts-run": of_places(rows, "row"),
    "tensor_health": of_places(tensors, "tensor"),
    "tensor_bits": of_places(tensors, "tensor"),
    "tensor_moments": of_places(tensors, "tensor"),
}
BLINDED = [
    (name, how, blinding)
    for name in CASES
    for how, blinding in ({"a constant": frozen} | ({} if name in RECORDS else ANSWERS) | LOOKS.get(name, {})).items()
]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("case", "name", "blinding"),
    [(name, name, blinding) for name, _, blinding in BLINDED],
    indirect=["case"],
    ids=[f"{name}-{how}" for name, how, _ in BLINDED],
)
def test_a_blinded_instrument_lets_no_pass_come_out(
    case: Case, name: str, blinding: Blinding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = VERIFIERS[KEYS[name]]
    with_instrument(monkeypatch, KEYS[name], dataclasses.replace(real, measure=blinding(real.measure), batch=None))
    assert refused(case, tmp_path)


# --- Loops of the source that end after their first turn --------------------------------------------------------------

# Without the host and the command: one place each, whose loops read an installation and drain pipes in threads.
SOURCES: dict[str, tuple[types.ModuleType, tuple[str, ...]]] = {
    "tensor_values, byte for byte": (tensor_values, ("",)),
    "tensor_values, by dtype": (tensor_values, ("", "comparison.value_errors")),
    "tensor_values-checkpoint-checkpoint-checkpoint": (adapted_values, ("", "comparison.adapters")),
    "facts-checkpoint": (checkpoint_facts, ("",)),
    "step_columns": (step_columns, ("",)),
    "step_series": (step_series, ("",)),
    "corpus_progress": (corpus_progress, ("",)),
    "corpus_epochs": (corpus_epochs, ("",)),
    "device_evidence": (device_evidence, ("",)),
    "digest_formulas": (digest_formulas, ("",)),
    "facts-run": (run_facts, ("",)),
    "model_config": (model_config, ("", "model_config.vocabulary:compare")),
    "forward_errors": (forward_errors, ("",)),
}
BESIDE = "only what is reported beside the outcome changes"
ONE = "a promise that is broken once is broken, however often"
UNUSED = "this subject is measured another way"
ABSENT = "a fact that is absent blocks every `where:`"
SAME = "the first answers for all of them here"
FILES_BESIDE = "neither side has further files here; the tests of folders check it"
NEITHER = "both sides have a tokenizer here; the tests check it"
NARROWER = "without a rough run, limits are narrower"
STATED = "one section of this run states what is asked for; the tests of facts check several"
PACKED = "nothing is packed here"
PADDED = "no vocabulary is padded here; the tests of configurations check it"
UNTOUCHED = "the canary does not touch it; the card's specimens and the tests check it"
INEXACT = "read only where a tensor does not follow, which has then failed already"
COUNTED = "what progress counts, and no measurement"
ONE_FORM = "neither side can be padded or decoded here; the tests of reach check it"
PRODUCTS = "no factor is rounded here; the tests of foreign arithmetic check it"
WITNESSED = "no witness saw this run; the tests of what ran check it"
ONE_PAIR = {
    "sizes: for name, one in self.plan.pairings.items()": COUNTED,
    "sizes: for name, parts in pairs": COUNTED,
    "sizes: for part in parts": COUNTED,
    "batch: for at, (_, views) in enumerate(asked):": SAME,
    "batch: for at in range(len(asked))": SAME,
    "batch: for at, rows in zip(jobs, threads.run_jobs(prepared, execution), strict=True):": SAME,
    "batch: for job in jobs.values()": SAME,
    "sizes: for name in self.source.names() if name not in used": "every tensor of the source is used here",
    "_by_name: for part in pairing.parts": "every tensor is made of one here",
    "_by_name: for tensor in old": "every tensor is made of one here",
    "_by_name: for tensor in old #2": "every tensor is made of one here",
    "_packed: for weight in packed": PACKED,
    "_packed: for weight in packed #2": PACKED,
    "_unpacked: for part in pairing.parts:": PACKED,
    "_by_codes: for rows in unpacked_view.row_stretches(aligned, rule):": PACKED,
    "_by_own_keys: for one in names": PACKED,
    "_by_own_keys: for weight in packed": PACKED,
    "_by_own_keys: for weight in packed #2": PACKED,
    "_by_own_keys: for weight in packed #3": PACKED,
    "pair: for one in candidate.packed.values()": PACKED,
    "_of_old_rows: for _, new in longer if view.tensor(new.name) != new": PADDED,
    "_of_old_rows: for fields in stated if 'vocab_size' in fields": PADDED,
    "_of_old_rows: for name in cut": PADDED,
    "_of_old_rows: for one in plan.pairings.values() if one.plain and one.shape": PADDED,
    "_of_old_rows: for one, new in longer if not packed_weight(candidate, new.name)": PADDED,
    "_of_old_rows: for one, new in longer if sizes == [one.shape[0], new.shape[0]]": PADDED,
    "_of_old_rows: for one, new in pairs if new.shape[1:] == one.shape[1:] and new.shape[:1] > one.shape[:1]": PADDED,
    "_of_old_rows: for view in (source, candidate) if longer": PADDED,
}
HARMLESS: dict[str, dict[str, str]] = {
    "tensor_values, byte for byte": {**ONE_PAIR},
    "tensor_values, by dtype": {
        **ONE_PAIR,
        "count: for at, stored, predicted, there in walk.unequal():": ONE,
        "explains_back: for _, stored, there in aligned.steps():": INEXACT,
        "scaled: for _, stored, there in aligned.steps():": INEXACT,
        "reproduced: for _, stored, there in aligned.steps() if tried else ():": INEXACT,
        "reproduced: for name, predict in tried.items():": INEXACT,
        "errors: for stored, there in _bites(aligned):": INEXACT,
        "_bites: for _, stored, there in aligned.steps():": INEXACT,
        "_bites: for at in range(0, elements, BITE):": INEXACT,
        "add_words: for side, one in enumerate((predicted, words)):": INEXACT,
        "_mixed: for shift, factor in ((30, 13787848793156543929), (27, 10723151780598845931)):": INEXACT,
        "_difference: for block in (was, found)": INEXACT,
        "_difference: for i in range(size) if was[i] != found[i]": INEXACT,
        "unequal: for at, *both in bytewise.unequal(*sides, size):": UNUSED,
        "unequal: for side in both": UNUSED,
    },
    "tensor_values-checkpoint-checkpoint-checkpoint": {"batch: for job in asked": SAME},
    "facts-checkpoint": {
        "measure: for key, name in REPORTED.items() if metadata.get(key) is not None": ABSENT,
        "measure: for name, value in claimed.items()": ABSENT,
        "measure: for tensor in tensors #2": SAME,
        "measure: for part in tensor.stored": "every tensor is in one piece here; the tests of pieces check it",
    },
    "step_columns": {
        "_are_whole_passes: for event in view.events if event.get('event') == 'wrap' and type((step := "
        "event.get(STEP))) is int": "a wrap that is not seen makes a position that stands still a placeholder",
        "_windowed: for end in window": UNUSED,
        "_windowed: for row, step in enumerate(steps.values) if steps.state[row] and first <= step <= last": UNUSED,
    },
    "step_series": {},
    "corpus_progress": {
        "_passed_over: for was, now, taken in rows": "every batch has the declared tokens here; the card has others",
        "measure: for claim in token_claims(view)": SAME,
        "measure: for _ in failures(view, 'loss', 'tokens', 'corpus_position', 'wraps', 'wall_ms')": ONE,
        "_speed: for name, column in timed.items() if bool((column.known & (column.values > 0)).all())": SAME,
        "announced_steps: for event in view.events if event.get('event') == 'end'": UNTOUCHED,
        "announced_steps: for steps in reversed(ends) if type(steps) is int": UNTOUCHED,
        "_coverage: for name in (name for name in full if name in columns):": "this run logs one of these columns",
    },
    "corpus_epochs": {
        "_by_tokens: for row, more in enumerate(tokens):": UNUSED,
        "_sort_in: for item in begun if item.step <= wrap": BESIDE,
        "_sort_in: for item in begun[1:] if abs(wrap - item.step) <= item.slack": UNTOUCHED,
        "measure: for item in begun[1:]": "a table of epochs and one of their ends that differ in length raise",
    },
    "digest_formulas": {
        "_beside: for name in names if name in view.cells": "this log has the first of them",
        "_formulas: for name, number in numbers": BESIDE,
    },
    "device_evidence": {
        "_probe: for device, ops in named.items() if isinstance(ops, Mapping)": BESIDE,
        "_probe: for name, reason in why.items()": BESIDE,
        "_of_run: for _ in failures(view, DEVICE)": UNTOUCHED,
    },
    "facts-run": {
        "measure: for name, section in REPORTED.items()": ABSENT,
        "measure: for name, value in found.items() if value is not None and value != ''": ABSENT,
        "_tokens_per_step: for other in claims[1:] if other.value != claims[0].value": ONE,
        "_stated: for part in sections if isinstance(part.get(name), (str, int, float))": STATED,
        "_stated: for part in view.facts.values() if isinstance(part, Mapping)": STATED,
        "_stated: for value in others": STATED,
        "_stated: for value in said[1:] if (type(value), value) != (type(said[0]), said[0])": STATED,
        "_stated: for value in values if not isinstance(value, float) or math.isfinite(value)": STATED,
        "measure: for fact in _stated(view, name)": STATED,
        "measure: for name in named if name not in noted": STATED,
        "measure: for one in seen": WITNESSED,
        "_executable: for one in (*before, view.facts.get(EXECUTABLE, last)) if one != last": WITNESSED,
        "_executable: for one in view.witness.segments": WITNESSED,
        "_executable: for other in others": WITNESSED,
        "_of_ranks: for fact in rows_of(one, Fact):": "these are no ranks; the tests of ranks check them",
        "_of_ranks: for one in each": "these are no ranks; the tests of ranks check them",
        "_of_ranks: for rank, one in enumerate(each):": "these are no ranks; the tests of ranks check them",
        "measure: for rank in view.ranks": "these are no ranks; the tests of ranks check them",
        "measure: for fact in _there(view, name, known)": ABSENT,
        "measure: for fact in facts": ABSENT,
        "measure: for name in named": ABSENT,
    },
    "model_config": {
        "_lacking: for side, what in ((source, 'source'), (candidate, 'import')):": NEITHER,
        "_list: for side in (source, candidate):": "the source's vocabulary is of no kind without merges",
        "_field: for side in (one, other)": BESIDE,
        "_field: for value, read in side.also if value != side.value": BESIDE,
        "_following: for pair in side.also if pair[1] != read": BESIDE,
        "_list: for side in (candidate, source) if side.model.form == GGUF": SAME,
        "_keys: for file in files if 'processor_config' in file": FILES_BESIDE,
        "_keys: for name in side.beside or ()": FILES_BESIDE,
        "_keys: for side, stated in zip((one, other), keys, strict=True):": FILES_BESIDE,
        "measure: for name in side.keys": "both sides state sizes here; the tests of configurations check it",
        "measure: for side in sides": "both sides state sizes here; the tests of configurations check it",
        "_row: for side in (one, other)": "what nobody states stays unstated here",
        "compare_pieces: for piece, stored in _written(candidate, file, kind)": UNUSED,
    },
    "forward_errors": {
        "_passes: for one in theirs[point].made_from": UNTOUCHED,
        "_passes: for point in odd": UNTOUCHED,
        "_passes: for one in own": ONE_FORM,
        (
            "_passes: for point, step in ours.items() if not (whole or settled) and (not once or point not in other)"
        ): ONE_FORM,
        "forms_of: for name in facts.order": ONE_FORM,
        "forms_of: for one in sides": ONE_FORM,
        "forms_of: for one in sides #2": ONE_FORM,
        "_larger: for error in errors if error is not None": NARROWER,
        "_larger: for side in (one, other)": NARROWER,
        "_rougher: for point, error in rough.items()": NARROWER,
        "_rougher: for point, step in steps.items()": NARROWER,
        "_rougher: for point, step in theirs.items():": NARROWER,
        "_rougher: for error, known, floor in pairs": NARROWER,
        "_rougher: for error, limit in limits": NARROWER,
        "_passes: for point, step in ours.items()": UNUSED,
        "_passes: for point, step in theirs.items() if suspicious(step.distance, ours[point].distance)": UNTOUCHED,
        "both_runs: for row in tokens": UNTOUCHED,
        "both_runs: for side in (stack.tokens, theirs) if side": UNTOUCHED,
        "_passes: for one, of in both": UNTOUCHED,
        "_passes: for point, step in theirs.items()": "errors end to end, which fail nothing alone",
        "_products: for point in odd[:LOOKED_AT] if found.facts.dtype == 'float32' else ():": PRODUCTS,
        "_products: for point, error in errors.items() if grave * least[point] < error < ASTRAY": PRODUCTS,
        "_products: for point, step in passes.theirs.items()": PRODUCTS,
        "_run: for name, whether in saw.items() if whether is wanted": "what inputs reach; its own tests check it",
        "_run: for name in both if ours[name] != theirs[name]": ONE,
        "_run: for row in tokens": UNTOUCHED,
    },
}


@pytest.mark.exhaustive
@pytest.mark.parametrize(("case", "name"), [(name, name) for name in SOURCES], indirect=["case"])
def test_an_instrument_that_stops_after_its_first_turn_lets_no_pass_come_out(
    case: Case, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, helpers = SOURCES[name]
    through = set()
    for helper in helpers:
        for what, instrument in short_sighted(module, helper):
            with_instrument(monkeypatch, KEYS[name], instrument)
            if not refused(case, tmp_path):
                through.add(what)
    new, gone = sorted(through - set(HARMLESS[name])), sorted(set(HARMLESS[name]) - through)
    assert (new, gone) == ([], []), "\n".join((*new, "gone:", *gone))
