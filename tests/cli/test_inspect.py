"""inspect tells what looks wrong in one checkpoint alone, worst first, and gives no verdict."""

from __future__ import annotations

import itertools
import json
import math
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file
from tests.cli.conftest import Cli
from tests.cli.test_compare_packed import HERE
from tests.formats.files import Entry, safetensors

from weighbridge.core.data import data_path
from weighbridge.demo import files

SPECIMENS = data_path("verifiers") / "specimens" / "checkpoints"
WEIGHTS = 0.02 * np.random.default_rng(0).standard_normal((40, 50))


def saved(**tensors: Any) -> str:
    save_file({name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}, "x.safetensors")
    return "x.safetensors"


def test_says_what_looks_wrong_and_lists_those_tensors_first(cli: Cli) -> None:
    path = saved(a=WEIGHTS.astype("<f4"), b=np.ones(9, "<f4"), z=WEIGHTS.astype(ml_dtypes.bfloat16).view("<f2"))
    ended = cli("inspect", path)
    assert ended.code == 0
    assert ended.lines == [
        "x.safetensors: checkpoint",
        "  format safetensors, files 1, tensors 3, elements 4009, bytes 12036, dtypes F16: 1, F32: 2, metadata_keys 0",
        "  stored dtypes      1 ok, 1 mislabelled, 1 undecided (too few elements)",
        "  precision          F16 with 10 of 10 bits: 1, F32 with 0 of 23 bits: 1, F32 with 23 of 23 bits: 1",
        "  z                  F16  [40, 50]  4000 bytes  10 of 10 bits  mislabelled",
        "  a                  F32  [40, 50]  8000 bytes  23 of 23 bits  ok",
        "  b                  F32  [9]  36 bytes  0 of 23 bits",
        "  looks wrong        1",
        "    z: labelled F16, but its bits are like weights as BF16 (0.011 bits an element from the nearest law, "
        "1.304 as F16; 2000 sampled)",
        "  next               weighbridge verify builtin:checkpoint-health --subject checkpoint=x.safetensors",
    ]


def test_finds_nothing_wrong_where_nothing_is(cli: Cli) -> None:
    assert "  looks wrong        nothing" in cli("inspect", saved(a=WEIGHTS.astype("<f2"))).lines


def test_a_weight_of_a_size_that_none_is_trained_to_looks_wrong(cli: Cli) -> None:
    large = WEIGHTS.astype(ml_dtypes.bfloat16)
    large[3, 4] = 2.0**120  # of one flipped bit of an exponent
    mask = np.full((4, 4), -3e38, "<f4")
    ended = cli("inspect", saved(a=WEIGHTS.astype("<f4"), b=large, mask=mask, c=mask / 1e33), "--strict")
    said = "    b: absmax 1.32923e+36 is more than 1e+06 (bound of *)"
    assert (ended.code, ended.lines[-3:-1]) == (1, ["  looks wrong        1", said])


def test_an_adapter_is_said_to_need_its_base(cli: Cli) -> None:
    both = {"m.q.lora_A.weight": WEIGHTS[:4], "m.q.lora_B.weight": WEIGHTS[:, :4]}
    said = "  adapter            LoRA of 1 module, rank 4: needs its base; compare BASE MERGED --adapter DIR"
    assert said in cli("inspect", saved(**{name: one.astype("<f4") for name, one in both.items()})).lines
    assert not any("adapter" in line for line in cli("inspect", saved(a=WEIGHTS.astype("<f4"))).lines)


