"""A model subject: factories run late and only by name, points say their state, a damaged view costs no second run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from weighbridge.core.errors import SubjectError
from weighbridge.core.model import Origin, Unmeasured
from weighbridge.forward.stacks import Stack
from weighbridge.forward.trace_file import Trace, check_point
from weighbridge.views.model_view import NO_CUDA, ModelView, open_model

STACK = """
import numpy as np
from weighbridge.forward.stacks import Stack
print("imported")

def run(tokens):
    print("ran")
    values = np.arange(8, dtype=np.float32).reshape(2, 2, 2)
    return {{name: values for name in ("embed", "logits")}}

def build():
    return Stack(run=run, tokens=((1, 2), (3, 4)), device="{device}", checkpoint="{checkpoint}")

def number():
    return 5

def needs_cuda():
    raise RuntimeError("Found no NVIDIA driver on your system")

def broken():
    raise ValueError("secret text")
"""


def written(folder: Path, *, device: str = "cpu", checkpoint: str = "") -> Path:
    path = folder / "stack.py"
    path.write_text(STACK.format(device=device, checkpoint=checkpoint))
    return path


def ran(view: ModelView) -> Trace:
    return view.capture(((1, 2), (3, 4)), "float32")


@pytest.mark.parametrize("name", ["L0.attn.q.matmul", "L3.attn.q.post_bias", "embed", "logits", "final_norm.out"])
def test_a_point_that_says_its_state_is_legal(name: str) -> None:
    check_point(name)


@pytest.mark.parametrize("name", ["q", "hidden", "L0.attn.q", "L0.attn.qkv", "", ".a", "a..b", "a.", "0.a", "a b.c"])
def test_a_point_that_does_not_say_its_state_is_refused(name: str) -> None:
    with pytest.raises(SubjectError, match="does not say its state") as caught:
        check_point(name)
    assert caught.value.code == "point-id"


@pytest.mark.parametrize("spec", ["model.py", "build", ":build", "model.py:", "model.py:not a name", ""])
def test_what_names_no_factory_is_refused(spec: str) -> None:
    with pytest.raises(SubjectError) as caught:
        open_model(spec)
    assert caught.value.code == "factory-spec"


def test_a_missing_file_is_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(SubjectError) as caught:
        open_model(f"{tmp_path}/absent.py:build")
    assert (caught.value.code, caught.value.where) == ("no-file", f"{tmp_path}/absent.py")


def test_opening_runs_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    view = open_model(f"{written(tmp_path)}:build")
    assert capsys.readouterr().out == ""
    view.stack()
    assert capsys.readouterr().out == "imported\n"


def test_a_misspelt_function_is_answered_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(SubjectError, match=r"no function 'biuld'; did you mean 'build'\?"):
        open_model(f"{written(tmp_path)}:biuld").stack()


def test_a_factory_that_raises_is_named_without_its_text(tmp_path: Path) -> None:
    with pytest.raises(SubjectError, match="the factory raised ValueError") as caught:
        open_model(f"{written(tmp_path)}:broken").stack()
    assert "secret" not in str(caught.value)


def test_a_factory_that_returns_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SubjectError, match="returned int"):
        open_model(f"{written(tmp_path)}:number").stack()


def test_a_module_is_found_by_name_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path).rename(tmp_path / "my_stack_module.py")
    monkeypatch.chdir(tmp_path)
    assert isinstance(open_model("my_stack_module:build").stack(), Stack)


def test_asking_for_cuda_where_there_is_none_is_unmeasured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weighbridge.views.model_view.has_cuda", lambda: False)
    view = open_model(f"{written(tmp_path, device='cuda:0')}:build")
    assert view.stack() == NO_CUDA
    assert view.dtype_and_tokens() == NO_CUDA
    assert open_model(f"{tmp_path}/stack.py:needs_cuda").stack() == NO_CUDA


def test_a_stack_that_computes_on_cuda_without_pytorch_is_taken_at_its_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weighbridge.views.model_view.has_cuda", lambda: None)
    assert open_model(f"{written(tmp_path, device='cuda')}:build").dtype_and_tokens() == ("float32", ((1, 2), (3, 4)))


def test_the_same_failure_with_cuda_present_is_the_factorys_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weighbridge.views.model_view.has_cuda", lambda: True)
    with pytest.raises(SubjectError, match="the factory raised RuntimeError"):
        open_model(f"{written(tmp_path)}:needs_cuda").stack()


def test_a_damaged_cut_view_shares_the_run_and_leaves_the_whole_one_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    view = open_model(f"{written(tmp_path)}:build")
    damaged = view.cut(1, 2).overlaid("logits", 99.0)
    assert ran(damaged).stored("logits").tolist() == [[[0, 1], [2, 99]]]
    assert ran(damaged).stored("embed").tolist() == [[[0, 1], [2, 3]]]
    assert ran(view).stored("logits").ravel().tolist() == list(range(8))
    assert capsys.readouterr().out.count("ran") == 1


def test_a_candidate_runs_twice_and_what_it_differs_by_is_reported(tmp_path: Path) -> None:
    source = STACK.format(device="cpu", checkpoint="").replace("    return {{name", "    return {name")
    text = source.replace("values = np", "values = 1e-3 * (runs.append(1) or len(runs) - 1) + np").replace("}}", "}")
    path = tmp_path / "stack.py"
    path.write_text(text.replace('print("imported")', "runs = []"))
    view = open_model(f"{path}:build")
    noise = view.noise(((1, 2), (3, 4)), "float32", None)
    assert noise is not None
    assert noise["logits"] == pytest.approx(1e-3 * 8**0.5 / 140**0.5, rel=1e-3)
    assert list(view.runs.path("").iterdir()) == [view.runs.path("0-first.trace")]


def test_a_model_that_was_let_go_is_made_again_and_its_runs_are_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    view = open_model(f"{written(tmp_path)}:build")
    ran(view)
    view.release()
    ran(view)
    assert capsys.readouterr().out.count("ran") == 1
    assert isinstance(view.stack(), Stack)


def test_a_model_is_live_only_with_a_checkpoint_that_is_there(tmp_path: Path) -> None:
    weights = tmp_path / "weights.bin"
    weights.write_bytes(b"abc")
    view = open_model(f"{written(tmp_path, checkpoint=str(weights))}:build")
    origins = [view.origin]
    view.stack()
    origins.append(view.origin)
    assert view.digest()["weights.bin"] == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    weights.unlink()
    assert [*origins, view.origin] == [Origin.SYNTHETIC, Origin.LIVE, Origin.SYNTHETIC]
    assert list(view.digest()) == ["stack.py"]


class Returns:
    """A factory that returns what it was given."""

    def __init__(self, made: Any) -> None:
        self.made = made

    def make(self) -> Any:
        return self.made

    def digest(self, *_others: Any) -> Mapping[str, str]:
        return {}


def test_a_dtype_whose_rounding_is_not_known_is_unmeasured() -> None:
    found = ModelView(spec="x:y", source=Returns(Stack(run=lambda _tokens: {}, dtype="float8_e4m3fn"))).stack()
    assert isinstance(found, Unmeasured)
    assert found.code == "dtype-unsupported"


def test_a_bare_module_is_a_stack() -> None:
    torch = pytest.importorskip("torch")
    made = ModelView(spec="x:y", source=Returns(torch.nn.Embedding(8, 2))).stack()
    assert not isinstance(made, (Stack, Unmeasured))
    assert made.prepared().dtype == "float32"
