"""The demo's NumPy backend computes what PyTorch computes, from weights that it reads itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from safetensors.torch import save_file  # noqa: E402
from torch.nn import functional  # noqa: E402

from weighbridge.demo import models, to_gguf  # noqa: E402
from weighbridge.demo.train import GPT, SHAPE  # noqa: E402


def test_attention_is_pytorchs_causal_attention() -> None:
    q, k, v = np.random.default_rng(1).standard_normal((3, 2, 7, SHAPE.width)).astype(np.float32)

    def heads(x: models.Array) -> Any:
        return torch.from_numpy(x).unflatten(-1, (SHAPE.heads, -1)).transpose(1, 2)

    trusted = functional.scaled_dot_product_attention(heads(q), heads(k), heads(v), is_causal=True)
    np.testing.assert_allclose(models.attend(q, k, v), trusted.transpose(1, 2).flatten(2).numpy(), rtol=0, atol=2e-6)


def test_attention_never_looks_ahead() -> None:
    q, k, v = np.random.default_rng(2).standard_normal((3, 1, 5, SHAPE.width)).astype(np.float32)
    later = k.copy(), v.copy()
    for changed in later:
        changed[:, 3:] += 1
    np.testing.assert_array_equal(models.attend(q, *later)[:, :3], models.attend(q, k, v)[:, :3])


def test_gelu_is_pytorchs_tanh_form() -> None:
    x = np.linspace(-6, 6, 1001, dtype=np.float32)
    trusted = functional.gelu(torch.from_numpy(x), approximate="tanh").numpy()
    np.testing.assert_allclose(models.gelu(x), trusted, rtol=0, atol=1e-6)
    exact = functional.gelu(torch.from_numpy(x)).numpy()
    assert np.abs(models.gelu(x) - exact).max() > 1e-4  # so the form matters, and the bound above tells them apart


@pytest.fixture
def imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    torch.manual_seed(0)
    state = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in GPT().state_dict().items()}
    save_file(state, tmp_path / "model.safetensors")
    to_gguf(tmp_path / "model.safetensors", tmp_path / "model.gguf")
    monkeypatch.setattr(models, "SOURCE", tmp_path / "model.safetensors")
    monkeypatch.setattr(models, "IMPORT", tmp_path / "model.gguf")
    return tmp_path


def test_the_numpy_backend_gives_pytorchs_logits_and_every_capture_point(imported: Path) -> None:
    candidate = models.numpy_backend().run(models.tokens())
    trusted = models.reference().prepared().capture(models.tokens(), imported / "reference.trace")
    assert set(candidate) == set(trusted.facts.order) == set(models.taps())
    for name in trusted.facts.order:
        np.testing.assert_allclose(candidate[name], trusted.stored(name), rtol=0, atol=1e-5, err_msg=name)


def test_the_backend_without_a_bias_differs_first_at_the_queries_of_layer_1(imported: Path) -> None:
    assert imported.is_dir()
    whole = models.numpy_backend().run(models.tokens())
    broken = models.numpy_backend_without_a_bias().run(models.tokens())
    parted = [name for name in models.taps() if not np.array_equal(whole[name], broken[name])]
    assert parted[0] == "L1.attn.q.post_bias"
    assert "L2.resid_out" in parted
    assert "L1.attn.k.post_bias" not in parted
