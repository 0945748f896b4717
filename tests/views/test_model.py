"""A model subject: factories run late and only by name, points say their state, a damaged view costs no second run."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from weighbridge.errors import SubjectError
from weighbridge.model import Origin
from weighbridge.views.forward_subject import (
    NO_CUDA,
    Captured,
    Forward,
    ForwardSubject,
    ModelView,
    check_point,
    open_model,
)

STACK = """
import numpy as np
from weighbridge.views.forward_subject import Captured
print("imported")

class Stack:
    points = ("embed", "logits")
    tokens = ((1, 2), (3, 4))
    dtype, device, checkpoint = "float32", "{device}", "{checkpoint}"
    def prepare(self, dtype, storage):
        return self.forward
    def forward(self, tokens):
        print("ran")
        values = np.arange(8, dtype=np.float64).reshape(2, 2, 2)
        return {{name: Captured(values=values, dtype="float32", device="cpu") for name in self.points}}
    def weights(self, storage): return {{}}
    def constants(self): return {{}}

def build():
    return Stack()

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


def ran(view: ModelView) -> Mapping[str, Captured]:
    return view.run(((1, 2), (3, 4)), "float32", "float32", contextlib.nullcontext)[0]


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


def test_a_missing_file_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(SubjectError) as caught:
        open_model(f"{tmp_path}/absent.py:build")
    assert (caught.value.code, caught.value.where) == ("no-file", f"{tmp_path}/absent.py")


def test_opening_runs_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    view = open_model(f"{written(tmp_path)}:build")
    assert capsys.readouterr().out == ""
    view.subject()
    assert capsys.readouterr().out == "imported\n"


def test_a_misspelt_function_is_answered_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(SubjectError, match=r"no function 'biuld'; did you mean 'build'\?"):
        open_model(f"{written(tmp_path)}:biuld").subject()


def test_a_factory_that_raises_is_named_without_its_text(tmp_path: Path) -> None:
    with pytest.raises(SubjectError, match="the factory raised ValueError") as caught:
        open_model(f"{written(tmp_path)}:broken").subject()
    assert "secret" not in str(caught.value)


def test_a_factory_that_returns_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SubjectError, match="returned int"):
        open_model(f"{written(tmp_path)}:number").subject()


def test_a_module_is_found_by_name_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path).rename(tmp_path / "my_stack_module.py")
    monkeypatch.chdir(tmp_path)
    assert isinstance(open_model("my_stack_module:build").subject(), ForwardSubject)


def test_asking_for_cuda_where_there_is_none_is_unmeasured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weighbridge.views.forward_subject.has_cuda", lambda: False)
    monkeypatch.setattr("weighbridge.views.factory.has_cuda", lambda: False)
    view = open_model(f"{written(tmp_path, device='cuda:0')}:build")
    assert view.subject() == NO_CUDA
    assert view.points() == ()
    assert open_model(f"{tmp_path}/stack.py:needs_cuda").subject() == NO_CUDA


def test_a_stack_that_computes_on_cuda_without_pytorch_is_taken_at_its_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weighbridge.views.forward_subject.has_cuda", lambda: None)
    assert open_model(f"{written(tmp_path, device='cuda')}:build").points() == ("embed", "logits")


def test_the_same_failure_with_cuda_present_is_the_factorys_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weighbridge.views.factory.has_cuda", lambda: True)
    with pytest.raises(SubjectError, match="the factory raised RuntimeError"):
        open_model(f"{written(tmp_path)}:needs_cuda").subject()


def test_a_damaged_cut_view_shares_the_run_and_leaves_the_whole_one_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    view = open_model(f"{written(tmp_path)}:build")
    whole = ran(view)
    damaged = view.cut(["logits"]).overlaid("logits", 99.0)
    assert damaged.points() == ("logits",)
    assert list(ran(damaged)) == ["logits"]
    assert ran(damaged)["logits"].values.tolist() == [[[0, 1], [2, 3]], [[4, 5], [6, 99]]]
    assert ran(view)["logits"].values[-1, -1, -1] == whole["logits"].values[-1, -1, -1] == 7
    assert capsys.readouterr().out.count("ran") == 1


def test_a_model_is_live_only_with_a_checkpoint_that_is_there(tmp_path: Path) -> None:
    weights = tmp_path / "weights.bin"
    weights.write_bytes(b"abc")
    view = open_model(f"{written(tmp_path, checkpoint=str(weights))}:build")
    origins = [view.origin]
    view.subject()
    origins.append(view.origin)
    assert view.digest()["weights.bin"] == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    weights.unlink()
    assert [*origins, view.origin] == [Origin.SYNTHETIC, Origin.LIVE, Origin.SYNTHETIC]
    assert list(view.digest()) == ["stack.py"]


class Bad:
    """A stack whose one point is of a wrong form."""

    points = ("logits",)
    tokens = ((1, 2), (3, 4))
    dtype, device, checkpoint = "float32", "cpu", ""

    def __init__(self, values: NDArray[np.generic]) -> None:
        self.values = values

    def prepare(self, dtype: str, storage: str) -> Forward:
        return lambda _tokens: {"logits": Captured(values=self.values, dtype=dtype, device="cpu")}  # type: ignore[arg-type]

    def weights(self, storage: str) -> Mapping[str, str]:
        return {}

    def constants(self) -> Mapping[str, NDArray[np.float64]]:
        return {}


@pytest.mark.parametrize(
    ("values", "found"), [(np.zeros((2, 2)), r"float64 \[2, 2\]"), (np.zeros((2, 2, 1), np.float32), "float32")]
)
def test_a_capture_of_another_form_is_refused(values: NDArray[np.generic], found: str) -> None:
    view = open_model("unused_module:build")
    view._memory.loaded.append(Bad(values))
    with pytest.raises(SubjectError, match=f"logits holds {found}"):
        ran(view)
