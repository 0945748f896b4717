"""The writer for llama.cpp: what the engine computes of a real file passes, and a capture before the bias is told.

It needs the wheels llama-cpp-cffi and cffi, here or where LLAMA_CPP_PYTHON names another Python.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Cli, cli

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
gguf = pytest.importorskip("gguf")

from tests.forward.tiny_models import saved  # noqa: E402
from tests.forward.traces import EXAMPLES  # noqa: E402
from tests.modules import module_at  # noqa: E402

__all__ = ["cli"]
engines: Any = module_at(Path(__file__).parents[2] / "benchmarks" / "foreign_engines.py")
PYTHON = os.environ.get("LLAMA_CPP_PYTHON", sys.executable)
TOKENS = [[(7 * n + 11 * row) % 120 + 2 for n in range(16)] for row in range(3)]
JUDGED = (
    "verify", "builtin:recorded-parity", "--param", "device=cpu", "--param", "other_weights=*",
    "--param", "points=model.embed*,model.layers.*,model.norm.out,lm_head.out",
)  # fmt: skip


def converted(folder: Path) -> Path:
    """Write a saved Qwen2 as llama.cpp's converter does, in F32 and without a vocabulary."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder)
    path = folder / "model.gguf"
    engines.write_gguf(path, model.state_dict(), "F32", model.config)
    return path


@pytest.mark.exhaustive
def test_llama_cpp_passes_as_it_is_and_a_dropped_bias_is_found(cli: Cli, tmp_path: Path) -> None:
    if subprocess.run([PYTHON, "-c", "import llama._llama_cpp_cpu"], check=False, capture_output=True).returncode:
        pytest.skip("no llama-cpp-cffi here: pip install llama-cpp-cffi cffi, or name a Python by LLAMA_CPP_PYTHON")
    folder = saved("qwen2", tmp_path)
    (tmp_path / "ids.json").write_text(json.dumps(TOKENS))
    env = {key: one for key, one in os.environ.items() if key != "PYTHONPATH"}

    def judged(gguf_file: Path, name: str) -> tuple[int, str]:
        words: list[str | Path] = [
            PYTHON,
            EXAMPLES / "write_llama_cpp.py",
            gguf_file,
            tmp_path / "ids.json",
            tmp_path / name,
        ]
        subprocess.run(words, check=True, capture_output=True, env=env)
        bound = ("--subject", f"reference=hf:{folder}", "--subject", f"recorded={tmp_path / name}")
        ended = cli(*JUDGED, *bound, "--evidence", tmp_path / "e")
        return ended.code, ended.out

    code, printed = judged(converted(folder), "whole.trace")
    assert (code, "points within their limit" in printed) == (0, True), printed
    weights = folder / "model.safetensors"
    from safetensors.torch import load_file, save_file

    broken = load_file(weights)
    kept = dict(broken)
    broken["model.layers.1.self_attn.k_proj.bias"] = torch.zeros_like(broken["model.layers.1.self_attn.k_proj.bias"])
    save_file(broken, weights, metadata={"format": "pt"})
    other = converted(folder)
    save_file(kept, weights, metadata={"format": "pt"})
    code, printed = judged(other, "broken.trace")
    assert code == 1
    assert "model.layers.1.self_attn.k_proj.out: local error" in printed
    assert "it is the right value but for a bias (-model.layers.1.self_attn.k_proj.bias)" in printed
