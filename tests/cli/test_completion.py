"""Completion as a shell asks for it, by click's protocol, and in a real bash."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Cli

from weighbridge.cli import main
from weighbridge.contract.load import builtin_names, load_contract
from weighbridge.core.data import data_path
from weighbridge.gates import KINDS
from weighbridge.gates.families.block_types import MIXTURES, REQUANTISED

RUN = data_path("verifiers") / "specimens" / "runs" / "wrapped"
BUILTIN = [f"builtin:{name}" for name in builtin_names()]


def offered(line: str, shell: str = "zsh") -> list[str]:
    """Return what is offered at the end of a command line; zsh's words are whole, bash's in parts."""
    words = line.split(" ")
    asked = {"_WEIGHBRIDGE_COMPLETE": f"{shell}_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        for name, value in asked.items():
            patch.setenv(name, value)
        patch.setattr("sys.argv", ["weighbridge"])
        with pytest.raises(SystemExit) as ended:
            main()
    for written in (out, err):
        written.seek(0)
    assert (ended.value.code, err.read()) == (0, "")
    printed = out.read().splitlines()
    if shell == "zsh":  # a type, a word, a help
        return [printed[at + 1] for at in range(0, len(printed) - 2, 3) if printed[at] == "plain"]
    return [one.partition(",")[2] for one in printed if one.startswith("plain,")]


@pytest.mark.slow
def test_contracts_policies_kinds_and_quantities_are_offered(workplace: Path) -> None:
    (workplace / "contracts").mkdir()
    (workplace / "contracts" / "mine.yaml").touch()
    assert offered("weighbridge verify ") == ["contracts/mine.yaml", *BUILTIN]
    assert offered("weighbridge lint builtin:tr") == ["builtin:training-log", "builtin:training-run"]
    assert offered("weighbridge compare a b --policy rounded") == [
        f"rounded:{name}" for name in ("F16", "BF16", "F8_E4M3", "F8_E5M2")
    ]
    assert offered("weighbridge compare a b --policy packed+rounded:F1") == ["packed+rounded:F16"]
    assert offered("weighbridge compare a b --policy at-most:pa") == ["at-most:packed"]
    assert offered("weighbridge compare a b --policy requant:") == [f"requant:{name}" for name in REQUANTISED]
    assert len(offered("weighbridge compare a b --policy quantised:")) == len(MIXTURES)
    assert set(offered("weighbridge selftest ")) > {*KINDS, "step_columns"}
    assert offered("weighbridge explain wall") == ["wall-time-budget"]


@pytest.mark.slow
def test_gates_are_those_of_the_contracts_named_else_of_the_folder_else_of_the_ledger(
    cli: Cli, workplace: Path
) -> None:
    every = [gate.id for gate in load_contract("builtin:training-run").contract.gates]
    assert offered("weighbridge verify builtin:training-run --gate GATE-RUN") == every
    assert offered("weighbridge verify --gate GATE") == []
    (workplace / "contracts").mkdir()
    shutil.copy(data_path("contracts") / "training-run.yaml", "contracts")
    assert offered("weighbridge verify --expect-blocked GATE") == every
    assert offered("weighbridge status why GATE") == []
    cli("verify", "--subject", f"run={RUN}", "--record")
    assert offered("weighbridge status why GATE") == sorted(every)
    assert offered("weighbridge ledger retire tr") == [f"training-run/{gate}" for gate in sorted(every)]


def test_a_verb_that_is_not_there_offers_nothing_and_says_nothing() -> None:
    assert offered("weighbridge veriffy builtin") == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "rest"),
    [
        ("weighbridge verify builtin : tr", ["training-log", "training-run"]),
        ("weighbridge verify builtin :", [name.partition(":")[2] for name in BUILTIN]),
        ("weighbridge compare a b --policy rounded : B", ["BF16"]),
        ("weighbridge compare a b --policy = rounded : B", ["BF16"]),
    ],
)
def test_bash_which_breaks_words_at_a_colon_gets_the_rest_alone(line: str, rest: list[str]) -> None:
    assert offered(line, "bash") == rest


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
def test_what_is_switched_on_in_bash_fills_in_the_word(tmp_path: Path) -> None:
    (tmp_path / "weighbridge").write_text(f'#!/bin/sh\nexec {sys.executable} -m weighbridge "$@"\n')
    (tmp_path / "weighbridge").chmod(0o755)
    script = """
    eval "$(_WEIGHBRIDGE_COMPLETE=bash_source weighbridge)"
    complete -p weighbridge
    compopt() { :; }
    COMP_WORDS=(weighbridge verify builtin : model) COMP_CWORD=4
    _weighbridge_completion weighbridge
    echo "${COMPREPLY[@]}"
    """
    where = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    ended = subprocess.run(("bash", "-c", script), env=where, capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines() == ["complete -o nosort -F _weighbridge_completion weighbridge", "model-import"]
