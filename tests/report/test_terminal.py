"""Findings on a terminal of 80 columns: a PASS in a line, all else in twelve rows, what has one cause together."""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np
import pytest
from safetensors.numpy import save_file
from tests.cli.conftest import Cli, cli
from tests.verifiers.logs_of_others import trainer_state

from weighbridge.cards.words import fill, gate_card
from weighbridge.cli.options import broken
from weighbridge.core import Finding, Json, Offence, Outcome, Severity, Verdict, replace
from weighbridge.core.data import data_path
from weighbridge.core.printable import singular
from weighbridge.gates import KINDS
from weighbridge.report import Row, finding_text
from weighbridge.report.terminal import block, blocks, summary

__all__ = ["cli"]

RUN = data_path("verifiers") / "specimens" / "runs" / "wrapped"


def row(code: str, offences: tuple[Offence, ...] = (), gate: str = "G-ONE", **more: Json) -> Row:
    outcome = Outcome.FAIL if offences else Outcome.BLOCKED
    verdict = Verdict(outcome=outcome, code=code, of=max(len(offences), 1), offences=offences, figures=more)
    finding = Finding(
        gate=gate,
        instance="default",
        kind="value-preservation",
        kind_version=1,
        severity=Severity.REQUIRED,
        facts={},
        verdict=verdict,
    )
    return Row(finding=finding, title="Every tensor is its source's", said=finding_text(finding, {}), file="c", line=9)


def tensors(many: int, alike: bool) -> tuple[Offence, ...]:
    figures: dict[str, Json] = {"source_dtype": "BF16", "held": "bits", "candidate_dtype": "F16", "mechanism": "other"}
    return tuple(
        Offence(
            place=f"model.layers.{index}.self_attn.q_proj.weight",
            code="dtype",
            figures=figures
            | {"elements": 96, "explained": 96 if alike else index}
            | ({} if alike else {"mechanism": f"other {chr(97 + index // 20)}{chr(97 + index % 20)}"}),
        )
        for index in range(many)
    )


def screen(lines: list[str]) -> list[str]:
    return [part for line in lines for part in broken(line, 80)]


def test_a_pass_is_one_line_of_120_characters(cli: Cli, workplace: Path) -> None:
    trainer_state(workplace / "trainer_state.json")
    runs = (("training-run", RUN), ("training-log", "trainer_state.json"), ("pretraining", RUN))
    printed = [line for name, run in runs for line in cli("verify", f"builtin:{name}", "--subject", f"run={run}").lines]
    passes = [line for line in printed if line.startswith("PASS     GATE")]
    assert (len(passes) > 15, max(map(len, passes)) <= 120) == (True, True)
    assert "PASS     GATE-RUN-001  8 of 8 columns in order over 60 steps" in printed


def passed(brief: str, gate: str) -> Row:
    bad = row("dtype", gate=gate)
    verdict = replace(bad.finding.verdict, outcome=Outcome.PASS)
    return replace(bad, finding=replace(bad.finding, verdict=verdict), said=replace(bad.said, brief=(brief,)))


@pytest.mark.parametrize("width", [80, 100, 200])
def test_a_pass_is_one_row_of_a_terminal_and_ends_with_a_clause(width: int) -> None:
    said = "in order: 21 tensors in 1 file, 230016 bytes; the file holds no checksums (of 3 that there may be)"
    (line,) = map(click.unstyle, blocks([passed(said, "GATE-HEALTH-001")], columns=width))
    assert len(line) <= min(width, 120) - 2
    whole = "PASS     GATE-HEALTH-001  in order: 21 tensors in 1 file, 230016 bytes; the file holds no checksums"
    assert line == (f"{whole} …" if width == 200 else f"{whole.partition(';')[0]} …")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if gate_card(kind).briefly])
def test_what_is_said_briefly_is_shorter(kind: str) -> None:
    assert len(gate_card(kind).briefly) < len(gate_card(kind).passes)


def test_what_repeats_is_one_line() -> None:
    lines = block(row("dtype", tensors(53, alike=True)))
    assert lines[1] == (
        "    53 of 53 tensors: wrong dtype (BF16 bits stored as F16); every element explained: other"
        " (53 model.layers.*.self_attn.q_proj.weight)"
    )


@pytest.mark.parametrize("alike", [True, False])
@pytest.mark.parametrize("many", [1, 2, 9, 400])
def test_a_fail_is_twelve_rows_and_says_how_many_more_there_are(many: int, alike: bool) -> None:
    besides = ["meant? the tensors pass with `policy: rounded:F16` in contracts/a-contract-of-mine.yaml:17, so they do"]
    shown = screen(block(row("dtype", tensors(many, alike=alike)), besides))
    assert (len(shown) <= 12, max(map(len, shown)) <= 80) == (True, True)
    listed = sum("wrong dtype" in line for line in shown)
    more = [int(line.split()[0]) for line in shown if "more (--verbose)" in line]
    assert (sum(more[:1]) + listed == many) or alike


