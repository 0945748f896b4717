"""An ONNX file as a candidate: its points, its weights, and the provider that was asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
runtime = pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")

from tests.forward.tiny_models import saved  # noqa: E402

from weighbridge.core.errors import SubjectError  # noqa: E402
from weighbridge.core.model import Measurement, Outcome, Unmeasured  # noqa: E402
from weighbridge.forward.stacks import Torch  # noqa: E402
from weighbridge.gates.families.local_errors import Limits  # noqa: E402
from weighbridge.gates.forward_parity import judge  # noqa: E402
from weighbridge.verifiers.forward_errors import measure  # noqa: E402
from weighbridge.views.model_view import open_model  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]

BOTH = Limits(points=("*_proj.out", "*_proj.in", "*norm.out", "*mlp.act_fn.out", "model.layers.?.out", "lm_head.out"))


@pytest.fixture(autouse=True, scope="module")
def libraries() -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("onnxscript")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved("qwen2", tmp_path_factory.mktemp("onnx"))


@pytest.fixture(scope="module")
def exported(folder: Path) -> Path:
    stack = open_model(f"hf:{folder}").stack()
    assert isinstance(stack, Torch)
    stack.module.config.use_cache = False  # type: ignore[union-attr]
    ids = torch.tensor([list(row) for row in stack.drawn()])
    path = folder / "model.onnx"
    program: Any = torch.onnx.export(stack.module.eval(), (ids,), dynamo=True, input_names=["input_ids"], verbose=False)
    program.save(path, external_data=True)  # a large model has no other way
    return path


def measured(folder: Path, file: Path) -> Measurement:
    found = measure((open_model(f"hf:{folder}"), open_model(f"onnx:{file}")), {})
    assert isinstance(found, Measurement)
    return found


@pytest.mark.exhaustive
def test_an_exported_model_agrees_at_the_points_of_its_modules(folder: Path, exported: Path) -> None:
    verdict = judge({"points": measured(folder, exported)}, BOTH)
    assert verdict.outcome is Outcome.PASS
    assert len(verdict.looked) == 3 * (7 + 2 + 2 + 1 + 1) + 2  # linears, what enters o and down, norms, silu, layer
    assert verdict.figures["device"] == "cpu"
    assert verdict.figures["weights_compared"]


def test_a_bias_that_is_zero_in_the_file_is_found_where_it_is_added(folder: Path, exported: Path) -> None:
    model = onnx.load(exported)
    (bias,) = [one for one in model.graph.initializer if one.name == "model.layers.1.self_attn.q_proj.bias"]
    bias.CopyFrom(onnx.numpy_helper.from_array(0 * onnx.numpy_helper.to_array(bias), bias.name))
    onnx.save(model, folder / "changed.onnx")
    verdict = judge({"points": measured(folder, folder / "changed.onnx")}, BOTH)
    assert verdict.outcome is Outcome.FAIL
    assert [offence.place for offence in verdict.offences] == [bias.name, "model.layers.1.self_attn.q_proj.out"]


def test_no_other_provider_computes_in_the_place_of_the_one_asked_for(exported: Path) -> None:
    if not torch.cuda.is_available():  # whether the build of ONNX Runtime lists CUDA, or not
        found = open_model(f"onnx:{exported}?provider=CUDAExecutionProvider").stack()
        assert isinstance(found, Unmeasured)
        assert found.code == "no-cuda"
    with pytest.raises(SubjectError) as refused:
        open_model(f"onnx:{exported}?provider=NoSuchProvider").stack()
    assert refused.value.code == "onnx-provider"


def test_a_provider_that_leaves_operations_to_the_cpu_makes_no_session(exported: Path) -> None:
    if "AzureExecutionProvider" not in runtime.get_available_providers():
        pytest.skip("this build has no provider that leaves all to the CPU")
    with pytest.raises(SubjectError) as refused:
        open_model(f"onnx:{exported}?provider=AzureExecutionProvider").stack()
    assert refused.value.code == "onnx-session"


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.onnx").write_bytes(b"no protocol buffer")
    with pytest.raises(SubjectError) as refused:
        open_model(f"onnx:{tmp_path / 'a.onnx'}").stack()
    assert refused.value.code == "onnx-session"
    for spec, code in ((f"onnx:{tmp_path / 'a.onnx'}?device=cpu", "onnx-option"), ("onnx:none.onnx", "no-file")):
        with pytest.raises(SubjectError) as refused:
            open_model(spec)
        assert refused.value.code == code
