from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from weighbridge.core.model import Measurement, Record
from weighbridge.evaluation.runner import lay_canary
from weighbridge.quantities.base import record_of
from weighbridge.quantities.facts import Host
from weighbridge.verifiers import host
from weighbridge.verifiers.host import VERIFIER, HostView, built_for


def answer(*views: HostView) -> Host:
    found = record_of(VERIFIER.measure(views, {}), Host)
    assert found is not None
    return found


def pretend_torch(folder: Path, code: str, version: str = "cuda = '13.0'\nhip = None\n") -> HostView:
    """Put a package named torch before any other, for this process and for the one that probes."""
    package = folder / "torch"
    package.mkdir()
    (package / "__init__.py").write_text(code)
    (package / "version.py").write_text(version)
    return HostView({**os.environ, "PYTHONPATH": str(folder)})


def test_without_torch_the_answer_is_no_and_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") == ""
    assert answer() == Host(cuda=False, devices=0, why="torch is not installed", hidden=hidden)


def test_a_cpu_build_is_distinguished_from_its_version_file_without_importing_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = pretend_torch(tmp_path, "raise SystemExit(9)", "cuda: Optional[str] = None\nhip: Optional[str] = None\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert answer(view).why == "the installed torch is built without CUDA and ROCm"
    assert "torch" not in sys.modules


@pytest.mark.parametrize(
    ("text", "built"),
    [
        ("cuda: Optional[str] = None\nhip: Optional[str] = None\n", {"cuda": "", "hip": ""}),
        ("cuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n", {"cuda": "13.0", "hip": ""}),
        ("cuda = None\nhip = '6.4'\n", {"cuda": "", "hip": "6.4"}),
        ("__version__ = '9'\n", {}),
    ],
)
def test_what_torch_was_built_for_is_read_from_its_version_file(text: str, built: dict[str, str]) -> None:
    assert built_for(text) == built


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("raise SystemExit(9)", "the probe of the device ended with exit code 9"),
        ("import os; os.abort()", "the probe of the device ended with exit code -6"),
        ("class cuda:\n    device_count = staticmethod(lambda: 0)", "torch sees no CUDA device"),
    ],
)
def test_a_device_that_does_not_answer_rightly_is_no_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, why: str
) -> None:
    view = pretend_torch(tmp_path, code)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    found = answer(view)
    assert (found.cuda, found.devices, found.why) == (False, 0, why)


def test_a_device_that_never_answers_is_no_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    view = pretend_torch(tmp_path, "import time; time.sleep(60)")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(host, "PROBE_SECONDS", 0.3)
    assert answer(view).why == "the device gave no answer within 0.3 s"


def test_the_canary_asks_with_every_device_hidden() -> None:
    honest = VERIFIER.measure((), {})
    assert isinstance(honest, Measurement)
    assert lay_canary(VERIFIER, (), {}, honest).seen


def test_an_instrument_that_always_gives_one_answer_is_seen_to_be_blind() -> None:
    for cuda in (True, False):
        said = Host(cuda=cuda, devices=int(cuda), why="" if cuda else "no", hidden=False)
        fixed = Measurement(quantity="host", value=Record(said), by="test", examined=1, total=1)

        def measure(_views: Any, _options: Any, fixed: Measurement = fixed) -> Measurement:
            return fixed

        assert not lay_canary(dataclasses.replace(VERIFIER, measure=measure), (), {}, fixed).seen