def test_what_only_the_source_of_a_file_can_show_is_looked_for_there(cli: Cli) -> None:
    writer = gguf.GGUFWriter("x.gguf", "llama")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    writer.add_tensor("blk.0.attn_q.weight", WEIGHTS.reshape(-1)[:1920].reshape(30, 64).astype("<f2"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    ended = cli("inspect", "x.gguf", "--strict")
    assert (ended.code, ended.lines[-1]) == (1, "  next               weighbridge compare SOURCE x.gguf")


def test_every_tensor_is_counted_under_what_it_came_to(cli: Cli) -> None:
    noise = np.random.default_rng(1).integers(0, 1 << 16, (10, 50), dtype=np.uint16).view("<f2")
    noise = np.where(np.isfinite(noise), noise, np.float16(1))
    output = cli("inspect", saved(a=WEIGHTS.astype("<f2"), b=WEIGHTS.astype("<f2"), n=noise)).lines
    assert "  stored dtypes      2 ok, 1 implausible" in output
    assert "  like no weights    n: looks wrong where more than half of the elements are so" in output


def test_of_a_file_of_blocks_comes_next_what_holds_it_to_its_source(cli: Cli, workplace: Path) -> None:
    files.write(workplace)
    ended = cli("inspect", "q8_0.gguf", "--strict")
    assert (ended.code, ended.lines[-1]) == (3, "  next               weighbridge compare SOURCE q8_0.gguf")
    health = "verify", "builtin:checkpoint-health", "--subject", "checkpoint=q8_0.gguf"
    output = cli(*health, "--expect-blocked", "GATE-HEALTH-002")
    assert output.code == 3
    assert any("`weighbridge compare SOURCE FILE`" in line for line in output.lines)
    assert "    --expect-blocked does not apply: what was looked at lacks this, not the host" in output.lines


@pytest.mark.parametrize(
    ("named", "stored", "width", "said"),
    [
        ("MOSTLY_Q8_0", "Q4_0", 64, "general.file_type is Q8_0, and no tensor is Q8_0: there are 1 Q4_0, 1 F32"),
        ("MOSTLY_F16", "Q4_0", 64, "general.file_type is F16, and no tensor is F16: there are 1 Q4_0, 1 F32"),
        ("MOSTLY_Q4_0", "Q4_0", 64, ""),
        ("MOSTLY_Q4_K_M", "Q5_0", 64, ""),  # a row of 64 is no block of 256, and takes what stands in for it
        ("MOSTLY_MXFP4_MOE", "Q8_0", 64, ""),  # of experts alone
    ],
)
def test_a_header_that_names_a_type_that_no_tensor_is_of_looks_wrong(
    cli: Cli, named: str, stored: str, width: int, said: str
) -> None:
    writer, dtype = gguf.GGUFWriter("x.gguf", "llama"), gguf.GGMLQuantizationType[stored]
    writer.add_file_type(gguf.LlamaFileType[named])
    values = np.random.default_rng(0).standard_normal((16, width), "<f4")
    writer.add_tensor("blk.0.attn_q.weight", gguf.quants.quantize(values, dtype), raw_dtype=dtype)
    writer.add_tensor("output_norm.weight", values[0])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    ended = cli("inspect", "x.gguf", "--strict")
    assert (ended.code, f"    {said}" in ended.lines if said else True) == (
        1 if said else 3,
        True,
    )  # no dtype can be decided


def test_a_type_that_is_not_decoded_could_not_be_told_and_is_no_checkpoint_that_was_looked_at(cli: Cli) -> None:
    writer = gguf.GGUFWriter("x.gguf", "llama")
    scaled = np.concatenate([np.full(1, np.nan, "<f4").view(np.uint8), np.ones(288, np.uint8)])  # a block of Q8_K
    writer.add_tensor("blk.0.attn_q.weight", np.tile(scaled, (4, 1)), raw_dtype=gguf.GGMLQuantizationType.Q8_K)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    ended = cli("inspect", "x.gguf", "--strict")
    said = (
        "blk.0.attn_q.weight: Q8_K of [4, 256] is not decoded here, so whether it holds NaN or infinities is not known"
    )
    assert (ended.code, f"    {said}" in ended.lines) == (3, True)


def test_codes_without_scales_are_named_by_that_and_not_by_the_numbers_of_their_groups(
    cli: Cli, workplace: Path
) -> None:
    groups = np.arange(64, dtype="<i4") // 32
    parts = {"qweight": np.arange(512, dtype="<i4").reshape(8, 64), "g_idx": groups}
    names = [f"model.layers.0.{name}_proj" for name in ("q", "v")]
    packed = {
        f"{name}.{part}": one + (part == "qweight") * at for at, name in enumerate(names) for part, one in parts.items()
    }
    save_file(packed, workplace / "model.safetensors")
    (workplace / "config.json").write_text(json.dumps({"quantization_config": {"quant_method": "gptq", "bits": 4}}))
    said = "gptq (4 bits), but there is no model.layers.0.q_proj.scales (+1 more packing)"
    lines = cli("inspect", ".").lines
    assert lines[lines.index("  looks wrong        2") + 1] == f"    model.layers.0.q_proj.qweight: {said}"


def test_a_file_without_tensors_is_not_said_to_look_right(cli: Cli) -> None:
    torch = pytest.importorskip("torch")
    weight = torch.nn.Parameter(torch.zeros(1))
    schedule = torch.optim.lr_scheduler.StepLR(torch.optim.SGD([weight], lr=0.1), 5)
    torch.save(schedule.state_dict(), "scheduler.pt")
    ended = cli("inspect", "scheduler.pt")
    assert ended.code == 0
    assert "  looks wrong        there is no tensor, so nothing was looked at" in ended.lines


def test_one_weight_under_two_names_is_no_copy_of_another(cli: Cli) -> None:
    """A module of Lightning's that also keeps its model under another name had sixteen of them."""
    torch = pytest.importorskip("torch")
    weight = torch.randn(40, 50)
    torch.save({"net.w": weight, "ref.w": weight}, "tied.pt")
    assert cli("inspect", "tied.pt", "--strict").code == 0
    torch.save({"net.w": weight, "ref.w": weight.clone()}, "copied.pt")
    ended = cli("inspect", "copied.pt", "--strict")
    assert (ended.code, "ref.w: byte for byte the same as net.w" in ended.out) == (1, True)


@pytest.mark.parametrize(
    ("head", "output"),
    [
        (b"\x1c\0\0\0ABC3" + bytes(40), "is of no format that is known"),
        (b"\x1c\0\0\0TFL3" + bytes(40), "is a TensorFlow Lite model"),
        (b"\x81\xa6params" + b"\x81\xa1w\x01" * 20, "is MessagePack"),  # without a zero byte
    ],
)
def test_a_binary_file_that_is_not_read_is_refused_as_a_checkpoint(cli: Cli, head: bytes, output: str) -> None:
    Path("model").write_bytes(head)
    ended = cli("inspect", "model")
    assert ended.code == 4
    assert f"checkpoint-format {output}" in ended.err
    assert "CSV" not in ended.out + ended.err


def test_json_holds_findings_labels_health_and_every_tensor(cli: Cli) -> None:
    output = json.loads(cli("inspect", SPECIMENS / "unhealthy.safetensors", "--json").out)
    assert [(finding["place"], finding["code"]) for finding in output["findings"]] == [
        ("../a", "not-finite"), ("../a", "name"), ("c.zero", "all-zero"), ("g", "repeated"), ("h.fp8", "not-finite"),
    ]  # fmt: skip
    assert output["findings"][0]["gate"] == "checkpoint-integrity"
    assert output["labels"]["decided"] == 0
    assert output["health"]["tensors"] == 8
    assert output["table"]["f"] == {
        "dtype": "F32", "shape": [2], "bytes": 8, "label": "undecided", "why": "too few elements", "used_bits": 0,
        "mantissa_bits": 23,
    }  # fmt: skip


def test_all_lists_every_finding_and_otherwise_twelve_lines_count_the_rest(cli: Cli) -> None:
    path = saved(**{f"w{at:02}": np.full((2, 2), np.nan, "<f4") for at in range(30)})
    few, every = cli("inspect", path).lines, cli("inspect", path, "--all").lines
    assert (len(few), few.count("  looks wrong        30"), few.count("  +28 more")) == (12, 1, 1)
    assert "    w00: 4 NaN and 0 infinities in 4 elements (+29 more not-finite)" in few
    assert sum(line.endswith("4 NaN and 0 infinities in 4 elements") for line in every) == 30


def test_the_first_values_are_shown_decoded_whatever_their_dtype(cli: Cli) -> None:
    values = np.linspace(-1, 1, 64).astype("<f4").reshape(2, 32)
    writer = gguf.GGUFWriter("m.gguf", "llama")
    for name, array in (("a.f16", values.astype("<f2")), ("a.f32", values), ("b", values)):
        writer.add_tensor(name, array)
    packed = gguf.quantize(values, gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("a.q8", packed, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    read = gguf.dequantize(packed, gguf.GGMLQuantizationType.Q8_0)[0, :3]
    assert cli("inspect", "m.gguf", "--values", "3", "a.*").lines == [
        "a.f16                                    F16      [2, 32]  -1.0, -0.9682617, -0.93652344",
        "a.f32                                    F32      [2, 32]  -1.0, -0.96825397, -0.93650794",
        f"a.q8                                     Q8_0     [2, 32]  {', '.join(map(str, read))}",
    ]
    output = json.loads(cli("inspect", "m.gguf", "--values", "2", "b", "--json").out)
    row = {"dtype": "F32", "shape": [2, 32], "bytes": 256, "values": [-1.0, -0.96825397]}
    assert output == {"file": "m.gguf", "values": {"b": row}}


def test_whole_numbers_stay_whole_and_what_has_no_values_is_said(cli: Cli) -> None:
    path = saved(big=np.array([2**63 - 1]), empty=WEIGHTS[:0], flag=np.array([True]), odd=np.array([np.nan, -np.inf]))
    shown = [line.split("]  ")[1] for line in cli("inspect", path, "--values", "9", "*").lines]
    assert shown == ["9223372036854775807", "no value", "not decoded", "nan, -inf"]


def test_values_of_no_tensor_and_of_a_run_are_refused(cli: Cli) -> None:
    ended = cli("inspect", saved(a=WEIGHTS), "--values", "1", "norm*")
    assert ended.code == 2
    assert "values none of 1 names matches 'norm*'" in ended.err
    Path("steps.csv").write_text("step,loss\n1,2\n")
    ended = cli("inspect", "steps.csv", "--values", "1", "*")
    assert (ended.code, "is a run log" in ended.err) == (2, True)


def test_all_tells_mean_spread_least_and_largest(cli: Cli) -> None:
    path = saved(a=np.array([[-1, 3], [0, 2]], "<f4"), flag=np.array([True]))
    assert [line.partition("bits")[2] for line in cli("inspect", path, "--all").lines[-6:-4]] == [
        "  mean 1, std 1.581, -1 to 3", ""
    ]  # fmt: skip
    row = json.loads(cli("inspect", path, "--all", "--json").out)["table"]["a"]
    assert [row[name] for name in ("mean", "std", "min", "max")] == [1.0, 1.58113883, -1.0, 3.0]


def test_headers_alone_read_no_values(cli: Cli) -> None:
    output = json.loads(cli("inspect", SPECIMENS / "unhealthy.safetensors", "--headers", "--json").out)
    assert set(output) == {"file", "kind", "facts", "table"}


def test_an_unreadable_file_is_4(cli: Cli) -> None:
    ended = cli("inspect", SPECIMENS / "damaged" / "truncated.safetensors")
    assert (ended.code, ended.out) == (4, "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "code", "gate"),
    [
        (None, 0, ""),
        (lambda words: words.view(ml_dtypes.bfloat16), 1, "GATE-HEALTH-002"),
        (lambda words: words.byteswap(), 1, "GATE-HEALTH-002"),
        (lambda words: np.where(np.arange(words.size).reshape(words.shape) < 70_000, words, 0), 1, "GATE-HEALTH-001"),
    ],
)
def test_the_starter_contract_judges_a_checkpoint_as_it_stands(cli: Cli, damage: Any, code: int, gate: str) -> None:
    words = np.resize(np.random.default_rng(1).standard_normal(99_991) * 0.02, (300, 333)).astype("<f2")
    path = saved(a=WEIGHTS.astype("<f2"), w=damage(words) if damage else words)
    ended = cli("verify", "builtin:checkpoint-health", "--subject", f"checkpoint={path}")
    assert ended.code == code
    assert all(name in ended.out for name in [gate, "GATE-HEALTH-003"])
    assert "()" not in ended.out


def test_tensors_that_lack_half_of_their_columns_are_counted_among_tensors_and_files(cli: Cli) -> None:
    half = WEIGHTS.astype("<f4").reshape(40, 50) * (np.arange(50) < 25)
    path = saved(**{f"l.{at}.w": half + at * (np.arange(50) < 1) for at in range(3)}, whole=WEIGHTS.astype("<f4"))
    ended = cli("verify", "builtin:checkpoint-health", "--gate", "GATE-HEALTH-001", "--subject", f"checkpoint={path}")
    said = "3 of 5 tensors and files: the last 25 columns of [40, 50] are zero in every row (3 l.*.w)"
    assert (ended.code, f"    {said}" in ended.lines) == (1, True)


def test_the_starter_contract_refuses_a_folder_of_two_revisions(cli: Cli, workplace: Path) -> None:
    shutil.copytree(SPECIMENS / "left-over", workplace / "x")
    ended = cli("verify", "builtin:checkpoint-health", "--subject", "checkpoint=x")
    assert ended.code == 4
    assert "model.safetensors beside model.safetensors.index.json: transformers loads the first" in ended.out
    ended = cli("verify", "builtin:checkpoint-health", "--subject", "checkpoint=x/model.safetensors.index.json")
    assert ended.code == 1
    assert "the index declares 56 bytes of tensors, its shards hold 44" in ended.out


@pytest.mark.parametrize("words", [(), ("--json",), ("--all",), ("--values", 2, "*")])
def test_no_name_of_a_tensor_commands_the_job_that_looks_at_it(
    cli: Cli, workplace: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[object, ...]
) -> None:
    """GitHub takes `::` at the start of a line, and `##[` anywhere in one, for a command; Azure takes `##vso[`."""
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    names = ("::error::x", "  ::set-output name=x::y", "##[error]x", "w ##[error]x", "##vso[task.setvariable]x")
    save_file({name: np.full(4, np.nan, np.float32) for name in names}, "a.safetensors")
    ended = cli("inspect", "a.safetensors", *words)
    assert ended.code == 0
    printed = ended.out + ended.err
    assert "##[" not in printed
    assert "##vso[" not in printed
    assert not [line for line in printed.splitlines() if line.lstrip().startswith("::")]
    if words == ("--json",):
        assert set(json.loads(ended.out)["table"]) == set(names)


@pytest.mark.slow
def test_of_ranks_each_is_judged_and_other_folders_of_runs_name_them(cli: Cli, workplace: Path) -> None:
    wrapped = data_path("verifiers") / "specimens" / "runs" / "wrapped"
    for name in ("ranks/rank-0", "ranks/rank-1", "runs/a", "runs/b"):
        shutil.copytree(wrapped, workplace / name)
    ended = cli("inspect", "ranks")
    assert (ended.code, ended.err) == (0, "")
    alone = cli("inspect", "ranks/rank-0").lines
    passed = [
        int(next(line for line in lines if line.startswith("  gates")).split()[1]) for lines in (ended.lines, alone)
    ]
    assert passed[0] == 2 * passed[1] > 0
    ended = cli("inspect", "runs")
    assert "not-a-run 2 run directories: a, b" in ended.err
    assert "at a time, such as runs/a" in ended.err
    assert cli("inspect", "runs/a").code == 0
    shutil.rmtree(workplace / "runs" / "b")
    (workplace / "runs" / "ckpt.pt").write_bytes(b"PK")  # a training script keeps its own files beside
    ended = cli("inspect", "runs")
    assert "a folder with one run in it, a\n  bind runs/a" in ended.err
    shutil.copytree(wrapped, workplace / "runs" / "b")
    ended = cli("compare", "runs/a", "runs/b")
    assert "this is a run directory (checkpoint-none)" in ended.out + ended.err


def trained(path: Path, losses: list[float], **columns: list[float]) -> None:
    rows = [
        {"step": at, "loss": loss, **{name: one[at] for name, one in columns.items()}} for at, loss in enumerate(losses)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_a_log_is_judged_by_what_holds_of_every_training_and_strict_says_so(cli: Cli, workplace: Path) -> None:
    chance = np.random.default_rng(0)
    falling = [float(2 + 4 * np.exp(-at / 30) + chance.normal(0, 0.02)) for at in range(120)]
    trained(workplace / "good.jsonl", falling)
    ended = cli("inspect", "good.jsonl", "--strict")
    assert (ended.code, "  looks wrong        nothing" in ended.lines) == (0, True)
    assert ended.lines[-1] == "  next               weighbridge verify builtin:training-log --subject run=good.jsonl"
    norms = [float("nan") if at % 4 == 0 else float(chance.lognormal()) for at in range(120)]
    trained(workplace / "bad.jsonl", falling, grad_norm=norms)
    ended = cli("inspect", "bad.jsonl", "--strict")
    assert ended.code == 1
    assert any(
        line.startswith("    grad_norm: ") for line in ended.lines[ended.lines.index("  looks wrong        1") :]
    )
    trained(workplace / "short.jsonl", falling[:4])
    ended = cli("inspect", "short.jsonl", "--strict")
    assert (ended.code, "  looks wrong        nothing" in ended.lines) == (3, True)
    trained(workplace / "short.jsonl", falling[:4], grad_norm=[1.0, 1.5, 1.25, 1.75])
    assert cli("inspect", "short.jsonl", "--strict").code == 3  # a norm that is in order shows nothing of the loss
    judged = json.loads(cli("inspect", "bad.jsonl", "--json").out)["judged"]
    assert {one["outcome"] for one in judged} >= {"PASS", "FAIL", "NOT_APPLICABLE"}


GOOD = [2 + 4 * 0.97**at + 0.01 * (at * 7919 % 13) for at in range(60)]
NAN = math.nan


def beside(path: str, **columns: Callable[[int], float | None]) -> None:
    """Write sixty good rows, as JSON or as a table without an empty cell, with what stands beside the loss at each."""
    found = (
        {"step": at, "loss": loss, **{name: of(at) for name, of in columns.items()}} for at, loss in enumerate(GOOD)
    )
    rows = [{name: cell for name, cell in row.items() if cell is not None} for row in found]
    table = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
    Path(path).write_text("\n".join(table if path.endswith(".csv") else map(json.dumps, rows)) + "\n")


def every(step: int, number: float | None, other: float | None = None) -> Callable[[int], float | None]:
    """Return what has a number at every so many steps, and something else between."""
    return lambda at: number if at % step == step - 1 else other


def falling(step: int) -> Callable[[int], float]:
    """Return an evaluation that falls, at every so many steps, with NaN between."""
    return lambda at: 3 - at / 60 + 0.003 * (at * 31 % 17) if at % step == step - 1 else NAN


LOSSES: tuple[tuple[str, str, Callable[[int], float | None], int], ...] = (  # and how many are none
    ("a.jsonl", "eval_loss", every(10, NAN), 6),
    ("a.jsonl", "eval_loss", lambda at: (NAN if at == 29 else 3 - at / 60) if at % 10 == 9 else None, 1),
    ("a.jsonl", "eval_wikitext_loss", every(10, math.inf), 6),
    ("a.jsonl", "learning_rate", lambda at: NAN if at == 30 else 1e-3 - at * 1e-5, 1),
    ("a.csv", "val_loss", every(1, NAN), 60),
    ("a.csv", "val_loss", lambda at: NAN if at > 1 else 3.0 - at / 60, 58),
    ("a.csv", "valid_loss", lambda at: NAN if at > 29 else falling(5)(at), 54),
    ("a.csv", "test/loss", lambda at: NAN if at == 30 else 3 - at / 60, 1),
)


@pytest.mark.parametrize(
    ("path", "name", "cells", "many"),
    [pytest.param(*one, marks=[pytest.mark.exhaustive] * (at % 3 != 1)) for at, one in enumerate(LOSSES)],
)
def test_a_loss_beside_or_a_rate_that_is_nan_is_red(
    path: str, name: str, cells: Callable[[int], float | None], many: int, cli: Cli
) -> None:
    beside(path, **{name: cells})
    ended = cli("inspect", path, "--strict")
    assert ended.code == 1
    assert any(" infinite of " in line for line in ended.lines)
    judged = json.loads(
        cli("verify", "builtin:training-log", "--subject", f"run={path}", "--json", "--no-evidence").out
    )
    (finite,) = (one for of in judged for one in of["findings"] if one["gate"] == "GATE-LOG-FINITE")
    (offence,) = finite["offences"]
    assert (offence["code"], offence["figures"]["nan"] + offence["figures"]["infinite"]) == ("non-finite-beside", many)


@pytest.mark.parametrize("name", ["eval_accuracy", "my_metric"])
@pytest.mark.parametrize("often", [1, 10])
def test_a_metric_that_is_nan_throughout_looks_wrong_and_breaks_nothing(name: str, often: int, cli: Cli) -> None:
    beside("a.jsonl", **{name: every(often, NAN)})
    ended = cli("inspect", "a.jsonl", "--strict")
    assert (ended.code, cli("inspect", "--strict=all", "a.jsonl").code) == (0, 1)  # advice
    many = 60 // often
    says = (
        f"    {name}: {many} of {many} samples are NaN, and none of the last {many} is finite, so that it shows nothing"
    )
    assert ended.lines[ended.lines.index("  looks wrong        1 (1 as advice)") + 1] == says
    assert cli("verify", "builtin:training-log", "--subject", "run=a.jsonl", "--no-evidence").code == 0


@pytest.mark.parametrize(
    ("path", "name", "cells"),
    [
        ("a.csv", "dev_loss", falling(10)),  # NaN where nothing was evaluated
        ("a.csv", "dev_loss", falling(7)),
        ("a.csv", "test_loss", lambda at: 3.0 if at == 59 else NAN),
        ("a.csv", "eval_loss_so_far", lambda at: math.inf if at < 10 else 3 - at // 10 / 6),
        ("a.csv", "valid/loss_epoch", lambda at: NAN if at < 10 else 3 - at // 10 / 6 + 0.001 * (at * 31 % 17)),
        ("a.jsonl", "best_val_loss", lambda at: math.inf if at < 30 else 3 - at // 10 / 6),
        ("a.jsonl", "bbox/APs", every(10, NAN)),  # no object is small
        ("a.jsonl", "rollout/ep_rew_mean", lambda at: NAN if at < 58 else at / 7),  # no episode had ended
        ("a.jsonl", "perplexity", lambda at: math.inf if at < 40 else 200.0 - at),
        ("a.jsonl", "eval_auc", every(20, NAN)),  # three are too few
    ],
)
def test_nan_where_nothing_was_measured_is_none_of_a_fault(
    path: str, name: str, cells: Callable[[int], float | None], cli: Cli
) -> None:
    beside(path, **{name: cells})
    assert cli("inspect", path, "--strict").code == 0


def test_a_single_row_whose_loss_is_nan_looks_wrong(cli: Cli, workplace: Path) -> None:
    (workplace / "one.jsonl").write_text('{"step": 1, "loss": NaN}\n')
    ended = cli("inspect", "one.jsonl", "--strict")
    assert (ended.code, "    loss: 1 NaN and 0 infinite of 1 sample, first at step 1" in ended.lines) == (1, True)


def out(folder: Path, losses: list[float], *, bad_from: int = 99, **columns: list[float]) -> None:
    """Write what a Trainer leaves: its state, a model, and three checkpoints, NaN in those from a step on."""
    folder.mkdir()
    rows = [
        {"step": at + 1, "loss": loss, **{name: one[at] for name, one in columns.items()}}
        for at, loss in enumerate(losses)
    ]
    steps = len(losses)
    (folder / "trainer_state.json").write_text(
        json.dumps({"global_step": steps, "max_steps": steps, "log_history": rows})
    )
    for at, name in ((20, "checkpoint-20"), (40, "checkpoint-40"), (60, "checkpoint-60"), (60, ".")):
        (folder / name).mkdir(exist_ok=True)
        weight = WEIGHTS.astype("<f4") * (1 + at / 100)
        save_file({"w": np.full_like(weight, np.nan) if at > bad_from else weight}, folder / name / "model.safetensors")
    (folder / "training_args.bin").write_bytes(b"x")


def test_a_trainers_folder_is_looked_at_as_a_whole(cli: Cli, workplace: Path) -> None:
    out(workplace / "good", GOOD)
    ended = cli("inspect", "good", "--strict")
    assert (ended.code, "  looks wrong        nothing" in ended.lines) == (0, True)
    parts = ["trainer_state.json", "model", "checkpoint-20", "checkpoint-40", "checkpoint-60"]
    assert [line.split()[0] for line in ended.lines[1:6]] == parts
    out(
        workplace / "bad",
        [*GOOD[:30], *[0.0] * 30],
        bad_from=20,
        grad_norm=[*(at * 31 % 17 + 1 for at in range(30)), *[float("nan")] * 30],
    )
    ended = cli("inspect", "bad", "--strict")
    assert ended.code == 1
    at = next(at for at, line in enumerate(ended.lines) if line.startswith("  looks wrong"))
    assert "  last in order      checkpoint-20" in ended.lines[:at]
    output = "    trainer_state.json: grad_norm: 30 of 60 samples are NaN or infinite, first at step 31"
    assert ended.lines[at + 1] == output  # the gravest first
    assert any(line.startswith("    checkpoint-40: w: 2000 NaN") for line in ended.lines[at:])
    assert ended.lines[-2:] == [
        "  look at            step 31",
        "  next               weighbridge verify builtin:training-log --subject run=bad",
    ]
    assert [part["name"] for part in json.loads(cli("inspect", "bad", "--json").out)["parts"]] == parts


def test_a_part_that_cannot_be_read_hides_no_other(cli: Cli, workplace: Path) -> None:
    out(workplace / "out", GOOD)
    (workplace / "out" / "checkpoint-40" / "model.safetensors").write_bytes(b"torn")
    ended = cli("inspect", "out", "--strict")
    assert ended.code == 1
    assert any(line.startswith("    checkpoint-40: ") for line in ended.lines)
    assert "  last in order      checkpoint-20" in ended.lines
    (workplace / "out" / "checkpoint-400").mkdir()
    shutil.copy(workplace / "out" / "trainer_state.json", workplace / "out" / "checkpoint-400")
    assert (
        "    log: 2 runs: trainer_state.json, checkpoint-400/trainer_state.json (several-runs)"
        in cli("inspect", "out").out
    )


def test_a_trainer_that_logged_no_step_by_default_is_not_looked_at_and_not_wrong(cli: Cli, workplace: Path) -> None:
    out(workplace / "out", GOOD)
    for state in (workplace / "out").rglob("trainer_state.json"):
        state.write_text('{"global_step": 30, "max_steps": 30, "logging_steps": 500, "log_history": []}')
    ended = cli("inspect", "out", "--strict")
    assert ended.code == 3
    assert any("no step was logged: logging_steps is 500 (no-rows)" in line for line in ended.lines)
    assert "  looks wrong        nothing" in ended.lines


def test_a_folder_with_one_log_is_judged_as_that_log_and_its_checkpoints_with_it(cli: Cli, workplace: Path) -> None:
    (workplace / "run").mkdir()
    trained(workplace / "run" / "log.jsonl", GOOD)
    ended = cli("inspect", "run", "--strict")
    assert (ended.code, ended.lines[0], ended.lines[-1]) == (
        0,
        "run: run",
        "  next               weighbridge verify builtin:training-log --subject run=run",
    ), ended.err
    (workplace / "run" / "checkpoint-60").mkdir()
    shutil.copy(SPECIMENS / "unhealthy.safetensors", workplace / "run" / "checkpoint-60" / "model.safetensors")
    ended = cli("inspect", "run", "--strict")
    assert ended.code == 1
    assert ended.lines[1].startswith("  log            60 steps, the last 59")
    assert any(line.startswith("    checkpoint-60: ") for line in ended.lines)
    trained(workplace / "run" / "other.jsonl", GOOD)
    assert "    log: 2 runs: log.jsonl, other.jsonl (several-runs); bind one of them" in cli("inspect", "run").lines
    shutil.rmtree(workplace / "run" / "checkpoint-60")
    assert cli("inspect", "run").err == "run: several-runs 2 runs: log.jsonl, other.jsonl\n  bind one of them\n"


def test_a_version_of_lightnings_is_looked_at_with_its_settings(cli: Cli, workplace: Path) -> None:
    folder = workplace / "lightning_logs" / "version_0"
    folder.mkdir(parents=True)
    rows = "".join(f"{at},{loss}\n" for at, loss in enumerate([*GOOD[:40], *[float("nan")] * 20]))
    (folder / "metrics.csv").write_text(f"step,train_loss\n{rows}")
    (folder / "hparams.yaml").write_text("lr: 0.1\nmodel: !!python/object:x.Y {}\nbatch_size: 32\n")
    ended = cli("inspect", folder)
    assert "  hparams.yaml  lr: 0.1, batch_size: 32" in ended.lines
    assert ended.lines[-2] == "  look at            step 40"


def test_of_two_runs_it_says_where_they_part_and_which_ends_worse(cli: Cli, workplace: Path) -> None:
    trained(workplace / "a.jsonl", GOOD)
    trained(workplace / "b.jsonl", [*GOOD[:30], *(loss + 0.2 for loss in GOOD[30:])])
    ended = cli("inspect", "a.jsonl", "b.jsonl")
    assert ended.code == 0, ended.err
    assert "  loss, for good     b.jsonl is above the other from step 30 on" in ended.lines
    assert ended.lines[-3].startswith("  worse              b.jsonl: loss ")
    assert ended.lines[-2] == "  they part at       step 30, by loss"
    output = json.loads(cli("inspect", "a.jsonl", "b.jsonl", "--json").out)["beside"]
    assert (output["worse"], output["parts"]["loss"][0], output["steps"]) == (1, 30, {"loss": 60})
    shutil.copy(workplace / "a.jsonl", workplace / "c.jsonl")
    ended = cli("inspect", "a.jsonl", "c.jsonl")
    assert "  loss               60 steps of both: the same throughout" in ended.lines
    assert "  worse              neither" in ended.lines
    trained(workplace / "d.jsonl", [*GOOD[:-1], GOOD[-1] * 1.01])
    ended = cli("inspect", "a.jsonl", "d.jsonl")
    assert "  worse              neither" in ended.lines
    assert "for good" not in ended.out


@pytest.mark.parametrize("begins", [0, 1, 10])
def test_of_two_logs_of_one_run_that_count_steps_otherwise_it_says_so(begins: int, cli: Cli, workplace: Path) -> None:
    for name, first in (("a", 0), ("b", begins)):
        rows = ({"step": first + at, "loss": 4 * 0.97**at + 0.01 * (at * 7919 % 13)} for at in range(40))
        (workplace / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = f"  first step         0 in a.jsonl and {begins} in b.jsonl: an update may have another number in each"
    assert (said in cli("inspect", "a.jsonl", "b.jsonl").lines) == (begins > 0)


def test_of_two_runs_that_evaluate_otherwise_the_evaluation_is_the_worse(cli: Cli, workplace: Path) -> None:
    for name, times in (("a.csv", 1.0), ("b.csv", 3.0)):
        rows = "".join(f"{at},{loss},{loss * times if at % 10 == 9 else ''}\n" for at, loss in enumerate(GOOD))
        (workplace / name).write_text(f"step,loss,val_loss\n{rows}")
    ended = cli("inspect", "a.csv", "b.csv")
    assert ended.lines[-3].startswith("  worse              b.csv: val_loss ")
    assert ended.lines[-2] == "  they part at       step 9, by val_loss; not by loss"


def test_two_files_that_are_no_runs_are_sent_to_compare(cli: Cli) -> None:
    path = saved(a=WEIGHTS)
    assert "`weighbridge compare SOURCE IMPORT` compares" in cli("inspect", path, path).err
    assert cli("inspect", path, path, path).code == 2


@pytest.mark.parametrize("made", ["out", "log", "checkpoint", "two"])
def test_the_next_command_works_on_what_it_was_said_of(cli: Cli, workplace: Path, made: str) -> None:
    bad = [*GOOD[:30], *[float("nan")] * 30]
    if made == "out":
        out(workplace / "a b", bad)
    elif made == "checkpoint":
        shutil.copy(SPECIMENS / "unhealthy.safetensors", workplace / "a b")
    else:
        trained(workplace / "a b", bad)
    trained(workplace / "good.jsonl", GOOD)
    said = cli("inspect", "a b", *(["good.jsonl"] if made == "two" else [])).lines[-1]
    words = shlex.split(said.partition(" next ")[2])
    ended = cli(*words[1:], "--no-evidence")
    assert (words[0], ended.code) == ("weighbridge", 1), ended.out


OF_SCALES = {"F32": np.dtype("<f4"), "BF16": np.dtype(ml_dtypes.bfloat16), "F16": np.dtype("<f2")}


def rescaled(folder: Path, name: str, change: Callable[[Any], Any], layers: int = 1) -> Path:
    """Write a checkpoint of FP8 again, its weights in so many layers, with other scales in the last of them."""
    folder.mkdir()
    data = (HERE / name / "model.safetensors").read_bytes()
    behind = 8 + int.from_bytes(data[:8], "little")
    entries: dict[str, Entry] = {}
    for at, (key, one) in itertools.product(range(layers), json.loads(data[8:behind]).items()):
        if key == "__metadata__":
            continue
        stored = data[behind + one["data_offsets"][0] : behind + one["data_offsets"][1]]
        if "_scale" in key and at == layers - 1:
            stored = change(np.frombuffer(stored, OF_SCALES[one["dtype"]])).astype(OF_SCALES[one["dtype"]]).tobytes()
        elif one["dtype"].startswith("F8"):
            stored = stored[at:] + stored[:at]
        entries[key.replace("model.", f"model.layers.{at}.", 1)] = one["dtype"], tuple(one["shape"]), stored
    safetensors(folder / "model.safetensors", entries)
    shutil.copy(HERE / name / "config.json", folder)
    return folder


@pytest.mark.parametrize(
    ("change", "output"),
    [
        (lambda scales: 1 / scales, "their inverse may be meant"),
        (lambda scales: -scales, "which no quantiser writes"),
        (lambda scales: scales * np.float32(np.nan), "which no quantiser writes"),
        (lambda scales: scales * np.float32(2), ""),  # nobody can tell that from the file alone
    ],
)
@pytest.mark.parametrize("name", ["transformers-fp8-blocks", "compressed-tensors-fp8-channel"])
def test_scales_of_fp8_that_look_wrong_are_reported(
    cli: Cli, tmp_path: Path, name: str, change: Callable[[Any], Any], output: str
) -> None:
    assert "  looks wrong        nothing" in cli("inspect", HERE / name).lines
    ended = cli("inspect", rescaled(tmp_path / "x", name, change), "--strict")
    assert (ended.code, "its scales" in ended.out) == (1 if output else 3, bool(output))  # no dtype can be decided
    assert output in ended.out


def test_a_scale_far_from_those_of_the_other_layers_is_reported(cli: Cli, tmp_path: Path) -> None:
    folder = rescaled(tmp_path / "x", "transformers-fp8-blocks", lambda scales: scales * np.float32(100), layers=6)
    output = [line for line in cli("inspect", folder, "--all").lines if "the median of 6 layers is" in line]
    names = [line.split(":")[0].strip() for line in output]
    assert names == [f"model.layers.5.{name}_proj.weight" for name in ("down", "up")]


def test_a_file_few_of_whose_dtypes_can_be_decided_ends_with_3_as_its_gates_do(cli: Cli, tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "llama")
    blocks = gguf.quantize(np.resize(WEIGHTS, (64, 64)).astype("<f4"), gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("blk.0.ffn_up.weight", blocks, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    ended = cli("inspect", tmp_path / "x.gguf", "--strict")
    assert (ended.code, "  stored dtypes      1 undecided (no F16, BF16 or F32)" in ended.lines) == (3, True)
    assert cli("verify", "builtin:checkpoint-health", "--subject", f"checkpoint={tmp_path / 'x.gguf'}").code == 3
    assert cli("inspect", saved(a=WEIGHTS.astype("<f2"), b=np.ones((40, 50), "<f4")), "--strict").code == 0
    assert cli("inspect", saved(a=WEIGHTS.astype("<f2"), b=np.ones((40, 100), "<f4")), "--strict").code == 3
