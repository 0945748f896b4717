"""What stops a run at a row is what the whole judge says from that row on, of all rows so far."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.watch.logs import HEAD, Writer, judges, rows, written

from weighbridge.core import Outcome, Verdict

KINDS = {
    "METRICS": "- {id: METRICS, title: a, kind: step-metrics, subjects: {run: run}, with: {required: [loss, lr], "
    "allow_constant: ['*']}}",
    "CORPUS": "- {id: CORPUS, title: c, kind: corpus-wrap-around, subjects: {run: run}, with: {min_step_share: null}}",
    "STEPS": "- {id: STEPS, title: s, kind: steps-asked, subjects: {run: run}, where: {as_logged: true}}",
}
LAG = {"unlogged": 2}  # rows, for which its event may yet come
HEADS = HEAD | {"requested_steps": 36, "data": {"seq_len": 64, "batch_size": 8, "corpus_tokens": 512 * 12}}


def drawn(draw: random.Random) -> Iterator[dict[str, Any]]:
    """Yield a log of some 40 rows with what breaks a run, or does not: numbers that are none, and the odd step."""
    broken, what = draw.randrange(44), draw.choice(("nan", "infinite", "half", "lr", "twice", "back", "none", "none"))
    for row in rows(draw.randint(30, 42), corpus=512 * draw.choice((12, 12, 14))):
        if row["step"] == broken:
            if what == "none":
                continue
            changed = {
                "nan": {"loss": math.nan}, "infinite": {"loss": math.inf}, "half": {"step": row["step"] + 0.5},
                "lr": {"lr": -math.inf}, "twice": {"loss": 2.5}, "back": {"val_loss": math.nan},
            }[what]  # fmt: skip
            yield {**row, **changed}
        else:
            yield row


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[pytest.mark.exhaustive] * (seed >= 4)) for seed in range(10)]
)
@pytest.mark.parametrize("gate", KINDS)
def test_a_drawn_run_is_stopped_where_its_whole_judge_first_fails_for_good(
    tmp_path: Path, gate: str, seed: int
) -> None:
    draw = random.Random(f"{gate} {seed}")
    logged = draw.random() < 0.5
    log = list(drawn(draw))
    of, writer = judges(tmp_path, tmp_path / "run", KINDS[gate]), Writer(tmp_path / "run", HEADS)
    if not logged:
        writer.event = lambda event: None  # type: ignore[method-assign]
    found = written(of, writer, log)
    assert of.unconfirmed == []
    (watch,) = of.gates
    for row in [row for row in log if found and row["step"] > found[0]]:
        writer.row(row)
    assert watch.run is not None
    watch.run.look()
    whole = watch.run.view()
    said = [watch.whole(whole.first(count)).verdict for count in range(1, whole.rows + 1)]
    assert watch.tripwire is not None
    codes = set(watch.tripwire.codes)
    lasting = [count for count in range(len(said)) if _lasts(said[count:], codes)]
    if found is None:
        assert not lasting or min(lasting) >= len(log) - max(LAG.values())
    else:
        at = [row["step"] for row in log].index(found[0])
        assert lasting
        assert min(lasting) <= at <= min(lasting) + LAG.get(found[1].code, 0)


def _lasts(said: Sequence[Verdict], codes: set[str]) -> bool:
    """Return whether the first of these verdicts is a FAIL that no later one takes back; BLOCKED takes nothing back."""
    fails = [
        codes & {one.code for one in verdict.offences} for verdict in said if verdict.outcome is not Outcome.BLOCKED
    ]
    return said[0].outcome is Outcome.FAIL and bool(set.intersection(*fails))


def test_the_drawn_runs_are_of_both_kinds(tmp_path: Path) -> None:
    ends = set()
    for gate, text in KINDS.items():
        for seed in range(10):
            draw = random.Random(f"{gate} {seed}")
            logged, log = draw.random() < 0.5, list(drawn(draw))
            folder = tmp_path / f"{gate}-{seed}"
            folder.mkdir()
            writer = Writer(folder / "run", HEADS)
            if not logged:
                writer.event = lambda event: None  # type: ignore[method-assign]
            found = written(judges(folder, folder / "run", text), writer, log)
            ends.add((gate, found and found[1].code))
    assert ends >= {("METRICS", None), ("METRICS", "non-finite"), ("CORPUS", "unlogged"), ("CORPUS", None)}
    assert {("STEPS", None), ("STEPS", "other-steps"), ("METRICS", "fractional-steps"), ("CORPUS", "long-pass")} <= ends
