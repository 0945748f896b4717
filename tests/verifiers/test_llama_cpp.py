"""llama.cpp itself, by its eval callback: right in each type, and a dropped bias named; of the wheel llama-cpp-cffi."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("llama._llama_cpp_cpu", reason="the wheel llama-cpp-cffi is not installed", exc_type=ImportError)

from tests.modules import module_at

from weighbridge.core.model import Outcome
from weighbridge.views.model_view import open_model

pytestmark = pytest.mark.exhaustive

engines: Any = module_at(Path(__file__).parents[2] / "benchmarks" / "foreign_engines.py")


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0", "Q4_K"])
@pytest.mark.parametrize("bug", ["correct", "dropped bias"])
def test_a_type_of_weight_is_judged_by_its_own_arithmetic(kind: str, bug: str, tmp_path: Path) -> None:
    model = engines.tiny(tmp_path / "hf")
    path = engines.llama_trace(tmp_path, kind, bug, model, {"products": {"*": "ggml"}})
    verdict = engines.judged(open_model(f"hf:{tmp_path / 'hf'}"), open_model(str(path)), {"weights": "candidate"})
    assert verdict.outcome is (Outcome.PASS if bug == "correct" else Outcome.FAIL)
    assert bug == "correct" or [one.place for one in verdict.offences] == [engines.PLACES[bug]]
