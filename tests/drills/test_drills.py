"""Drills as data, one variable a run; and a run that is trained, judged and told."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
from tests.cases import each
from tests.cli.conftest import Cli, cli

from weighbridge.contract.load import load_contract
from weighbridge.core import Outcome, UsageError
from weighbridge.drills.drilling import Drilled
from weighbridge.drills.setups import DIAGNOSTICS, TRANSFORMERS, Setup, differing, drill_of, drills, named, row_of
from weighbridge.quantities.runs import INSIDE

__all__ = ["cli"]


def test_every_run_of_every_drill_is_one_variable_from_the_one_that_it_is_compared_with() -> None:
    apart = {}
    for drill in drills():
        setups = {arm.name: arm.setup for arm in drill.arms}
        for arm in drill.arms[1:]:
            apart[drill.name, arm.name] = len(differing(setups[arm.against], arm.setup))
    assert len(apart) >= 20
    assert {key for key, many in apart.items() if many != 1} == {("stable-baseline", "again")}


def row(**arm: object) -> dict[str, object]:
    return {"number": 1, "name": "mine", "title": "", "teaches": "", "arms": [{"name": "arm", **arm}]}


@each(
    "arm, said",
    [
        ({"change": {"rate": 1.0, "warmup": 0}}, "2 variables (warmup, rate)"),
        ({"change": {"rate": 1e-3}}, "0 variables (nothing)"),
        ({}, "0 variables (nothing)"),
        ({"role": "replay", "change": {"seed": 1}}, "1 variables (seed), not 0"),
    ],
)
def test_a_drill_whose_run_changes_two_things_or_none_is_refused(arm: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match="one-variable") as refused:
        drill_of(row(**arm))
    assert said in str(refused.value)


def test_a_variable_that_is_not_there_is_no_change_that_goes_unseen() -> None:
    with pytest.raises(TypeError):
        drill_of(row(change={"learning_rate": 1.0}))


def test_every_row_that_a_drill_names_is_a_gate_and_none_must_both_fail_and_pass() -> None:
    gates = {row_of(gate.id) for gate in load_contract(DIAGNOSTICS).contract.gates}
    for arm in (arm for drill in drills() for arm in drill.arms):
        assert {*arm.fails, *arm.passes} <= gates, arm.name
        assert not {*arm.fails} & {*arm.passes}, arm.name


def test_numbers_and_names_are_of_one_drill_each() -> None:
    words = [word for drill in drills() for word in (str(drill.number), drill.name)]
    assert len(set(words)) == len(words)
    assert all(named(word).name in words for word in words)


def test_without_a_number_the_drills_are_listed(cli: Cli) -> None:
    ended = cli("drill")
    assert (ended.code, len(ended.lines)) == (0, len(drills()))


def test_a_drill_that_is_not_there_is_2_with_the_nearest(cli: Cli) -> None:
    ended = cli("drill", "warm-upp")
    assert ended.code == 2
    assert "unknown-drill there is no drill 'warm-upp'; did you mean 'warm-up'?" in ended.err


def test_a_folder_that_is_there_is_not_trained_into(cli: Cli, workplace: Path) -> None:
    pytest.importorskip("torch")
    ended = cli("drill", "4", "--dir", workplace)
    assert (ended.code, "folder-exists" in ended.err) == (2, True)


def without(library: str, drill: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a drill where a library is not installed."""
    code = (
        f"import sys; sys.modules['{library}'] = None; sys.argv = ['weighbridge', 'drill', '{drill}', '--dir', 'd']\n"
    )
    code += "import importlib.util as found; plain = found.find_spec\n"
    code += f"found.find_spec = lambda name, *more: None if name == '{library}' else plain(name, *more)\n"
    code += "from weighbridge.cli import main; main()"
    return subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)


def test_without_pytorch_a_drill_is_4_and_says_what_to_install(tmp_path: Path) -> None:
    ended = without("torch", "4", tmp_path)
    assert (ended.returncode, list(tmp_path.iterdir())) == (4, [])
    assert ended.stderr.startswith("no-torch a drill trains a model, and PyTorch or safetensors is not installed\n")


