"""`weighbridge trace`, traces as candidates, and `compare` of two: a host writes, another judges."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.books import kept, watched
from tests.cli.conftest import Cli, Ended
from tests.forward.traces import EXAMPLES, entry, example, facts, trace, written

from weighbridge.cli import main
from weighbridge.core.data import data_path
from weighbridge.forward.trace_file import Device, open_trace, save

MODELS = data_path("verifiers") / "specimens" / "models"
GPT = f"{MODELS / 'tiny_gpt.py'}"
PARITY = ("verify", "builtin:forward-parity", "--gate", "GATE-PARITY-001", "--subject", f"reference={GPT}:reference")
CONTRACT = """\
weighbridge: contract/v0
id: parity
version: 1.0.0
title: An engine computes what the reference does
owner: o
subjects:
  reference: {{kind: model}}
  engine: {{kind: trace{path}}}
gates:
  - id: GATE-ENGINE
    title: The engine agrees at every point that it captured
    kind: forward-parity
    subjects: {{reference: {reference}, candidate: {candidate}}}
    with: {{{limits}}}
"""


def contract(
    folder: Path, path: str = "", reference: str = "reference", candidate: str = "engine", limits: str = ""
) -> Path:
    place = folder / "parity.yaml"
    said = CONTRACT.format(path=path and f", path: {path}", reference=reference, candidate=candidate, limits=limits)
    place.write_text(said, encoding="utf-8")
    return place


CAPTURE = """
import sys
from weighbridge.cli import main
words = sys.argv[1:]
for model, path in zip(words[::2], words[1::2]):
    sys.argv = ["weighbridge", "trace", "capture", model, path]
    try:
        main()
    except SystemExit as ended:
        assert not ended.code, ended.code
"""


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Return traces of the specimens, captured by another process."""
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("traces")
    found = {name: folder / f"{name}.trace" for name in ("fused", "fused_bfloat16", "bias_dropped")}
    words = [word for name, path in found.items() for word in (f"{GPT}:{name}", str(path))]
    done = subprocess.run((sys.executable, "-c", CAPTURE, *words), capture_output=True, text=True, check=True)
    assert done.stdout.count("42 points") == len(found)
    assert done.stdout.count("run twice with equal bits") == len(found)
    return found