def test_what_differs_in_numbers_alone_is_one_line_with_those_of_the_first() -> None:
    offences = tuple(
        replace(one, figures={**one.figures, "explained": at}) for at, one in enumerate(tensors(9, alike=True))
    )
    lines = block(row("dtype", offences))
    assert lines[1] == (
        "    9 of 9 tensors, first model.layers.0.self_attn.q_proj.weight: wrong dtype (BF16 bits stored as F16); "
        "0 of 96 elements explained: other (9 model.layers.*.self_attn.q_proj.weight)"
    )
    assert sum("wrong dtype" in line for line in block(row("dtype", offences), everything=True)) == 9


@pytest.mark.parametrize("many", [1, 9, 400])
def test_what_is_left_out_is_said_once(many: int) -> None:
    besides = ["meant? the tensors pass with `policy: rounded:F16` in contracts/a-contract-of-mine.yaml:17, so they do"]
    lines = block(row("dtype", tensors(many, alike=False)), besides)
    assert sum("more (--verbose)" in line for line in lines) <= 1


def test_the_head_of_the_table_stands_over_its_columns() -> None:
    failing = row("dtype", tensors(1, alike=True))
    verdict = Verdict(outcome=Outcome.PASS, code="pass", of=1)
    passing = replace(failing, finding=replace(failing.finding, verdict=verdict))
    head, failed, passed = [click.unstyle(line) for line in summary([failing, passing])][1:]
    assert [failed.index("G-ONE"), passed.index("1 gates")] == [head.index("gate")] * 2
    assert failed.index("model.") == head.index("found")


@pytest.mark.parametrize(
    ("figures", "printed"),
    [
        ({"candidate_dtype": "Q8_0", "differing": 32}, "BF16 -> Q8_0, but 1 of 256 blocks are not the source's"),
        ({"candidate_dtype": "Q8_0", "differing": 33}, "BF16 -> Q8_0, but 33 of 8192 elements are not the source's"),
        ({"candidate_dtype": "BF16", "differing": 32}, "BF16 -> BF16, but 32 of 8192 elements are not the source's"),
        (
            {"candidate_dtype": "BF16", "differing": 9, "source_dtype": "F32", "packed": "Q8_0"},
            "Q8_0 -> BF16, but 9 of",
        ),
    ],
)
def test_content_is_counted_in_what_can_differ_alone(figures: dict[str, Json], printed: str) -> None:
    figures = {"source_dtype": "BF16", "elements": 8192, "explained": 0, "mechanism": "other", **figures}
    (line,) = row("content", (Offence(place="x", code="content", figures=figures),)).said.lines
    assert line.startswith(f"x: {printed}")


def test_a_type_of_a_file_is_recognised_by_its_name() -> None:
    figures: dict[str, Json] = {"file_type": 32, "made": 7}
    (line,) = row("file-type", (Offence(place="x", code="file-type", figures=figures),)).said.lines
    assert line == "x: the header says that the file is BF16 (32), and the policy makes Q8_0 (7)"


def test_a_part_of_a_card_says_otherwise_where_its_figures_are_nothing() -> None:
    card = "<<{count} checksums agree||the file holds no checksums>>"
    assert [fill(card, {"count": 0}), fill(card, {"count": 2})] == ["the file holds no checksums", "2 checksums agree"]


def test_everything_is_reported_where_it_is_asked_for() -> None:
    lines = block(row("dtype", tensors(53, alike=False)), everything=True)
    assert sum("wrong dtype" in line for line in lines) == 53


def test_a_fail_without_a_known_cause_says_why_its_gate_is_asked() -> None:
    known = replace(row("dtype", tensors(1, alike=True)), why="A label is no dtype.")
    unknown = replace(known, said=replace(known.said, helps=(("look", "there"),)))
    assert "    why it is asked: A label is no dtype." in map(click.unstyle, block(unknown))
    assert not any("why it is asked" in line for line in block(known))


def test_gates_that_are_blocked_by_one_cause_are_one_block() -> None:
    rows = [row("unbound", gate=f"G-{name}", subject="import") for name in ("ONE", "TWO", "SIX")]
    lines = [*blocks([*rows, row("nothing-falsified", gate="G-FIX")])]
    assert [line for line in map(click.unstyle, lines) if line.startswith("BLOCKED")] == [
        "BLOCKED  G-ONE, G-TWO, G-SIX",
        "BLOCKED  G-FIX  Every tensor is its source's",
    ]


