"""The rows of `builtin:diagnostics`: what a script hands over fails where it is bad, and is BLOCKED without."""

from __future__ import annotations

import functools
import json
import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from weighbridge.contract.load import load_contract
from weighbridge.core import Outcome, Severity
from weighbridge.evaluation.verification import VerifyRequest, verify

GATES = load_contract("builtin:diagnostics").contract.gates
ROWS = {"1": 6, "2": 6, "3": 6, "4": 6, "5": 5, "6": 5, "7": 4, "T": 5}
# By row: the column, what is good, and what is bad.
HANDED_OVER: Mapping[str, tuple[str, Sequence[float], Sequence[float]]] = {
    "1.4-BACKWARD": ("gradient_error", (2e-6,), (0.5,)),
    "1.4-SEEN": ("target_seen_share", (0, 0, 0), (0, 0.9, 1)),
    "2.2": ("slice_ppl", (250, 80, 12), (250, 249, 247)),
    "2.4": ("loss_above_floor", (4.1, 0.7, 0.08), (4.1, 2.2, 1.9)),
    "2.5": ("least_head_entropy", (0.99, 0.8, 0.41), (0.9999, 0.9998, 0.9999)),
    "3.1": ("head_entropy_std", (0.00002, 0.0006, 0.0018), (0.00002, 0.00003, 0.00002)),
    "3.2": ("redundant_heads_share", (0.9, 0.3, 0.11), (0.9, 0.8, 0.8)),
    "3.3": ("head_content", (0.01, 0.11, 0.21), (0.011, 0.012, 0.013)),
    "3.5": ("neuron_kurtosis_change", (0.1, 1.2, 3.4), (0.1, 0.2, 0.3)),
    "3.6": ("embedding_cka", (0.999, 0.96, 0.9), (0.999, 0.998, 0.997)),
    "4.5": ("activation_std_ratio", (1.1, 1.3, 1.6), (1.1, 5.2, 117)),
    "4.5-BAND": ("activation_outlier", (1.1, 2.9, 1.6), (1.1, 29.4, 1.6)),
    "4.5-FINITE": ("activations_not_finite", (0, 0, 0), (0, 0, 3)),
    "2.1-LOGITS": ("logits_gain", (-0.05, 1.1, 2.9), (-0.05, 0.02, 0.03)),
    "4.6": ("lr", (1.0e-4, 2.0e-4, 1.5e-4), (1.0e-4, 2.1e-4, 1.5e-4)),
    "4.6-LEAST": ("lr", (1.0e-4, 2.0e-4, 1.5e-4), (1.0e-4, 1.9e-4, 1.5e-4)),
    "5.1": ("val_loss", (3.1, 2.8, 2.6, 2.5, 2.41, 2.4, 2.3), (2.4, 2.1, 2.2, 2.6, 2.9, 3.1, 3.3)),
    "5.2": ("val_loss", (3.1, 2.8, 2.6, 2.5, 2.41, 2.4, 2.3), (2.4, 2.1, 2.2, 2.6, 2.9, 3.1, 3.3)),
    "5.3": ("loss_above_floor", (4.1, 0.7, 0.4), (4.1, 2.2, 1.9)),
    "5.5": ("probe_loss", (4.1, 2.2, 2.3), (4.1, 2.2, 2.5)),
    "6.1": ("val_loss", [2 + 1 / (n + 1) for n in range(50)], [4 - n / 20 + n % 7 / 99 for n in range(50)]),
    "6.1-REPEATS": ("distinct_bigrams", (0.2, 0.6, 0.9), (0.9, 0.3, 0.1)),
    "6.2": ("unseen_ppl", (31.2, 30.1, 29.4), (31.2, 33.3, 39.1)),
    "6.3": ("format_rate", (0.4, 0.8, 0.97), (0.4, 0.41, 0.42)),
    "6.4": ("compliance_rate", (0.4, 0.8, 0.93), (0.3, 0.41, 0.45)),
    "6.5": ("continuation_exact", (0.1, 0.5, 0.95), (0.1, 0.12, 0.2)),
    "7.2": ("probe_loss", (4.1, 2.2, 1.3), (4.1, 4.4, 4.5)),
    "7.3": ("probes_missed", (1.0, 0.6, 0.2), (1.0, 0.2, 0.5)),
    "7.3-500": ("continuation_exact", (0.1, 0.2, 0.35), (0.0, 0.05, 0.05)),
    "7.3-2000": ("continuation_exact", (0.4, 0.6, 0.75), (0.4, 0.45, 0.45)),
    "7.3-5000": ("continuation_exact", (0.7, 0.9, 0.95), (0.7, 0.75, 0.75)),
    "7.4": ("probe_gap", (0.01, 0.1, 0.2), (0.01, 0.4, 0.9)),
    "T4": ("head_entropy", (0.9, 0.7, 0.5), (0.9, 0.3, 0.05)),
    "M2": ("loss_float64", (3.04, 3.03, 3.02), (6.4, 6.3, 6.2)),
    "M2-LEAST": ("loss_float64", (3.04, 3.03, 3.02), (1.4, 1.3, 1.2)),
    "M5": ("spectral_norm", (1.2, 1.4, 3.1), (1.2, 6.4, 60.1)),
    "M6": ("dead_neurons_share", (0.01, 0.02, 0.03), (0.01, 0.4, 0.9)),
    "M6-HEADS": ("dead_heads_share", (0.01, 0.02, 0.04), (0.01, 0.4, 0.75)),
    "M7": ("class_tax", (0.01, 0.7, 0.3), (0.01, 0.9, 1.6)),
    "M9": ("cost_ms", (1.0, 1.1, 1.2), (8.0, 8.1, 8.4)),
}  # fmt: skip


