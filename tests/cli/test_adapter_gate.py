"""A gate of a merged adapter: written by init, green on the right merge alone, and of that very adapter."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from ml_dtypes import bfloat16
from safetensors.numpy import load_file, save_file
from tests.cli.conftest import Cli
from tests.cli.test_init import next_command, no_terminal
from tests.comparison.test_adapters import SCALES
from tests.ledgers import git

from weighbridge.contract.load import load_contract
from weighbridge.evidence.statement import Tool

__all__ = ["no_terminal"]

BY_PEFT, PARTS = Path(__file__).parent / "adapter_by_peft", ("source=base", "import=merged", "adapter=adapter")
TENSORS = "GATE-MODEL-001"
INIT = ("init", "--for", "import", *(word for part in PARTS for word in ("--subject", part)))


@pytest.fixture
def files(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Lay out a base, an adapter and what PEFT merged, each in a folder of its own."""
    monkeypatch.setattr("weighbridge.evaluation.verification.tool", lambda: Tool(version="0"))
    shutil.copytree(BY_PEFT / "adapter", workplace / "adapter")
    for name in ("base", "merged"):
        (workplace / name).mkdir()
        shutil.copy(BY_PEFT / f"{name}.safetensors", workplace / name / "model.safetensors")
        shutil.copy(BY_PEFT / "model" / "config.json", workplace / name)
    return workplace


def bound(*parts: str) -> tuple[str, ...]:
    """Bind each part, these in the place of the usual ones."""
    usual = {part.partition("=")[0]: part for part in (*PARTS, *parts)}
    return tuple(word for part in usual.values() for word in ("--subject", part))


def test_init_writes_a_contract_that_is_green_on_a_right_merge(cli: Cli, files: Path) -> None:
    begun = cli(*INIT)
    assert (begun.code, begun.err, cli("lint").out) == (0, "", "1 of 1 contract is usable\n")
    assert load_contract("contracts/import.yaml").contract.gate(TENSORS).subjects["adapter"] == "adapter"
    verified = cli(*next_command(begun.lines))
    said = f"PASS     {TENSORS}  8 of 8 tensors are what was meant, 832 elements (4 BYTES_EQUAL, 4 MERGED)"
    assert (verified.code, said in verified.lines) == (0, True)
    assert "adapter=adapter (live)" in verified.lines[0]
    assert next_command(begun.lines)[-2:] == ["--subject", "adapter=adapter"]
    assert "adapter=adapter" in (files / ".github" / "workflows" / "weighbridge.yml").read_text()


def test_init_without_an_adapter_writes_what_it_wrote_and_no_run_has_one(cli: Cli, files: Path) -> None:
    assert cli(*INIT[:-2]).code == 0
    assert (files / "contracts" / "import.yaml").read_text().endswith(f"\n# gates: [{{id: {TENSORS}, max_age: 30d}}]\n")
    assert cli("verify", "contracts/import.yaml", *bound()[:-2]).code == 1  # a merge is not its base
    ended = cli("init", "--for", "run", "--subject", "adapter=adapter")
    assert (ended.code, ended.err) == (2, "unknown-subject there is no subject 'adapter' here; known: run\n")


def test_a_contract_of_the_import_alone_cannot_be_extended_to_an_adapter_unseen(cli: Cli, files: Path) -> None:
    assert cli(*INIT).code == 0
    contract = files / "contracts" / "import.yaml"
    contract.write_text("".join(line for line in contract.read_text().splitlines(True) if "relax:" not in line))
    assert f"loosened {TENSORS}: subjects adapter is new" in cli("lint").err


def test_no_other_gate_of_pairs_takes_an_adapter(cli: Cli, files: Path) -> None:
    assert cli(*INIT).code == 0
    contract = files / "contracts" / "import.yaml"
    contract.write_text(contract.read_text().replace(TENSORS, "GATE-MODEL-002"))
    assert "unknown-role config-agreement has no role 'adapter'" in cli("lint").err


# --- What it is not green on ------------------------------------------------------------------------------------------


def merged(files: Path, share: float, more: Mapping[str, float] | None = None) -> None:
    """Merge again, with another share or with more in the last element of a tensor."""
    found, adapter = load_file(files / "base/model.safetensors"), load_file(files / "adapter/adapter_model.safetensors")
    for module, scale in SCALES.items():
        low, high = (adapter[f"base_model.model.{module}.lora_{one}.weight"] for one in "AB")
        values = found[f"{module}.weight"].astype(np.float32) + share * scale * (high @ low)
        found[f"{module}.weight"] = values.astype(bfloat16)
    for name, added in (more or {}).items():
        found[name].reshape(-1)[-1] += bfloat16(added)
    save_file(found, files / "merged" / "model.safetensors")


def elsewhere(files: Path) -> None:
    """Damage a weight that the adapter does not change."""
    names = load_file(files / "base" / "model.safetensors")
    merged(files, 1, {min(name for name in names if name.removesuffix(".weight") not in SCALES): 1.5})


def other_base(files: Path) -> None:
    base = files / "base" / "model.safetensors"
    save_file({f"other.{name}": one for name, one in load_file(base).items()}, base)


def empty(files: Path) -> None:
    save_file({}, files / "adapter" / "adapter_model.safetensors")