def test_gates_that_lack_columns_are_one_block_that_names_them_all(cli: Cli) -> None:
    printed = cli("verify", "builtin:diagnostics", "--subject", f"run={RUN}", "--no-evidence").lines
    assert "    the subjects reference, replay, baseline are not bound" in printed
    lacking = [line for line in printed if line.startswith("    the run logs no columns ")]
    assert lacking[0].startswith("    the run logs no columns target_seen_share, loss_above_floor, ")
    assert not any("advisory), GATE" in line for line in printed)


def test_gates_that_are_not_meant_for_a_run_are_reported_by_cause(cli: Cli) -> None:
    printed = cli("verify", "builtin:training-run", "--subject", f"run={RUN}").lines
    unmeant = [line for line in printed if line.startswith("NOT_APPLICABLE ")]
    assert unmeant[0].startswith("NOT_APPLICABLE 32 gates: GATE-RUN-STEPS, GATE-RUN-SCALE, ")
    assert unmeant[0].endswith(", +29 more (the run has no requested_steps, loss_gradient_scale, own_loss, +27 more)")
    assert "(too few numbers: loss needs 300, grad_norm needs 100, val_loss needs 5, +3 more)" in unmeant[1]
    assert (len(unmeant), len(printed) < 40) == (3, True)  # the third is of the table


def test_a_fail_of_several_samples_says_the_first_and_how_many_beside_the_worst(cli: Cli, workplace: Path) -> None:
    losses = [1.0, 2.0, 5.0, 9.0, 6.0, 1.5]
    log = "".join(f'{{"step":{step},"loss":{loss}}}\n' for step, loss in enumerate(losses))
    (workplace / "log.jsonl").write_text(log)
    gate = "{id: G-LOSS, title: The loss is small, kind: series-bound, subjects: {run: run}, with: {at_most: LIMIT}}"
    head = "weighbridge: contract/v0\nid: small\nversion: 1.0.0\ntitle: The loss is small\nowner: me\n"
    for limit, said in (("4", ["    so first at step 2, and at 3 of 6 samples"]), ("8", [])):
        text = f"{head}subjects: {{run: {{kind: run}}}}\ngates:\n  - {gate.replace('LIMIT', limit)}\n"
        (workplace / "small.yaml").write_text(text)
        printed = cli("verify", "small.yaml", "--subject", "run=log.jsonl", "--no-evidence").lines
        assert any("the worst of 6 samples is 9 at step 3" in line for line in printed)
        assert [line for line in printed if line.startswith("    so first")] == said


def test_a_table_of_80_columns_stands_last_and_names_failures_first(cli: Cli, workplace: Path) -> None:
    save_file({"a": np.arange(4, dtype=np.float32)}, workplace / "a.safetensors")
    save_file({"a": np.arange(1, 5, dtype=np.float32)}, workplace / "b.safetensors")
    ended = cli(
        "verify", "builtin:model-import", "--subject", "source=a.safetensors", "--subject", "import=b.safetensors"
    )
    head, failed, blocked, tally = ended.lines[-4:]
    assert head.split() == ["outcome", "gate", "found"]
    assert (failed.split()[:2], blocked.split()[:2]) == (["FAIL", "GATE-MODEL-001"], ["BLOCKED", "GATE-MODEL-002"])
    assert max(map(len, (head, failed, blocked))) <= 80
    assert tally == "1 failed, 1 blocked of 2 -> exit 1 (failed)"


def test_one_gate_has_no_table() -> None:
    assert not [*summary([row("unbound", subject="import")])]


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("1 of 1 tensors are what was meant", "1 of 1 tensor is what was meant"),
        ("1 samples have nothing", "1 sample has nothing"),
        ("1 samples of loss are too few", "1 sample of loss is too few"),
        ("1 statuses, 1 entries, 1 tallies", "1 status, 1 entry, 1 tally"),
        ("1 of 256 blocks are not, 11 of 12 steps are", "1 of 256 blocks is not, 11 of 12 steps are"),
        ("1 of 10 configuration fields differ", "1 of 10 configuration fields differs"),
        ("0 NaN and 1 infinities; looked at: 1 drafts", "0 NaN and 1 infinity; looked at: 1 draft"),
        ("1 counts, 1 sums, 1 hypotheses, 1 logarithms", "1 count, 1 sum, 1 hypothesis, 1 logarithm"),
        ("1 bundles new; signed, 1 signatures not checked", "1 bundle new; signed, 1 signature not checked"),
        ("1 of 53 tensors, 11 steps, 0.1 steps", "1 of 53 tensors, 11 steps, 0.1 steps"),
    ],
)
def test_one_thing_is_one(text: str, printed: str) -> None:
    assert singular(text) == printed
