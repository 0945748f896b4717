"""A candidate that holds one dtype and multiplies in another: what it says of its products, and what they show."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tests.forward.tiny_models import CONFIGS, saved  # noqa: E402
from tests.verifiers.stacks import Layered, shown  # noqa: E402
from torch import nn  # noqa: E402

from weighbridge.core.errors import SubjectError  # noqa: E402
from weighbridge.core.model import Measurement, Outcome, Verdict  # noqa: E402
from weighbridge.forward.products import rounded  # noqa: E402
from weighbridge.forward.stacks import Stack, Torch  # noqa: E402
from weighbridge.forward.trace_file import TraceWriter, facts_of  # noqa: E402
from weighbridge.gates.families.local_errors import Limits  # noqa: E402
from weighbridge.gates.forward_parity import judge  # noqa: E402
from weighbridge.verifiers import own_weights  # noqa: E402
from weighbridge.verifiers.forward_errors import measure  # noqa: E402
from weighbridge.views.model_view import ModelView, open_model  # noqa: E402

LIKE = ("bfloat16", "float16", "q8_0", "int8_per_token", "fp8_e4m3")
BUGGED = "layers.1.up.out"


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.act, self.down = nn.LayerNorm(64), nn.Linear(64, 96), nn.SiLU(), nn.Linear(96, 64)

    def forward(self, x: Any) -> Any:
        return x + self.down(self.act(self.up(self.norm(x))))


class Small(Layered):
    def __init__(self) -> None:
        super().__init__(64, Layer)


def small() -> Any:
    torch.manual_seed(3)
    return Small()


class Rounding(Small):
    """An engine that holds float32 and rounds the factors of its products."""

    kind = ""

    def forward(self, ids: Any) -> Any:
        with rounded(self, {"*": self.kind}):
            return super().forward(ids)


class Autocast(Small):
    def forward(self, ids: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return super().forward(ids)


def engine(kind: str) -> Any:
    made = small()
    made.__class__ = Autocast if kind == "autocast_bfloat16" else type("Engine", (Rounding,), {"kind": kind})
    return made


def judged(module: Any, products: Any = "", **more: Any) -> Verdict:
    found = measure((shown(Torch(module=small())), shown(Torch(module=module, products=products))), more)
    assert isinstance(found, Measurement)
    return judge({"points": found}, Limits(other_weights=("*",)))


@pytest.mark.parametrize("kind", [*LIKE, "autocast_bfloat16"])
def test_an_engine_that_says_what_its_products_take_passes(kind: str) -> None:
    verdict = judged(engine(kind), kind)
    assert (verdict.outcome, verdict.code) == (Outcome.PASS, "pass")


@pytest.mark.parametrize("kind", [*LIKE, "autocast_bfloat16"])
def test_one_that_says_nothing_hears_what_to_write(kind: str) -> None:
    verdict = judged(engine(kind))
    assert (verdict.outcome, verdict.code) == (Outcome.BLOCKED, "products-unsaid")
    (offence,) = verdict.offences
    assert offence.place == "layers.0.up.out"
    same = {"int8_per_token": "q8_k"}  # so narrow a token is one block
    assert (offence.figures["products_like"], offence.figures["products"]) == (same.get(kind, kind), "nothing")


def test_one_that_says_another_rounding_is_reported_which_it_looks_like() -> None:
    verdict = judged(engine("fp8_e4m3"), "bfloat16")
    assert (verdict.outcome, verdict.code) == (Outcome.BLOCKED, "products-unsaid")
    assert verdict.offences[0].figures["products_like"] == "fp8_e4m3"
    assert verdict.offences[0].figures["products"] == "bfloat16"


@pytest.mark.parametrize(
    ("kind", "bug"),
    [
        pytest.param(kind, bug, marks=[pytest.mark.exhaustive] * (at % 3 != number))
        for at, kind in enumerate((*LIKE, "autocast_bfloat16"))
        for number, bug in enumerate(("bias", "rows", "block"))
    ],
)
def test_a_bug_in_such_an_engine_is_named(kind: str, bug: str) -> None:
    module = engine(kind)
    part = module.layers[1].up
    with torch.no_grad():
        if bug == "bias":
            part.bias.zero_()
        elif bug == "rows":
            part.weight[[3, 40]] = part.weight[[40, 3]]
        else:
            part.weight[7, 32:64] *= -1
    verdict = judged(module, kind)
    assert (verdict.outcome, [offence.place for offence in verdict.offences]) == (Outcome.FAIL, [BUGGED])


def test_a_bug_at_the_first_product_is_no_rounding() -> None:
    module = small()
    module.layers[0].up.bias.data.zero_()
    verdict = judged(module)
    assert (verdict.outcome, verdict.code) == (Outcome.FAIL, "diverged")


@pytest.mark.parametrize("said", ["fp8_e4m3", "q8_0", "bfloat16", "autocast_bfloat16"])
def test_a_candidate_that_is_more_exact_than_it_says_is_not_judged_by_what_it_says(said: str) -> None:
    verdict = judged(small(), said)
    assert (verdict.outcome, verdict.code) == (Outcome.BLOCKED, "products-otherwise")
    assert judged(engine("bfloat16"), "fp8_e4m3").code == "products-otherwise"


@pytest.mark.parametrize("said", [{"*": "autocast_bfloat16", "head": "float16"}, {"head": "autocast_bfloat16"}])
def test_autocast_is_said_of_the_whole(said: Any) -> None:
    with pytest.raises(SubjectError) as refused:
        judged(small(), said)
    assert refused.value.code == "products"


@pytest.mark.parametrize("said", [5, ["q8_0"], {"*": 8}, {3: "q8_0"}])
def test_what_is_no_text_is_refused(said: Any) -> None:
    with pytest.raises(SubjectError) as refused:
        judged(small(), said)
    assert refused.value.code == "not-a-forward"


def test_products_are_said_by_glob() -> None:
    module = small()
    up = module.layers[1].up
    with torch.no_grad():
        plain = up.forward
        up.forward = lambda x: plain(x.bfloat16().float())
        up.weight.copy_(up.weight.bfloat16().float())
    assert judged(module, {"layers.1.up": "bfloat16"}).outcome is Outcome.PASS
    assert judged(module).code == "products-unsaid"
    assert judged(module, {"layers.0.*": "bfloat16"}).code == "products-unsaid"


def test_a_weight_that_is_no_rounding_of_the_references_fails_though_it_may_differ() -> None:
    module = small()
    with torch.no_grad():
        module.layers[1].up.weight.add_(0.001 * torch.randn_like(module.layers[1].up.weight))
    assert judged(module, weights="candidate").outcome is Outcome.PASS
    module.layers[1].up.weight.data[[3, 40]] = module.layers[1].up.weight.data[[40, 3]]
    verdict = judged(module, weights="candidate")
    assert [(one.place, one.code) for one in verdict.offences] == [("layers.1.up.weight", "weights-unlike")]
    module.layers[1].up.weight.data.normal_()
    assert judged(module, weights="candidate").offences[0].code == "weights-unlike"


def test_no_vector_of_the_candidate_is_taken() -> None:
    module = small()
    module.layers[1].up.bias.data.zero_()
    verdict = judged(module, weights="candidate")
    assert (verdict.outcome, verdict.offences[0].place) == (Outcome.FAIL, BUGGED)


def test_an_unknown_rounding_is_refused() -> None:
    with pytest.raises(SubjectError) as refused:
        judged(small(), "q9")
    assert refused.value.code == "products"


# --- A file of ggml's blocks ------------------------------------------------------------------------------------------

PARTS = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v"}
PARTS |= {"self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up"}
PARTS |= {"mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
WHOLE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("transformers")
    return saved("qwen2", tmp_path_factory.mktemp("ggml"))


def written(path: Path, weights: Mapping[str, Any]) -> dict[str, Any]:
    """Write a GGUF file of Q8_0, and return what its blocks stand for."""
    out = gguf.GGUFWriter(path, "qwen2")
    out.add_block_count(3)
    out.add_head_count(4)
    out.add_head_count_kv(2)
    kind, stands_for = gguf.GGMLQuantizationType.Q8_0, {}
    for name, tensor in weights.items():
        stem, _, end = name.rpartition(".")
        place = WHOLE.get(stem) or "blk.{}.{}".format(stem.split(".")[2], PARTS[stem.split(".", 3)[3]])
        array = tensor.float().numpy()
        blocks = gguf.quants.quantize(array, kind) if array.ndim > 1 else array
        out.add_tensor(f"{place}.{end}", blocks, raw_dtype=kind if array.ndim > 1 else None)
        stands_for[name] = torch.from_numpy(gguf.quants.dequantize(blocks, kind).copy()) if array.ndim > 1 else tensor
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    return stands_for


def traced(folder: Path, place: Path, products: Any, **changes: Any) -> Path:
    """Write the trace of a stack that computes with the blocks, and the file beside it."""
    stack = open_model(f"hf:{folder}").stack()
    assert isinstance(stack, Torch)
    module: Any = stack.module
    module.load_state_dict(written(place / "model.gguf", dict(module.state_dict())))
    kept = Torch(module=module, products=products).prepared("float32")
    trace = kept.capture(
        stack.drawn(), place / "plain.trace", weights={}, products={"*_proj": "q8_0", "lm_head": "q8_0"}
    )
    digest = hashlib.sha256((place / "model.gguf").read_bytes()).hexdigest()
    facts: dict[str, Any] = {
        "stack": "an engine",
        "dtype": "float32",
        "device": {"requested": "cpu"},
        "products": products,
    }
    facts |= {"checkpoint": "model.gguf", "files": {"model.gguf": digest}, "order": list(trace.facts.order)}
    facts |= {"tokens": [list(row) for row in trace.facts.tokens], **changes}
    with TraceWriter(place / "engine.trace") as writer:
        for name in trace.facts.order:
            array = trace.stored(name)
            writer.write(name, np.ascontiguousarray(array).tobytes(), array.shape, str(array.dtype))
        writer.close(facts_of(facts, "facts"))
    return place / "engine.trace"


def verdict_of(folder: Path, path: Path, **limits: Any) -> Verdict:
    found = measure((open_model(f"hf:{folder}"), open_model(str(path))), {"weights": "candidate"})
    assert isinstance(found, Measurement)
    return judge({"points": found}, Limits(**{"other_weights": ("*",), **limits}))


def test_a_trace_that_names_its_file_is_judged_by_the_types_and_weights_in_it(folder: Path, tmp_path: Path) -> None:
    path = traced(folder, tmp_path, {"*": "ggml"})
    verdict = verdict_of(folder, path)
    assert verdict.outcome is Outcome.PASS
    assert verdict.figures["weights_compared"] == verdict.figures["weights_of"] == 39
    assert "23 matrices" in str(verdict.figures["taken"])


@pytest.mark.parametrize("options", [{}, {"weights": "candidate"}])
def test_a_candidates_file_is_mapped_and_dequantised_once(
    options: dict[str, str], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, plain = list[Path](), own_weights._mapped

    def mapped(path: Path, reference: Path) -> Any:
        asked.append(path)
        return plain(path, reference)

    monkeypatch.setattr(own_weights, "_mapped", mapped)
    views = open_model(f"hf:{folder}"), open_model(str(traced(folder, tmp_path, {"*": "ggml"})))
    assert isinstance(measure(views, options), Measurement)
    assert isinstance(measure(views, options), Measurement)
    assert len(asked) == 1


def test_a_tied_head_takes_what_its_table_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    monkeypatch.setitem(CONFIGS, "qwen2", {**CONFIGS["qwen2"], "tie_word_embeddings": True})
    folder = saved("qwen2", tmp_path)
    assert verdict_of(folder, traced(folder, tmp_path, {"*": "ggml"})).outcome is Outcome.PASS


def test_its_weights_differ_unless_the_contract_lets_them(folder: Path, tmp_path: Path) -> None:
    verdict = verdict_of(folder, traced(folder, tmp_path, {"*": "ggml"}), other_weights=())
    assert {one.code for one in verdict.offences} == {"weights-differ"}
    assert len(verdict.offences) == 23


@pytest.mark.parametrize("change", ["other bytes", "no file", "not named", "another folder"])
def test_a_file_that_is_not_the_one_that_was_read_is_refused(folder: Path, tmp_path: Path, change: str) -> None:
    (tmp_path / "in").mkdir()
    more: dict[str, Any] = {"not named": {"files": {}}, "another folder": {"checkpoint": "../model.gguf"}}
    path = traced(folder, tmp_path / "in", {"*": "ggml"}, **more.get(change, {}))
    if change == "other bytes":
        with (tmp_path / "in/model.gguf").open("r+b") as file:
            file.seek(-3, 2)
            file.write(b"abc")
    elif change == "no file":
        (tmp_path / "in/model.gguf").unlink()
    with pytest.raises(SubjectError) as refused:
        verdict_of(folder, path)
    assert refused.value.code == "weights-file"


def test_ggml_says_nothing_without_a_file() -> None:
    with pytest.raises(SubjectError) as refused:
        judged(small(), "ggml")
    assert refused.value.code == "products"


def test_a_stack_without_code_names_its_weights_by_its_checkpoint(folder: Path, tmp_path: Path) -> None:
    path = traced(folder, tmp_path, {"*": "ggml"})
    trace = open_model(str(path)).trace
    assert trace is not None
    values = {name: trace.stored(name) for name in trace.facts.order}
    stack = Stack(run=lambda _tokens: values, checkpoint=str(tmp_path / "model.gguf"), products="ggml")
    found = measure((open_model(f"hf:{folder}"), view_of(stack)), {"weights": "candidate"})
    assert isinstance(found, Measurement)
    assert judge({"points": found}, Limits(other_weights=("*",))).outcome is Outcome.PASS


def view_of(stack: Stack) -> ModelView:
    return shown(stack)