Broken = tuple[Callable[[Path], object], tuple[str, ...], int, str]
BROKEN: Mapping[str, Broken] = {
    "not merged": (lambda files: merged(files, 0), (), 1, "adapter-not-merged"),
    "merged twice": (lambda files: merged(files, 2), (), 1, "adapter-merged-twice"),
    "at another scale": (lambda files: merged(files, 1.25), (), 1, "adapter-scaled"),
    "damaged elsewhere": (elsewhere, (), 1, "but 1 of 16 elements is not the source's"),
    "a damaged merge": (
        lambda files: merged(files, 1, {"layers.0.q_proj.weight": 1.5}), (), 1, "but 1 of 256 elements is not the",
    ),
    "exchanged": (lambda _files: None, ("source=merged", "import=base"), 1, "hold -1 times its update"),
    "of another base": (other_base, (), 4, "which the base does not have"),
    "without a configuration": (
        lambda files: (files / "adapter" / "adapter_config.json").unlink(), (), 4, "there is no adapter_config.json",
    ),
    "without a tensor": (empty, (), 4, "it has no tensors"),
    "no adapter": (lambda files: shutil.copytree(files / "base", files / "x"), ("adapter=x",), 4, "(adapter)"),
    "the merge itself": (lambda _files: None, ("adapter=merged",), 2, ""),
    "not there": (lambda files: shutil.rmtree(files / "adapter"), (), 4, "adapter"),
}  # fmt: skip


@pytest.mark.parametrize("how", BROKEN)
def test_what_is_not_the_base_with_the_adapter_is_never_green(cli: Cli, files: Path, how: str) -> None:
    assert cli(*INIT).code == 0
    damage, parts, code, said = BROKEN[how]
    damage(files)
    ended = cli("verify", "contracts/import.yaml", "--gate", TENSORS, *bound(*parts))
    assert (ended.code, f"PASS     {TENSORS}" in ended.out, said in ended.out) == (code, False, True), ended.out


def test_without_its_adapter_the_gate_is_blocked_and_never_judged_without(cli: Cli, files: Path) -> None:
    assert cli(*INIT).code == 0
    shutil.copy(files / "base" / "model.safetensors", files / "merged" / "model.safetensors")  # green without one
    ended = cli("verify", "contracts/import.yaml", "--gate", TENSORS, *bound()[:-2])
    assert (ended.code, "    the subject 'adapter' is not bound (unbound)" in ended.lines) == (3, True)


# --- What its evidence is of ------------------------------------------------------------------------------------------


@pytest.fixture
def recorded(cli: Cli, files: Path) -> Path:
    """Record a right merge; return its bundle."""
    git(files, "init", "-q")
    verify = next_command(cli(*INIT).lines)
    assert cli(*verify, "--record").code == 0
    (bundle,) = (files / "evidence" / "bundles").iterdir()
    return bundle


def test_a_bundle_of_a_merge_is_judged_again_and_its_ledger_is_whole(cli: Cli, recorded: Path) -> None:
    checked = cli("evidence", "verify", recorded)
    assert (checked.code, "judged again: 2 of 2 verdicts follow" in checked.out) == (0, True)
    assert "2 of 2 findings follow from the measurements" in cli("evidence", "rejudge", recorded).err
    assert cli("ledger", "check").lines == ["whole: 4 entries of 2 gates, counted by instance"]
    canaries = json.loads((recorded / "canaries.json").read_text())["canaries"]
    (seen,) = (one for key, one in canaries.items() if key.startswith("tensor_values.source.adapter.import."))
    assert (seen["name"], seen["place"]) == ("one damaged element", "layers.1.v_proj.weight")


@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.safetensors"])
def test_evidence_is_of_the_adapter_that_was_bound_and_of_no_later_one(cli: Cli, recorded: Path, name: str) -> None:
    asked = ("evidence", "verify", recorded, "--subject", "adapter=adapter")
    assert cli(*asked).code == 0
    path = Path("adapter", name)
    path.write_bytes(path.read_bytes().replace(b'"r"', b' "r"') + b" " * (name == "adapter_config.json"))
    if name != "adapter_config.json":
        save_file({key: 2 * one for key, one in load_file(path).items()}, path)
    ended = cli(*asked)
    assert (ended.code, f"is not adapter@default as it was measured: {name}" in ended.out) == (1, True)


def test_another_adapter_has_a_status_of_its_own(cli: Cli, files: Path, recorded: Path) -> None:
    assert recorded.is_dir()
    shutil.copytree(files / "adapter", files / "other")
    merged(files, 0)
    verify = ("verify", "contracts/import.yaml", "--record", *bound())
    assert cli(*verify).code == 1
    merged(files, 1)
    assert cli(*verify[:-1], "adapter=other").code == 0  # which does not heal
    found = json.loads(cli("status", "--json").out)
    (gate,) = (one for one in found["gates"] if one["gate"] == TENSORS)
    assert {one["instance"]: one["status"] for one in gate["instances"]} == {
        "./adapter+./merged+./base": "REGRESSED",
        "./other+./merged+./base": "ACTIVE_WITH_LIVE_EVIDENCE",
    }
    assert cli("ledger", "check").code == 0
