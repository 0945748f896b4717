"""Which correct engines `forward-parity` passes, and which bugs it names in them: engine × arithmetic × bug.

    python benchmarks/foreign_engines.py [--only llama autocast torchao onnx] [--rows TEXT …]

llama.cpp runs by its eval callback in the wheel `llama-cpp-cffi`, torchao by its own; an engine that is not installed
is named and left out. Every run is measured and judged by the gate's own verifier and judge.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import importlib.util
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gguf
import numpy as np
import torch
import transformers

from weighbridge.core.model import Measurement, Verdict
from weighbridge.forward.stacks import Stack, Torch
from weighbridge.forward.trace_file import TraceWriter, facts_of
from weighbridge.gates.families.local_errors import Limits
from weighbridge.gates.forward_parity import judge
from weighbridge.verifiers.forward_errors import measure
from weighbridge.views.model_view import ModelView, open_model

sys.path.append(str(Path(__file__).resolve().parents[1] / "spec" / "examples"))
WRITER: Any = importlib.import_module("write_llama_cpp")
LAYERS, WIDTH, HIDDEN, VOCAB, HEADS, KEY_HEADS, CONTEXT = 2, 256, 512, 320, 4, 2, 256
BUGS = ("correct", "dropped bias", "swapped rows", "wrong block", "pre-bias capture")
WEIGHT, BIAS = "model.layers.1.mlp.up_proj.weight", "model.layers.1.self_attn.k_proj.bias"
PLACES = {
    "dropped bias": "model.layers.1.self_attn.k_proj.out", "swapped rows": "model.layers.1.mlp.up_proj.out",
    "wrong block": "model.layers.1.mlp.up_proj.out", "pre-bias capture": "model.layers.0.self_attn.q_proj.out",
}  # fmt: skip
PARTS = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
}  # fmt: skip
OTHERS = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def tiny(folder: Path) -> Any:
    """Save a Qwen2 of random weights, its vectors of noticeable size, and return it."""
    torch.manual_seed(1)
    sizes = {"vocab_size": VOCAB, "hidden_size": WIDTH, "num_hidden_layers": LAYERS, "intermediate_size": HIDDEN}
    heads = {"num_attention_heads": HEADS, "num_key_value_heads": KEY_HEADS, "max_position_embeddings": CONTEXT}
    ids = {"bos_token_id": 1, "eos_token_id": 1, "pad_token_id": 0, "tie_word_embeddings": False}
    config = transformers.AutoConfig.for_model("qwen2", **sizes, **heads, **ids)
    model = transformers.AutoModelForCausalLM.from_config(config)
    for weight in model.parameters():
        if weight.ndim == 1:
            weight.data += 0.1 * torch.randn_like(weight)
    model.save_pretrained(folder)
    return model


def broken(weights: Mapping[str, Any], bug: str) -> dict[str, Any]:
    """Return weights as a bug of a kernel would read them."""
    found = {name: one.clone() for name, one in weights.items()}
    if bug == "dropped bias":
        found[BIAS].zero_()
    elif bug == "swapped rows":
        found[WEIGHT][[3, 40]] = found[WEIGHT][[40, 3]]
    elif bug == "wrong block":
        found[WEIGHT][7, 32:64] *= -1
    return found


# --- llama.cpp --------------------------------------------------------------------------------------------------------


def ggml_name(name: str) -> str:
    """Return llama.cpp's name of a weight of Qwen2."""
    stem, _, kind = name.rpartition(".")
    if stem in OTHERS:
        return f"{OTHERS[stem]}.{kind}"
    _, _, layer, part = stem.split(".", 3)
    return f"blk.{layer}.{PARTS[part]}.{kind}"


