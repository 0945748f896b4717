"""A pattern is what FAILed of a run that was diagnosed; a run that is well looks like none."""

from __future__ import annotations

import json
import math
import random
import shutil
from pathlib import Path

import pytest
from tests.cli.conftest import Cli, cli

from weighbridge.core import BundleError
from weighbridge.core.data import data_path
from weighbridge.drills.patterns import kept, likenesses, shipped
from weighbridge.drills.setups import drills

__all__ = ["cli"]


def a_run(folder: Path, spike: float = 0.0, steps: int = 150) -> Path:
    """Write a run whose loss falls, and spikes from step 120 on."""
    folder.mkdir()
    chance = random.Random(7)
    losses = [5.5 * math.exp(-step / 80) + chance.gauss(0, 0.02) for step in range(steps)]
    rows = [{"step": step, "loss": loss + (spike if step >= 120 else 0)} for step, loss in enumerate(losses)]
    (folder / "steps.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "run.json").write_text(json.dumps({"schema": "weighbridge.run/v0", "requested_steps": steps}))
    (folder / "events.jsonl").write_text(json.dumps({"event": "end", "step": steps, "steps": steps, "by": ""}) + "\n")
    return folder


@pytest.fixture
def spiked(workplace: Path) -> Path:
    return a_run(workplace / "spiked", 9.0)


def test_every_shipped_pattern_is_an_arm_of_which_something_must_fail() -> None:
    assert len(list(shipped())) == sum(bool(arm.fails) for drill in drills() for arm in drill.arms)


@pytest.mark.slow
def test_a_run_looks_like_the_pattern_that_was_kept_of_it_and_a_healthy_one_like_none(
    cli: Cli, workplace: Path, spiked: Path
) -> None:
    ended = cli("drill", "keep", "spike", spiked, "--says", "a bad shard")
    assert ended.code == 0
    assert ended.out.endswith("a bad shard\n")
    found = json.loads(cli("drill", "match", a_run(workplace / "other", 8.9), "--json").out)["patterns"]
    assert found[0]["name"] == "spike"
    assert (found[0]["holds"], found[0]["alike"]) == (True, 1.0)
    ended = cli("drill", "match", a_run(workplace / "well"))
    assert ended.lines == [f"{workplace / 'well'}: FAIL 0", f"  looks like none of {len(found)} patterns"]


@pytest.mark.slow
def test_a_run_of_which_nothing_fails_is_no_pattern_and_nothing_is_written(cli: Cli, workplace: Path) -> None:
    ended = cli("drill", "keep", "well", a_run(workplace / "well"))
    assert (ended.code, "no-pattern" in ended.err, (workplace / "patterns").exists()) == (2, True, False)
    for name in ("../up", "UP", "a/b", ""):
        assert cli("drill", "keep", name, workplace / "well").code == 2


@pytest.mark.slow
def test_a_pattern_that_was_changed_is_refused_and_never_matched(cli: Cli, workplace: Path, spiked: Path) -> None:
    assert cli("drill", "keep", "spike", spiked).code == 0
    assert cli("drill", "keep", "spike", spiked).code == 2
    folder = workplace / "patterns" / "spike"
    verdicts = next(folder.glob("bundles/*/verdicts.json"))
    verdicts.write_text(verdicts.read_text().replace('"FAIL"', '"PASS"'))
    ended = cli("drill", "match", spiked)
    assert (ended.code, ended.err.partition(" ")[2][:12]) == (4, "pattern-form")
    shutil.rmtree(folder / "bundles")
    with pytest.raises(BundleError, match="0 bundles"):
        list(kept(workplace / "patterns"))
    for text in ("", "[]", '{"pattern": "another/v9"}'):
        (folder / "pattern.json").write_text(text)
        with pytest.raises(BundleError, match="pattern-form"):
            list(kept(workplace / "patterns"))


@pytest.mark.slow
def test_what_is_no_run_or_shows_nothing_is_refused_and_is_not_like_nothing(cli: Cli, workplace: Path) -> None:
    no_run = data_path("verifiers") / "specimens" / "checkpoints" / "import.gguf"
    short = a_run(workplace / "short", steps=1)
    (short / "steps.jsonl").write_text('{"step": 0}\n')
    for target in ("nowhere", no_run, short):
        for verb in (("drill", "match", target), ("drill", "keep", "x", target), ("autopsy", target)):
            ended = cli(*verb)
            assert (ended.code, ended.out, bool(ended.err)) == (4, "", True), verb
    assert not (workplace / "patterns").exists()


def test_without_a_fail_no_pattern_is_alike() -> None:
    assert not any(one.holds or one.fails for one in likenesses(shipped(), ()))