@pytest.fixture(scope="module")
def fused(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a trace of one specimen, captured by this process."""
    pytest.importorskip("torch")
    path = tmp_path_factory.mktemp("fused") / "fused.trace"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["weighbridge", "trace", "capture", f"{GPT}:fused", str(path)])
        with pytest.raises(SystemExit) as ended:
            main()
    assert not ended.value.code
    return path


def judged(cli: Cli, candidate: object, *more: object) -> Ended:
    return cli(*PARITY, "--subject", f"candidate={candidate}", *more)


def specimen(name: str) -> Any:
    sys.path.insert(0, str(MODELS))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(MODELS))


# --- A trace as a candidate -------------------------------------------------------------------------------------------


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "code"), [("fused", 0), ("fused_bfloat16", 0), ("bias_dropped", 1)])
def test_a_trace_of_another_process_is_judged_as_the_model_itself(
    cli: Cli, captured: Mapping[str, Path], name: str, code: int
) -> None:
    ended = judged(cli, captured[name], "--verbose")
    assert ended.code == code, ended.out + ended.err
    live = cli(*PARITY, "--subject", f"candidate={GPT}:{name}", "--verbose")
    printed = [[line for line in one.lines if line.startswith("    ")] for one in (ended, live)]
    assert printed[0] == printed[1]
    assert "run twice with equal bits" in ended.out or code


@pytest.mark.slow
def test_a_trace_is_judged_without_the_candidates_code(cli: Cli, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    engine = tmp_path / "engine.py"
    engine.write_text(f"import sys\nsys.path.insert(0, {str(MODELS)!r})\nfrom tiny_gpt import fused as candidate\n")
    out = tmp_path / "engine.trace"
    assert cli("trace", "capture", f"{engine}:candidate", out).code == 0
    engine.unlink()
    shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
    words = (
        sys.executable,
        "-m",
        "weighbridge",
        *PARITY,
        "--subject",
        f"candidate={out}",
        "--evidence",
        tmp_path / "evidence",
    )
    done = subprocess.run(words, check=False, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "42 of 42 points within their limit" in done.stdout
    assert not [path for path in tmp_path.rglob("*") if path.suffix == ".py"]


@pytest.mark.slow
def test_a_trace_named_by_a_contract_needs_no_command_line_of_its_own(cli: Cli, fused: Path, tmp_path: Path) -> None:
    shutil.copy(fused, tmp_path / "engine.trace")
    path = contract(tmp_path, path="engine.trace")
    assert cli("lint", path).code == 0
    ended = cli("verify", path, "--subject", f"reference={GPT}:reference")
    assert ended.code == 0, ended.out + ended.err
    assert "engine.trace (fixture)" in ended.out or "engine.trace (synthetic)" in ended.out


def test_what_a_contract_calls_a_trace_is_never_run(cli: Cli, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    (tmp_path / "engine.py").write_text(f"open({str(ran)!r}, 'w')\ndef candidate(): pass\n")
    for place in ("engine.py", "engine.py:candidate"):
        path = contract(tmp_path, path=f'"{place}"')
        subject = ("--subject", f"reference={GPT}:reference")
        assert cli("verify", path, *subject).code == 4
        assert cli("verify", path, *subject, "--subject", f"engine={tmp_path / place}").code == 4
    assert not ran.exists()


@pytest.mark.slow
def test_a_trace_cannot_be_the_reference(cli: Cli, fused: Path, tmp_path: Path) -> None:
    ended = cli("lint", contract(tmp_path, reference="engine", candidate="reference"))
    assert ended.code == 2
    printed = "subject-kind 'engine' is a trace, the role 'reference' takes a model"
    assert printed in ended.out + ended.err
    ended = cli(*PARITY[:-1], f"reference={fused}", "--subject", f"candidate={GPT}:fused")
    assert ended.code == 3
    assert "a trace holds values, and no code that could be run again in float64 (no-code)" in ended.out


@pytest.mark.slow
def test_a_trace_of_other_inputs_is_blocked_and_one_sequence_shows_nothing(cli: Cli, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    ended = judged(cli, written(tmp_path / "a.trace"))
    assert (ended.code, "(inputs-differ)" in ended.out) == (3, True), ended.out
    (tmp_path / "one.json").write_text(json.dumps([list(range(24))]))
    captured = cli("trace", "capture", f"{GPT}:fused", tmp_path / "one.trace", "--tokens", tmp_path / "one.json")
    assert captured.code == 0, captured.err
    (tmp_path / "untold.py").write_text(
        f"import sys\nsys.path.insert(0, {str(MODELS)!r})\nimport tiny_gpt\n"
        "from weighbridge.forward.stacks import Torch\n"
        "def reference(): return Torch(module=tiny_gpt.seeded(tiny_gpt.TinyGPT()), taps=tiny_gpt.TAPS)\n"
    )
    reference = f"reference={tmp_path / 'untold.py'}:reference"
    ended = cli(*PARITY[:-1], reference, "--subject", f"candidate={tmp_path / 'one.trace'}")
    assert (ended.code, "1 different sequences of 24 tokens" in ended.out) == (3, True), ended.out


@pytest.mark.slow
def test_a_value_that_is_nan_in_a_trace_is_named(cli: Cli, fused: Path, tmp_path: Path) -> None:
    raw = bytearray(fused.read_bytes())
    found = open_trace(fused).tensors["L1.ffn.down"]
    raw[found.offset : found.offset + 4] = np.float32(np.nan).tobytes()
    (tmp_path / "nan.trace").write_bytes(raw)
    ended = judged(cli, tmp_path / "nan.trace")
    assert ended.code == 1
    assert "L1.ffn.down" in ended.out


@pytest.mark.slow
def test_a_candidate_that_does_not_repeat_itself_says_so_in_its_trace(cli: Cli, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "noisy.py").write_text(
        f"import sys\nsys.path.insert(0, {str(MODELS)!r})\nimport torch, tiny_gpt\n"
        "class Noisy(tiny_gpt.Block):\n"
        "    def forward(self, x):\n"
        "        return super().forward(x) * (1 + 1e-3 * torch.randn(1))\n"
        "def candidate():\n"
        "    model = tiny_gpt.seeded(tiny_gpt.TinyGPT())\n"
        "    model.layers[1].__class__ = Noisy\n"
        "    return tiny_gpt.forward(model)\n"
    )
    out = tmp_path / "noisy.trace"
    ended = cli("trace", "capture", f"{tmp_path / 'noisy.py'}:candidate", out)
    assert (ended.code, "points differ" in ended.out) == (0, True)
    noise = open_trace(out).facts.noise
    assert noise
    first = next(name for name in open_trace(out).facts.order if name in noise)
    assert (first, 1e-6 < (noise[first] or 0) < 1e-2) == ("L1.resid_out.out", True)
    ended = judged(cli, out)
    assert ended.code == 1
    assert "L1.resid_out.out: local error" in ended.out


@pytest.mark.slow
def test_a_trace_is_live_only_with_weights_files_and_an_observed_device(cli: Cli, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    (tmp_path / "mine.py").write_text(
        f"import sys\nsys.path.insert(0, {str(MODELS)!r})\nimport tiny_gpt, torch\nfrom dataclasses import replace\n"
        "def candidate():\n"
        "    model = tiny_gpt.TinyGPT(tiny_gpt.FusedAttention, tiny_gpt.FusedNorm)\n"
        f"    model.load_state_dict(torch.load({str(tmp_path / 'w.pt')!r}))\n"
        f"    return replace(tiny_gpt.forward(model), checkpoint={str(tmp_path / 'w.pt')!r})\n"
    )
    tiny_gpt = specimen("tiny_gpt")
    torch.save(tiny_gpt.seeded(tiny_gpt.TinyGPT()).state_dict(), tmp_path / "w.pt")
    out = tmp_path / "a.trace"
    assert cli("trace", "capture", f"{tmp_path / 'mine.py'}:candidate", out).code == 0
    assert set(open_trace(out).facts.files) == {"mine.py", "w.pt"}
    why = f"no book of a witness: start it with `weighbridge watch {out} -- CMD`"
    assert f"  origin     reported: {why}" in cli("trace", "check", out).lines
    ended = judged(cli, out)
    assert (f"candidate={out} (reported)" in ended.out, f"    reported: {why}" in ended.lines) == (True, True)
    watched(out)
    assert "  origin     live where it is bound by hand" in cli("trace", "check", out).lines
    assert f"candidate={out} (live)" in judged(cli, out).out
    trace = open_trace(out)
    typed = replace(trace.facts, device=Device(requested="cuda", observed="cuda"))
    save(trace, typed, tmp_path / "b.trace")
    (tmp_path / "b.trace").replace(out)  # edited: what it says of its device is no longer what the witness saw
    assert open_trace(out).facts.device.observed == "cuda"
    assert f"candidate={out} (reported)" in judged(cli, out).out
    assert "a.trace is no longer as what the witness saw at the end" in cli("trace", "check", out).out
    (bundle,) = sorted((tmp_path / ".weighbridge" / "bundles").iterdir(), key=lambda one: one.stat().st_mtime)[-1:]
    (measured,) = (bundle / "measurements").glob("forward_errors*.json")
    shutil.rmtree(kept(out))
    watched(out, {"cuda": False})  # typed under the eyes of a witness, who saw no device
    assert "it says cuda, and the witness saw no process of it hold" in cli("trace", "check", out).out
    basis = json.loads(measured.read_bytes())["measured"]["measurement"]["basis"]
    assert basis == {"run": "reported", "noise": "reported"}
    cli("trace", "capture", f"{GPT}:fused", out)
    assert "  origin     synthetic: it names no files" in cli("trace", "check", out).lines
    assert f"candidate={out} (synthetic)" in judged(cli, out).out


# --- Traces of other stacks -------------------------------------------------------------------------------------------


def held() -> tuple[dict[str, Any], list[list[int]], dict[str, Any]]:
    """Return what the tiny GPT by NumPy held, its tokens and its weights."""
    pytest.importorskip("torch")
    tiny_gpt, stack = specimen("tiny_gpt"), specimen("tiny_gpt_numpy").numpy_stack()
    return dict(stack.run(tiny_gpt.tokens())), tiny_gpt.tokens(), dict(stack.weights)


@pytest.mark.exhaustive
def test_the_writer_in_numpy_is_short_and_its_trace_is_judged(cli: Cli, tmp_path: Path) -> None:
    assert len((EXAMPLES / "write_trace.py").read_text(encoding="utf-8").splitlines()) <= 60
    points, tokens, weights = held()
    said = {"stack": "NumPy", "dtype": "float32", "tokens": tokens, "device": "cpu", "observed": "cpu"}
    example().write_trace(tmp_path / "a.trace", points, **said, weights=weights)
    ended = judged(cli, tmp_path / "a.trace")
    assert (ended.code, "42 of 42 points within their limit" in ended.out) == (0, True), ended.out
    points["L1.attn.k.post_bias"] = points["L1.attn.k.post_bias"] - weights["layers.1.attn.k.bias"]
    example().write_trace(tmp_path / "b.trace", points, **said, weights=weights)
    ended = judged(cli, tmp_path / "b.trace")
    assert ended.code == 3
    assert "L1.attn.k.post_bias" in ended.out
    weights["layers.1.attn.k.bias"] = weights["layers.1.attn.k.bias"] + 1
    example().write_trace(tmp_path / "c.trace", points, **said, weights=weights)
    ended = judged(cli, tmp_path / "c.trace")
    assert (ended.code, "layers.1.attn.k.bias: the weight differs" in ended.out) == (1, True)


@pytest.mark.slow
def test_the_shipped_contracts_take_what_is_compared_by_parameter(cli: Cli, tmp_path: Path) -> None:
    points, tokens, _ = held()
    kept = {name: values for name, values in points.items() if name != "embed"}
    example().write_trace(tmp_path / "a.trace", kept, stack="an engine", dtype="float32", tokens=tokens, device="cpu")
    bound = ("--subject", f"reference={GPT}:reference", "--subject", f"recorded={tmp_path / 'a.trace'}")
    recorded = ("verify", "builtin:recorded-parity", *bound, "--evidence", tmp_path / "e")
    here, unnamed = ("--param", "device=cpu"), ("--param", "other_weights=*")
    assert "so no weight was compared" in cli(*recorded, *here).out
    whole = cli(*recorded, *here, *unnamed)
    assert (whole.code, "embed: captured in the reference, not in the candidate" in whole.out) == (1, True)
    some = cli(*recorded, *here, *unnamed, "--param", "points=L?.*, logits")
    assert (some.code, "points within their limit" in some.out) == (0, True), some.out
    idle = cli(*recorded, *here, *unnamed, "--param", "points=L?.*, logit")
    assert (idle.code, "no capture point is named by logit" in idle.out) == (3, True)
    on_cuda = cli(*recorded, *unnamed)
    assert (on_cuda.code, "computed on cpu, the contract asks for cuda" in on_cuda.out) == (3, True)
    parity = (*PARITY, "--subject", f"candidate={tmp_path / 'a.trace'}", "--evidence", tmp_path / "f")
    assert cli(*parity, *unnamed, "--param", "points=logits").code == 0


@pytest.mark.exhaustive
def test_the_writer_in_cpp_compiles_and_its_trace_is_judged(cli: Cli, tmp_path: Path) -> None:
    compiler = next(filter(None, map(shutil.which, ("g++", "clang++", "c++"))), None)
    if compiler is None:
        pytest.skip("no C++ compiler here")
    points, tokens, _ = held()
    program = tmp_path / "write_trace"
    source = EXAMPLES / "write_trace.cpp"
    subprocess.run([compiler, "-std=c++17", "-Wall", "-Wextra", "-Werror", "-o", program, source], check=True)
    (tmp_path / "ids.txt").write_text("\n".join(" ".join(map(str, row)) for row in tokens))
    words = []
    for n, (name, values) in enumerate(points.items()):
        np.ascontiguousarray(values).tofile(tmp_path / f"{n}.raw")
        words.append(f"{name}:{values.shape[-1]}:{tmp_path / f'{n}.raw'}")
    out = tmp_path / "cpp.trace"
    said: list[str | Path] = [out, 'an "engine" in C++', "float32", "4", "24", tmp_path / "ids.txt"]
    subprocess.run([program, *said, *words], check=True)
    assert {name: open_trace(out).stored(name).tobytes() for name in points} == {
        name: values.tobytes() for name, values in points.items()
    }
    assert '  stack      an "engine" in C++' in cli("trace", "check", out).lines
    subject = ("--subject", f"reference={GPT}:reference", "--subject", f"engine={out}")
    ended = cli("verify", contract(tmp_path), *subject)
    assert (ended.code, "so no weight was compared" in ended.out) == (3, True), ended.out
    ended = cli("verify", contract(tmp_path, limits='other_weights: ["*"]'), *subject)
    assert (ended.code, "42 of 42 points within their limit" in ended.out) == (0, True), ended.out
    done = subprocess.run(
        [program, *said, words[0], words[0].replace(":64:", ":63:")], check=False, capture_output=True
    )
    assert (done.returncode, b"has 24576 bytes" in done.stderr) == (1, True)


def packed(folder: Path, said: Any, arrays: Mapping[str, Any]) -> Path:
    folder.mkdir()
    (folder / "facts.json").write_text(said if isinstance(said, str) else json.dumps(said))
    for name, values in arrays.items():
        np.save(folder / f"{name}.npy", values)
    return folder


def test_arrays_are_packed_and_steps_joined(cli: Cli, tmp_path: Path) -> None:
    whole = np.arange(2 * 5 * 4, dtype="f4").reshape(2, 5, 4)
    words = np.arange(2 * 5 * 6, dtype="u2").reshape(2, 5, 6)
    steps = {f"embed.step-{n:03}": part for n, part in enumerate((whole[:, :3], whole[:, 3:4], whole[:, 4:]))}
    folder = packed(tmp_path / "dumped", facts(), {**steps, "logits": words})
    ended = cli("trace", "pack", folder, tmp_path / "a.trace")
    assert (ended.code, ended.err) == (0, "")
    found = open_trace(tmp_path / "a.trace")
    assert (found.stored("embed") == whole).all()
    assert found.held_as("logits") == "bfloat16"
    assert (found.stored("logits").view("u2") == words).all()


ARRAY = np.zeros((2, 5, 4), "f4")
UNPACKED: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "a missing file": ("trace-steps", facts(), {"embed": ARRAY}),
    "a step left out": ("trace-steps", facts(), {"embed.step-000": ARRAY, "embed.step-002": ARRAY, "logits": ARRAY}),
    "a whole and steps": ("trace-steps", facts(), {"embed": ARRAY, "embed.step-000": ARRAY, "logits": ARRAY}),
    "a file of no point": ("trace-order", facts(), {"embed": ARRAY, "logits": ARRAY, "L0.out": ARRAY}),
    "two dimensions": ("point-shape", facts(), {"embed": ARRAY[0], "logits": ARRAY}),
    "another length": ("trace-shape", facts(), {"embed": ARRAY[:, :4], "logits": ARRAY}),
    "integers of a byte": ("point-shape", facts(), {"embed": ARRAY.astype("i1"), "logits": ARRAY}),
    "channels first": ("trace-shape", facts(), {"embed": np.asfortranarray(ARRAY), "logits": ARRAY}),
    "objects": ("npy-dtype", facts(), {"embed": ARRAY.astype(object), "logits": ARRAY}),
    "facts that are no JSON": ("json", "stack: x", {"embed": ARRAY, "logits": ARRAY}),
    "an unknown fact": ("trace-facts", facts(seed=1), {"embed": ARRAY, "logits": ARRAY}),
    "a path for a point": ("trace-steps", facts(order=["../embed", "logits"]), {"logits": ARRAY}),
}


@pytest.mark.parametrize("name", UNPACKED)
def test_a_folder_that_contradicts_itself_is_not_packed(cli: Cli, tmp_path: Path, name: str) -> None:
    code, said, arrays = UNPACKED[name]
    ended = cli("trace", "pack", packed(tmp_path / "dumped", said, arrays), tmp_path / "a.trace")
    assert (ended.code, ended.out) == (4, "")
    assert f"{code} " in ended.err
    assert [path.name for path in tmp_path.iterdir()] == ["dumped"]


# --- Capture and check ------------------------------------------------------------------------------------------------


def test_a_capture_takes_a_dtype_and_tokens(cli: Cli, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "ids.json").write_text("[[1, 2, 3], [4, 5, 6]]")
    words = ("--dtype", "bfloat16", "--tokens", tmp_path / "ids.json")
    assert cli("trace", "capture", f"{GPT}:fused", tmp_path / "a.trace", *words).code == 0
    found = cli("trace", "check", tmp_path / "a.trace", "--json")
    said = json.loads(found.out)
    assert said["facts"]["tokens"] == [[1, 2, 3], [4, 5, 6]]
    assert said["points"]["logits"] == {"dtype": "bfloat16", "shape": [2, 3, 96]}


@pytest.mark.parametrize(
    "text", ["{}", "[]", "[[]]", "[[1, 2], [3]]", "[[1, -2]]", '[["1"]]', "[[1.5]]", "[[true]]", "[1]"]
)
def test_tokens_that_are_none_are_refused(cli: Cli, tmp_path: Path, text: str) -> None:
    (tmp_path / "ids.json").write_text(text)
    ended = cli("trace", "capture", f"{GPT}:fused", tmp_path / "a.trace", "--tokens", tmp_path / "ids.json")
    assert (ended.code, "no-inputs" in ended.err) == (2, True)


@pytest.mark.parametrize(
    ("words", "code", "printed"),
    [
        ((f"{GPT}:none", "a.trace"), 4, "no-factory"),
        (("hf:nowhere", "a.trace"), 4, "no-file"),
        ((f"{GPT}:fused", "no/such/a.trace"), 2, "name a file in a folder that exists"),
        ((f"{GPT}:fused", "."), 2, "name a file in a folder that exists"),
    ],
)
def test_what_cannot_be_captured_leaves_nothing(
    cli: Cli, tmp_path: Path, words: tuple[str, str], code: int, printed: str
) -> None:
    pytest.importorskip("torch")
    place = tmp_path / "here"
    place.mkdir()
    ended = cli("trace", "capture", words[0], place / words[1])
    assert (ended.code, printed in ended.err) == (code, True), ended.err
    assert list(place.iterdir()) == []


def test_a_model_that_wants_cuda_is_blocked_where_there_is_none(cli: Cli, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    (tmp_path / "m.py").write_text("import torch\ndef make(): return torch.nn.Linear(2, 2).to('cuda')\n")
    ended = cli("trace", "capture", f"{tmp_path / 'm.py'}:make", tmp_path / "a.trace")
    assert (ended.code, "no-cuda" in ended.err) == (3, True)
    assert [path.name for path in tmp_path.iterdir() if path.name != "__pycache__"] == ["m.py"]


def test_a_trace_is_not_captured_again(cli: Cli, tmp_path: Path) -> None:
    ended = cli("trace", "capture", written(tmp_path / "a.trace"), tmp_path / "b.trace")
    assert (ended.code, "already-a-trace" in ended.err) == (2, True)


def test_checking_refuses_what_is_no_trace(cli: Cli, tmp_path: Path) -> None:
    ended = cli("trace", "check", written(tmp_path / "a.trace", logits=entry(6, 160, shape=[2, 4, 6])))
    assert ended.code == 4
    assert "safetensors-span" in ended.err
    assert cli("trace", "check", tmp_path / "none").code == 4


def test_what_a_trace_says_is_escaped(cli: Cli, tmp_path: Path) -> None:
    path = written(tmp_path / "a.trace", facts(stack="\x1b[2Jx\ny", device={"requested": "\u202ecpu"}))
    ended = cli("trace", "check", path)
    assert ended.code == 0
    assert not {"\x1b", "\u202e"} & set(ended.out)


# --- Compare ----------------------------------------------------------------------------------------------------------


def two(folder: Path) -> tuple[Path, Path]:
    points = {name: np.random.default_rng(0).standard_normal((2, 5, 8)).astype("f4") for name in ("embed", "logits")}
    trace(folder / "a.trace", points)
    points["logits"] = points["logits"].copy()
    points["logits"][1, 2, 3] += 1
    trace(folder / "b.trace", points)
    return folder / "a.trace", folder / "b.trace"


def test_two_traces_are_compared_bit_for_bit(cli: Cli, tmp_path: Path) -> None:
    one, other = two(tmp_path)
    same = cli("compare", one, one)
    assert (same.code, same.lines[1]) == (0, "  SAME: 2 of 2 points have equal bits")
    ended = cli("compare", one, other)
    assert ended.code == 1
    assert ended.lines[1:3] == [
        "  DIFFERENT: 1 of 2 points has equal bits",
        "  the first in order of computing that differs is logits",
    ]
    assert "at sequence 1, token 2" in ended.lines[3]
    assert "in channel 3; 98.8% of the elements equal" in ended.lines[3]
    (said,) = json.loads(cli("compare", one, other, "--json").out)
    assert (said["first"], said["points"]["embed"]["equal_share"]) == ("logits", 1.0)
    assert cli("compare", one, one, other).code == 1


def test_points_and_shapes_that_are_on_one_side_alone_differ(cli: Cli, tmp_path: Path) -> None:
    zeros = np.zeros((2, 5, 8), "f4")
    trace(tmp_path / "a", {"embed": zeros, "logits": zeros})
    trace(tmp_path / "b", {"embed": zeros[..., :4], "final.out": zeros})
    ended = cli("compare", tmp_path / "a", tmp_path / "b")
    assert ended.code == 1
    assert [line.strip() for line in ended.lines[3:]] == [
        "embed: [2, 5, 8] -> [2, 5, 4]", "logits: [2, 5, 8] -> not there", "final.out: not there -> [2, 5, 8]",
    ]  # fmt: skip


def test_traces_of_other_inputs_are_not_compared(cli: Cli, tmp_path: Path) -> None:
    one = written(tmp_path / "a.trace")
    other = written(tmp_path / "b.trace", facts(tokens=[[1, 2, 3, 4, 5], [5, 4, 3, 2, 1]]))
    ended = cli("compare", one, other)
    assert (ended.code, "inputs-differ" in ended.err) == (4, True)


def test_a_mixed_pair_and_options_of_checkpoints_are_refused(cli: Cli, tmp_path: Path) -> None:
    one, other = two(tmp_path)
    checkpoint = data_path("verifiers") / "specimens" / "checkpoints" / "bits.safetensors"
    assert (cli("compare", one, checkpoint).code, cli("compare", checkpoint, one).code) == (2, 2)
    ended = cli("compare", one, other, "--policy", "same")
    assert (ended.code, "mixed-pair" in ended.err) == (2, True)
    os.truncate(other, other.stat().st_size - 1)
    assert cli("compare", one, other).code == 4