@each("number", ["8", "redundant-heads"])
def test_without_transformers_a_drill_of_attention_is_4_and_trains_nothing(number: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    ended = without("transformers", number, tmp_path)
    assert (ended.returncode, list(tmp_path.iterdir())) == (4, [])
    assert ended.stderr.startswith(f"no-transformers drill {named(number).number} looks at attention")
    assert "pip install transformers" in ended.stderr


def test_a_drill_of_attention_changes_nothing_that_its_model_has_no_part_for() -> None:
    seen = [drill for drill in drills() if drill.arms[0].setup.attention == TRANSFORMERS]
    assert [drill.number for drill in seen] == [8, 9]
    unused, plain = ("causal", "normed", "residual", "attention"), Setup(attention=TRANSFORMERS)
    for setup in (arm.setup for drill in seen for arm in drill.arms):
        assert not {*unused} & {*differing(plain, setup)}
        assert setup.knocked != "rotation"


def test_a_drill_looks_inside_where_a_row_of_attention_or_activations_is_asked_of_it() -> None:
    gates = load_contract(DIAGNOSTICS).contract.gates
    inside = {row_of(gate.id) for gate in gates if gate.measure.get("column") in INSIDE} - {"2.2"}  # of scripts, too
    asked = {drill.number for drill in drills() for arm in drill.arms if inside & {*arm.fails, *arm.passes}}
    assert asked == {2, 8, 9, 13}
    assert all(drill.arms[0].setup.inside for drill in drills() if drill.number in asked)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, object]]]:
    """Return the rows of two runs of one setup, and of one that is written out, of a few steps."""
    pytest.importorskip("torch")
    folder, found = tmp_path_factory.mktemp("drills"), {}
    short = Setup(steps=6, layers=2, dtype="float64")
    from weighbridge.drills.training import train

    out = dataclasses.replace(short, attention="written-out")
    for name, setup in {"one": short, "again": short, "out": out}.items():
        train(folder / name, setup, short)
        found[name] = list(map(json.loads, (folder / name / "steps.jsonl").read_text().splitlines()))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("attention", "calls"), [("fused", 4), ("written-out", 0)])
def test_attention_that_is_written_out_is_another_implementation(
    attention: str, calls: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    from weighbridge.drills.training import train

    fused = Mock(wraps=torch.nn.functional.scaled_dot_product_attention)
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", fused)
    setup = Setup(steps=2, layers=2, attention=attention)
    train(tmp_path / "run", setup, setup)
    assert min(fused.call_count, 4) == calls


@pytest.mark.slow
def test_a_setup_trains_the_same_run_again_and_written_out_one_that_parts_by_rounding_at_most(
    trained: dict[str, list[dict[str, float]]],
) -> None:
    one, again, out = ([row["loss"] for row in trained[name]] for name in ("one", "again", "out"))
    assert one == again
    assert max(abs(a - b) for a, b in zip(one, out, strict=True)) < 1e-9
    assert [row["lr"] for row in trained["one"]] == [row["lr_declared"] for row in trained["one"]]


@pytest.mark.slow
def test_heads_that_are_copies_are_redundant_and_those_without_queries_look_everywhere(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from weighbridge.drills.training import train

    short = Setup(steps=2, layers=2, attention=TRANSFORMERS, inside=1)
    setups = {
        "plain": short,
        "copies": dataclasses.replace(short, same_heads="[qk]_proj"),
        "without": dataclasses.replace(short, zeroed="q_proj"),
    }
    found = {}
    for name, setup in setups.items():
        train(tmp_path / name, setup, short)
        rows = map(json.loads, (tmp_path / name / "steps.jsonl").read_text().splitlines())
        found[name] = [(row["redundant_heads_share"], row["least_head_entropy"]) for row in rows]
    assert all(share < 0.5 for share, _ in found["plain"])
    assert all(share == 1 for share, _ in found["copies"])
    assert all(entropy == pytest.approx(1, abs=1e-6) for _, entropy in found["without"])


def test_a_healthy_run_of_a_drill_has_no_fail_but_of_what_looking_costs_on_this_machine() -> None:
    rows = [Mock(gate=f"GATE-DIAG-{row}", verdict=Mock(outcome=Outcome.FAIL)) for row in ("M9", "3.6")]
    (arm, *_) = drills()[3].arms
    judged = Mock(evaluation=Mock(findings=rows))
    found = Drilled(arm=arm, run=Path("run"), seconds=1.0, result=judged, page=None)
    assert (found.outcomes["M9"], set(found.turned) - set(arm.passes)) == (Outcome.FAIL, {"3.6"})


@pytest.mark.exhaustive
@each("number", ["4", "5", "8", "15"])
def test_a_drill_fires_what_it_must_and_draws_a_page(number: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    command = (sys.executable, "-m", "weighbridge", "drill", number, "--dir", str(tmp_path / "d"), "--json")
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr + ended.stdout
    printed = json.loads(ended.stdout)
    assert [run["did_not_fail"] + run["did_not_pass"] for run in printed["runs"]] == [[]] * len(printed["runs"])
    assert all(Path(run["page"]).stat().st_size < 400_000 for run in printed["runs"])