def write_gguf(path: Path, weights: Mapping[str, Any], kind: str, config: Any) -> None:
    """Write a Qwen2 as GGUF, without a vocabulary, with matrices in one type, blocks as ggml itself makes them."""
    out = gguf.GGUFWriter(path, "qwen2")
    out.add_context_length(config.max_position_embeddings)
    out.add_embedding_length(config.hidden_size)
    out.add_block_count(config.num_hidden_layers)
    out.add_feed_forward_length(config.intermediate_size)
    out.add_head_count(config.num_attention_heads)
    out.add_head_count_kv(config.num_key_value_heads)
    out.add_rope_freq_base(config.rope_parameters["rope_theta"])
    out.add_layer_norm_rms_eps(config.rms_norm_eps)
    out.add_vocab_size(config.vocab_size)
    out.add_tokenizer_model("no_vocab")
    for name, tensor in weights.items():
        array, known = np.ascontiguousarray(tensor.float().numpy()), gguf.GGMLQuantizationType[kind]
        if array.ndim == 1 or kind == "F32":
            out.add_tensor(ggml_name(name), array)
            continue
        if kind in ("F16", "BF16"):
            data = tensor.to(torch.float16 if kind == "F16" else torch.bfloat16).view(torch.int16).numpy()
            out.add_tensor(ggml_name(name), data.view(np.uint8), raw_dtype=known)
            continue
        from llama._llama_cpp_cpu import ffi, lib

        block, size = gguf.GGML_QUANT_SIZES[known]
        data = np.zeros((array.shape[0], array.shape[1] // block * size), np.uint8)
        given, made = (ffi.from_buffer(one) for one in (array, data))
        lib.ggml_quantize_chunk(
            int(known), ffi.cast("float*", given), ffi.cast("void*", made), 0, *array.shape, ffi.NULL
        )
        out.add_tensor(ggml_name(name), data, raw_dtype=known)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def points_of(nodes: Sequence[Any], tokens: int, *, pre_bias: bool) -> dict[str, Any]:
    """Return points and values `[tokens, channels]` of one sequence, as the writer for llama.cpp names them."""
    found: dict[str, Any] = WRITER.points_of(nodes, tokens)
    if pre_bias:
        at = next(at for at, (name, made_by, _) in enumerate(nodes) if (name, made_by) == ("Qcur-0", "ADD"))
        product = next(values for _, made_by, values in reversed(nodes[:at]) if made_by == "MUL_MAT")
        found[PLACES["pre-bias capture"]] = product.reshape(tokens, -1)
    return found


def llama_trace(folder: Path, kind: str, bug: str, model: Any, said: Mapping[str, Any]) -> Path:
    """Run llama.cpp on a file with a bug in it, and write a trace that names the file without."""
    tokens = Torch(module=transformers.AutoModelForCausalLM.from_pretrained(folder / "hf")).drawn()
    weights = dict(model.state_dict())
    cache = said.get("products", {}).get("*.self_attn", "float32")
    whole, engine, path = folder / f"{kind}.gguf", folder / "engine.gguf", folder / "engine.trace"
    write_gguf(whole, weights, kind, model.config)
    write_gguf(engine, broken(weights, bug), kind, model.config)
    seen = WRITER.nodes_of(engine, tokens, {"float32": 0, "float16": 1}[cache])
    rows = [points_of(nodes, len(tokens[0]), pre_bias=bug == "pre-bias capture") for nodes in seen]
    files = {whole.name: hashlib.sha256(whole.read_bytes()).hexdigest()}
    facts: dict[str, Any] = {
        "stack": "llama.cpp by llama-cpp-cffi",
        "dtype": "float32",
        "files": files,
        "partial": True,
    }
    facts |= {"device": {"requested": "cpu", "observed": "cpu"}, "tokens": tokens, "order": list(rows[0])}
    facts |= {"checkpoint": whole.name, **said}
    with TraceWriter(path) as writer:
        for name in rows[0]:
            array = np.ascontiguousarray(np.stack([one[name] for one in rows]))
            writer.write(name, array.reshape(-1).view(np.uint8), array.shape, "float32")
        writer.close(facts_of(facts, str(path)))
    return path


def llama(folder: Path, model: Any) -> Iterator[tuple[str, str, Callable[[], tuple[Any, Any, dict[str, Any]]]]]:
    """Yield each type and bug, and what makes reference, candidate and options of the measurement."""
    for kind in ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_K", "Q6_K"):
        for bug in BUGS:

            def make(kind: str = kind, bug: str = bug) -> tuple[Any, Any, dict[str, Any]]:
                said = {"products": {"*": "ggml"}}
                path = llama_trace(folder, kind, bug, model, said)
                options = {} if kind == "F32" else {"weights": "candidate"}
                return open_model(f"hf:{folder / 'hf'}"), open_model(str(path)), options

            yield f"llama.cpp {kind}", bug, make

    for bug in BUGS:

        def cached(bug: str = bug) -> tuple[Any, Any, dict[str, Any]]:
            said = {"products": {"*": "ggml", "*.self_attn": "float16"}}
            path = llama_trace(folder, "F32", bug, model, said)
            return open_model(f"hf:{folder / 'hf'}"), open_model(str(path)), {}

        yield "llama.cpp F32, cache F16", bug, cached

    for kind in ("BF16", "F16", "Q8_0"):

        def unsaid(kind: str = kind) -> tuple[Any, Any, dict[str, Any]]:
            path = llama_trace(folder, kind, "correct", model, {})
            return open_model(f"hf:{folder / 'hf'}"), open_model(str(path)), {"weights": "candidate"}

        yield f"llama.cpp {kind}, nothing said", "correct", unsaid


# --- Engines of PyTorch -----------------------------------------------------------------------------------------------


def view(stack: Any) -> ModelView:
    """Return a model view of a stack that is there already."""
    return ModelView(spec="benchmark", source=SimpleNamespace(make=lambda: stack))


def modules(model: Any, change: Callable[[Any], Any], **said: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield each bug, and what makes a candidate of the model with it, changed into an engine's."""
    for bug in BUGS:

        def make(bug: str = bug) -> Any:
            module = copy.deepcopy(model)
            module.load_state_dict(broken(model.state_dict(), bug))
            found = view(Torch(module=change(module), **said))
            return before_bias(found, model, said) if bug == "pre-bias capture" else found

        yield bug, make


def before_bias(engine: ModelView, model: Any, said: Mapping[str, Any]) -> ModelView:
    """Return what an engine held, but for one point, captured before its bias was added."""
    stack, point, reference = engine.stack(), PLACES["pre-bias capture"], Torch(module=model)
    assert isinstance(stack, (Stack, Torch))
    dtype, tokens = stack.dtype or "float32", reference.drawn()
    trace = engine.capture(tokens, dtype, reference.points(tokens))
    values = {name: trace.stored(name) for name in trace.facts.order}
    bias = model.model.layers[0].self_attn.q_proj.bias.detach().numpy()
    values[point] = (values[point].astype(np.float32) - bias).astype(values[point].dtype)
    weights = dict(stack.own_weights()) if isinstance(stack, Torch) else stack.weights
    return view(Stack(run=lambda _tokens: values, weights=weights, dtype=dtype, **said))


def autocast(model: Any, dtype: torch.dtype) -> Any:
    """Return a model that computes under autocast, as a trainer runs it."""
    plain = type(model).forward

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        with torch.autocast("cpu", dtype):
            return plain(self, *args, **kwargs)

    model.__class__ = type("Autocast", (type(model),), {"forward": forward})
    return model


def onnx_engines(folder: Path, model: Any) -> Iterator[tuple[str, str, Callable[[], Any]]]:
    """Yield ONNX Runtime on exports in float32 and float16."""
    for dtype in (torch.float32, torch.float16):
        for bug in BUGS:

            def make(dtype: Any = dtype, bug: str = bug) -> Any:
                module = copy.deepcopy(model)
                module.load_state_dict(broken(model.state_dict(), bug))
                module.config.use_cache = False
                ids, path = torch.tensor(Torch(module=module).drawn()), folder / f"{dtype}-{bug}.onnx".replace(" ", "-")
                given: dict[str, Any] = {"dynamo": True, "input_names": ["input_ids"], "verbose": False}
                program: Any = torch.onnx.export(module.to(dtype).eval(), (ids,), **given)
                program.save(path, external_data=True)
                engine = open_model(f"onnx:{path}")
                if bug == "pre-bias capture":
                    engine = before_bias(engine, model, {"partial": True})
                return open_model(f"hf:{folder / 'hf'}"), engine, {}

            yield f"ONNX Runtime {str(dtype).removeprefix('torch.')}", bug, make


def judged(reference: Any, candidate: Any, options: Mapping[str, Any]) -> Verdict:
    """Return the verdict, every weight being let differ, so that a bug is found where it is used."""
    found = measure((reference, candidate), options)
    assert isinstance(found, Measurement), found
    return judge({"points": found}, Limits(other_weights=("*",)))


def pair(reference: str, make: Callable[[], Any], **options: Any) -> tuple[Any, Any, dict[str, Any]]:
    """Return a reference, what it is compared with, and how."""
    return open_model(reference), make(), options


def torch_engines(folder: Path, model: Any, only: Sequence[str]) -> Iterator[tuple[str, str, Callable[[], Any]]]:
    """Yield autocast and torchao, where they are asked for."""
    reference = f"hf:{folder / 'hf'}"
    if "autocast" in only:
        for dtype in (torch.bfloat16, torch.float16):
            name = str(dtype).removeprefix("torch.")
            for bug, make in modules(model, partial(autocast, dtype=dtype), products=f"autocast_{name}"):
                yield f"torch.autocast {name}", bug, partial(pair, reference, make)
        silent = dict(modules(model, partial(autocast, dtype=torch.bfloat16)))["correct"]
        yield "autocast bfloat16, nothing said", "correct", partial(pair, reference, silent)
    if "torchao" in only and importlib.util.find_spec("torchao"):
        from torchao import quantization

        kinds = {
            "int8 weights": ("Int8WeightOnlyConfig", ""),
            "int8 dynamic": ("Int8DynamicActivationInt8WeightConfig", "int8_per_token"),
        }
        for kind, (config, said) in kinds.items():

            def change(one: Any, config: str = config) -> Any:
                quantization.quantize_(one, getattr(quantization, config)())
                return one

            for bug, make in modules(model, change, products={"*_proj": said, "lm_head": said} if said else ""):
                yield f"torchao {kind}", bug, partial(pair, reference, make, weights="candidate")


def told(engine: str, bug: str, verdict: Verdict) -> str:
    """Return a row of the table; `!` marks one that is not as it should be."""
    figures = verdict.figures
    named = {one.place for one in verdict.offences}
    first = verdict.offences[0].place if named else figures["worst"]
    right = verdict.outcome.name == "PASS" if bug == "correct" else {PLACES[bug], WEIGHT} & named
    if "nothing said" in engine:
        right = verdict.code == "products-unsaid"
    share = f"{figures['budget_used']:.0%}" if "budget_used" in figures else f"{len(named)} named"
    return f"| {engine} | {bug} | {verdict.outcome.name} {verdict.code} | {first} | {share} | {'' if right else '!'} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="*", default=["llama", "autocast", "torchao", "onnx"])
    parser.add_argument("--rows", nargs="*", default=[])
    asked = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = tiny(folder / "hf")
        runs = list(torch_engines(folder, model, asked.only))
        if "llama" in asked.only:
            runs = [*llama(folder, model), *runs]
        if "onnx" in asked.only:
            runs += onnx_engines(folder, model)
        for engine, bug, make in runs:
            if not asked.rows or any(row in f"{engine} {bug}" for row in asked.rows):
                print(told(engine, bug, judged(*make())), flush=True)


if __name__ == "__main__":
    main()