def a_log(folder: Path, cells: Mapping[str, Sequence[float]], begins: int) -> Path:
    """Write a run whose loss falls, from a step on; the last steps have these cells."""
    drawn, rows = random.Random(3), []
    for step in range(begins, begins + 120):
        row = {"step": step, "loss": 5.5 * math.exp(-step / 200) + drawn.gauss(0, 0.02), "tokens": 512}
        rows.append(row | {"grad_norm": drawn.lognormvariate(0, 0.2), "wall_ms": drawn.lognormvariate(2.3, 0.1)})
    for name, values in cells.items():
        for at, value in enumerate(values):
            rows[120 - len(values) + at][name] = value
    path = folder / "run.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


Came = Mapping[str, tuple[Outcome, str]]
Nothing = Callable[[int], Came]


def begins(row: str) -> int:
    """Return the step from which a row looks."""
    band = row.removeprefix("7.3-")
    return int(band) if band.isdigit() else 0


def came_to(folder: Path, rows: Sequence[str], cells: Mapping[str, Sequence[float]], begins: int) -> Came:
    """Return what each row comes to, by its gate, of a log with these cells."""
    request = VerifyRequest(
        contracts=("builtin:diagnostics",),
        subjects=(f"run={a_log(folder, cells, begins)}",),
        gates=tuple(f"GATE-DIAG-{row}" for row in rows),
        evidence=None,
        ledger=folder / "ledger",
    )
    (result,) = verify(request, lambda _text: None)
    findings = {finding.gate: finding.uncounted or finding.verdict for finding in result.evaluation.findings}
    return {gate: (one.outcome, one.code) for gate, one in findings.items()}  # the log does not say that it ended


@pytest.fixture(scope="module")
def nothing_handed_over(tmp_path_factory: pytest.TempPathFactory) -> Nothing:
    """Judge all rows that look from a step on at once, of a log that has none of their columns."""

    @functools.cache
    def judged(step: int) -> Came:
        rows = [row for row in HANDED_OVER if begins(row) == step]
        return came_to(tmp_path_factory.mktemp("nothing"), rows, {}, step)

    return judged


@pytest.mark.parametrize("row", HANDED_OVER)
def test_what_is_handed_over_passes_where_it_is_good_and_fails_where_it_is_bad(row: str, tmp_path: Path) -> None:
    column, good, bad = HANDED_OVER[row]
    others = {"lr": {"lr_declared": (1.0e-4, 2.0e-4, 1.5e-4)}, "loss_float64": {"loss": (3.04, 3.03, 3.02)}}
    beside = others.get(column, {})
    for cells, outcome in ((good, Outcome.PASS), (bad, Outcome.FAIL)):
        ((came, _),) = came_to(tmp_path, [row], {column: cells, **beside}, begins(row)).values()
        assert came is outcome


@pytest.mark.parametrize("row", HANDED_OVER)
def test_what_is_not_handed_over_is_blocked(row: str, nothing_handed_over: Nothing) -> None:
    assert nothing_handed_over(begins(row))[f"GATE-DIAG-{row}"] == (Outcome.BLOCKED, "no-column")


def test_every_row_has_a_gate_and_a_question_and_what_a_script_must_hand_over_is_advice() -> None:
    rows = {match[1] for one in GATES if (match := re.fullmatch(r"GATE-DIAG-([1-7]\.\d|T\d).*", one.id))}
    asked = {f"{phase}.{row}" for phase, count in ROWS.items() if phase != "T" for row in range(1, count + 1)}
    assert rows == asked | {f"T{row}" for row in range(1, 6)}
    assert [one.id for one in GATES if ("?" not in one.title and "And after" not in one.title) or not one.why] == []
    advisory = {one.id.removeprefix("GATE-DIAG-") for one in GATES if one.severity is Severity.ADVISORY}
    assert set(HANDED_OVER) <= advisory


@pytest.mark.parametrize(("row", "beside", "says"), [
    ("3.1", {}, "give the recorder diagnostics=Diagnostics()"),
    ("3.1", {"slice_ppl": (5.0, 4.0)}, "diagnostics.jsonl says why it is absent"),
    ("M7", {"slice_ppl": (5.0, 4.0)}, "give the recorder diagnostics=Diagnostics(classes=…)"),
    ("1.4-BACKWARD", {"slice_ppl": (5.0, 4.0)}, "give the recorder diagnostics=Diagnostics(gradients=True)"),
])  # fmt: skip
def test_a_recorder_that_looked_inside_is_not_asked_to_do_so(
    row: str, beside: Mapping[str, Sequence[float]], says: str, tmp_path: Path
) -> None:
    request = VerifyRequest(
        contracts=("builtin:diagnostics",),
        subjects=(f"run={a_log(tmp_path, beside, begins=0)}",),
        gates=(f"GATE-DIAG-{row}",),
        evidence=None,
        ledger=tmp_path / "ledger",
    )
    (result,) = verify(request, lambda _text: None)
    assert says in str(result.evaluation.measured)
