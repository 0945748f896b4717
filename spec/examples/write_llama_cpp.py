"""Write a trace (spec/trace.md) of llama.cpp by its eval callback: a Llama or Qwen2 in GGUF, on the CPU.

    pip install llama-cpp-cffi cffi numpy
    python write_llama_cpp.py model.gguf tokens.json engine.trace

tokens.json holds [[12, 7, 99], [5, 6, 7]]. A name alone does not say the state: llama.cpp calls a product, its sum with
the bias and its rotation alike `Qcur-0`, so what made it is asked as well.
"""

import json
import sys
from pathlib import Path

import numpy as np
from write_trace import write_trace

WHOLE = {
    ("inp_embd", "GET_ROWS"): "model.embed_tokens.out",
    ("result_norm", "MUL"): "model.norm.out",
    ("result_output", "MUL_MAT"): "lm_head.out",
}
LAYER = {  # the last of a name counts: the sum with the bias, where there is one
    ("attn_norm", "MUL"): "input_layernorm.out",
    ("Qcur", "MUL_MAT"): "self_attn.q_proj.out", ("Qcur", "ADD"): "self_attn.q_proj.out",
    ("Kcur", "MUL_MAT"): "self_attn.k_proj.out", ("Kcur", "ADD"): "self_attn.k_proj.out",
    ("Vcur", "MUL_MAT"): "self_attn.v_proj.out", ("Vcur", "ADD"): "self_attn.v_proj.out",
    ("Qcur", "ROPE"): "self_attn.attention.query.in", ("Kcur", "ROPE"): "self_attn.attention.key.in",
    ("kqv_out", "CONT"): "self_attn.o_proj.in",
    ("ffn_inp", "ADD"): "post_attention_layernorm.in", ("ffn_norm", "MUL"): "post_attention_layernorm.out",
    ("ffn_gate", "MUL_MAT"): "mlp.gate_proj.out", ("ffn_silu", "UNARY"): "mlp.act_fn.out",
    ("ffn_up", "MUL_MAT"): "mlp.up_proj.out", ("ffn_gate_par", "MUL"): "mlp.down_proj.in",
    ("ffn_swiglu", "GLU"): "mlp.down_proj.in", ("ffn_out", "MUL_MAT"): "mlp.down_proj.out", ("l_out", "ADD"): "out",
}  # fmt: skip


def nodes_of(model, rows, cache=0):
    """Yield by sequence the nodes that the callback saw: name, operation and values; `cache` is ggml's type of it."""
    from llama._llama_cpp_cpu import ffi, lib

    seen = []

    @ffi.callback("bool(struct ggml_tensor*, bool, void*)")
    def see(node, ask, _data):
        made_by = ffi.string(lib.ggml_op_name(node.op)).decode()
        if ask or node.type != 0 or made_by in {"VIEW", "RESHAPE", "PERMUTE", "TRANSPOSE"}:
            return True
        data = ffi.new("char[]", lib.ggml_nbytes(node))
        lib.ggml_backend_tensor_get(node, data, 0, len(data))
        flat, shape = np.frombuffer(bytes(ffi.buffer(data)), np.float32), [node.ne[at] for at in (3, 2, 1, 0)]
        values = np.lib.stride_tricks.as_strided(flat, shape, [node.nb[at] for at in (3, 2, 1, 0)]).copy()
        seen.append((ffi.string(node.name).decode(), made_by, values))
        return True

    lib.llama_backend_init()
    given, asked = lib.llama_model_default_params(), lib.llama_context_default_params()
    loaded = lib.llama_model_load_from_file(str(model).encode(), given)
    asked.n_ctx = asked.n_batch = asked.n_ubatch = max(256, len(rows[0]))
    asked.type_k = asked.type_v = cache  # 0 is float32, as the reference has none
    asked.cb_eval = see
    context = lib.llama_init_from_model(loaded, asked)
    for row in rows:
        seen.clear()
        lib.llama_kv_cache_clear(context)
        batch = lib.llama_batch_init(len(row), 0, 1)
        batch.n_tokens = len(row)
        for at, token in enumerate(row):
            batch.token[at], batch.pos[at], batch.n_seq_id[at], batch.logits[at] = token, at, 1, 1
            batch.seq_id[at][0] = 0
        if lib.llama_decode(context, batch):
            sys.exit("llama_decode failed")
        yield list(seen)
    lib.llama_free(context)
    lib.llama_model_free(loaded)


def points_of(nodes, tokens):
    """Return the points of one sequence, in the order of computing."""
    found, layer, before = {}, "", ""
    for name, made_by, values in nodes:
        stem, _, number = name.rpartition("-")
        layer = number if number.isdigit() else layer
        point = LAYER.get((stem, made_by), "")
        if before == "kqv_out" and made_by == "MUL_MAT":  # which has no name where it has no bias
            point = "self_attn.o_proj.out"
        before = stem
        point = f"model.layers.{layer}.{point}" if point else WHOLE.get((name, made_by))
        if point:
            found[point] = values.reshape(tokens, -1)
        if point and point.endswith("v_proj.out"):
            found[point.replace("v_proj.out", "attention.value.in")] = found[point]
    return found


if __name__ == "__main__":
    gguf, ids, out = map(Path, sys.argv[1:])
    rows = json.loads(ids.read_text())
    each = [points_of(nodes, len(rows[0])) for nodes in nodes_of(gguf, rows)]
    points = {name: np.stack([one[name] for one in each]) for name in each[0]}
    write_trace(out, points, stack="llama.cpp", dtype="float32", tokens=rows, device="cpu", observed="cpu")
