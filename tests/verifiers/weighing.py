"""Real subjects that pass, weighed through the runner: what a weakened instrument must not be able to pass."""

from __future__ import annotations

import json
import random
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tests.formats.files import safetensors

from weighbridge.contract.load import load_contract
from weighbridge.core.canonical import sha256
from weighbridge.core.data import data_path
from weighbridge.core.model import Measurement, Outcome, Record
from weighbridge.evaluation.binding import all_instances, bind
from weighbridge.evaluation.runner import Evaluation, EvaluationSession
from weighbridge.quantities.facts import Host
from weighbridge.verifiers import host

MODELS = data_path("verifiers") / "specimens" / "models"
CONFIGS = data_path("verifiers") / "specimens" / "configs"
MERGE = CONFIGS.parent / "checkpoints" / "merge"
STEPS, CORPUS, TOKENS = 120, 2560, 32  # 40 steps short of half a second pass
DEVICE = {
    "parameters": {"cuda:0": 6600},
    "buffers": {},
    "gradients": {"cuda:0": 6600},
    "optimizer": {"cuda:0": 13200},
    "optimizer_scalars": {"cpu": 12},
    "ops": {"cuda:0": 56},
    "bookkeeping": {"cpu": 16},
    "op_names": {},
    "dispatch": "audited",
    "allocated_bytes": 9437184,
    "why": {},
    "witnesses": [
        {"by": "nvml", "pid": 4711, "used_mib": 512.0},
        {"by": "device-files", "pid": 4711, "files": ["/dev/nvidia-uvm", "/dev/nvidia0"]},
    ],
}
RUN = {
    "schema": "weighbridge.run/v0",
    "requested_device": "cuda",
    "resolved_device": "cuda:0",
    "pid": 4711,
    "data": {"seq_len": 8, "batch_size": 4, "corpus_tokens": CORPUS},
}
REFUSING = "import sys; print('DEVICE_UNAVAILABLE', file=sys.stderr); sys.exit(3)"


def recorded(folder: Path) -> Path:
    """Write a run of 120 steps of 32 tokens that wraps its corpus once, at step 80, and was probed at three steps."""
    drawn = random.Random(7)
    rows = []
    for step in range(STEPS):
        position = (step + 1) * TOKENS
        row = {"step": step, "loss": 3 - step / 100 + drawn.gauss(0, 0.05), "lr": 0.001, "tokens": TOKENS}
        row |= {"grad_norm": drawn.lognormvariate(0, 0.4), "wall_ms": drawn.lognormvariate(2.3, 0.2)}
        row |= {"corpus_position": position - CORPUS * (position > CORPUS), "wraps": int(position > CORPUS)}
        rows.append(row)
    events = [{"event": "device", "step": step, **DEVICE} for step in (0, 60, 119)]
    events.insert(1, {"event": "wrap", "step": 80, "wraps": 1, "corpus_position": TOKENS})
    events.append({"event": "end", "step": STEPS, "steps": STEPS, "by": ""})
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps(RUN))
    (folder / "steps.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (folder / "events.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in events))
    return folder


def checkpoints(folder: Path) -> tuple[Path, Path, Path]:
    """Write three tensors, the last of more than one step, in BF16: twice the same, and once widened to F32."""
    folder.mkdir()
    drawn = random.Random(7)
    words = {name: drawn.randbytes(2 * size) for name, size in (("a", 64), ("m", 300), ("z", 1_100_000))}
    narrow = {name: ("BF16", [len(data) // 2], data) for name, data in words.items()}
    wide = {name: ("F32", [len(data) // 2], _widened(data)) for name, data in words.items()}
    return (
        safetensors(folder / "source.safetensors", narrow),
        safetensors(folder / "copy.safetensors", narrow),
        safetensors(folder / "widened.safetensors", wide),
    )


def healthy(folder: Path) -> Path:
    """Write two shards of normally distributed weights in F16, each tensor of more than one step, with their index."""
    folder.mkdir()
    drawn, shards = np.random.default_rng(7), {"a": ("d", "k"), "b": ("m", "z")}
    size = 300_000
    weights: dict[str, str] = {}
    for shard, names in shards.items():
        data = {name: (0.02 * drawn.standard_normal(size)).astype("<f2").tobytes() for name in names}
        safetensors(folder / f"{shard}.safetensors", {name: ("F16", [300, 1000], data[name]) for name in names})
        weights |= dict.fromkeys(names, f"{shard}.safetensors")
    index = {"metadata": {"total_size": 2 * size * len(weights)}, "weight_map": weights}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def _widened(words: bytes) -> bytes:
    wide = bytearray(2 * len(words))
    wide[2::4], wide[3::4] = words[::2], words[1::2]
    return bytes(wide)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A promise that holds: its gate as in a contract, and what its subjects are bound to."""

    gate: Mapping[str, object]
    subjects: Mapping[str, tuple[str, object]]  # kind and target, by name

    def evaluate(self, folder: Path) -> Evaluation:
        """Weigh it from a contract file."""
        gate = {"id": "GATE", "title": "It holds", "why": "It does.", "severity": "required", **self.gate}
        contract = {
            "weighbridge": "contract/v0", "id": "holds", "version": "1.0.0", "title": "It holds", "owner": "tests",
            "subjects": {name: {"kind": kind} for name, (kind, _) in self.subjects.items()}, "gates": [gate],
        }  # fmt: skip
        path = folder / "holds.yaml"
        path.write_text(json.dumps(contract, indent=1))
        loaded = load_contract(str(path), {})
        bound = bind(loaded.contract, folder, [f"{name}={target}" for name, (_, target) in self.subjects.items()])
        on = all_instances(loaded.contract, bound)
        return EvaluationSession(contract=loaded.contract, bound=bound, on=on).evaluate()


def outcome(evaluation: Evaluation) -> tuple[Outcome, str]:
    (finding,) = evaluation.findings
    return finding.verdict.outcome, finding.verdict.code


def of_a_run(kind: str, **more: object) -> Callable[[Path], Case]:
    def build(folder: Path) -> Case:
        run = folder / "run"
        target = run if run.is_dir() else recorded(run)
        return Case(gate={"kind": kind, "subjects": {"run": "run"}, **more}, subjects={"run": ("run", target)})

    return build


def again(folder: Path, pid: int, **more: float) -> Path:
    """Write a run of the same numbers by another process, whose loss is other by `loss`."""
    run = recorded(folder)
    rows = [json.loads(line) for line in (run / "steps.jsonl").read_text().splitlines()]
    rows = [row | {"loss": row["loss"] + more.get("loss", 0), "batch_crc": 10 * row["step"] + pid} for row in rows]
    rows = [row | {"parameters_sum": 10 * row["step"], "time": 10.0} for row in rows]
    (run / "steps.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    head = RUN | {"pid": pid, "host": "host-1", "started": "1970-01-01T00:00:00Z", "commit": "c0ffee0", "dirty": False}
    (run / "run.json").write_text(json.dumps(head | {"rank": pid % 2, "world_size": 2}))
    return run


def of_runs(kind: str, *roles: str, **more: object) -> Callable[[Path], Case]:
    def build(folder: Path) -> Case:
        targets = {role: folder / role for role in roles}
        for target in targets.values():
            if not target.is_dir():
                again(target, 4710 + list(targets).index(target.name))
        gate = {"kind": kind, "subjects": {role: role for role in roles}, **more}
        return Case(gate=gate, subjects={role: ("run", target) for role, target in targets.items()})

    return build


def of_ranks(folder: Path) -> Case:
    ranks = folder / "ranks"
    for rank in range(0 if ranks.is_dir() else 2):
        ranks.mkdir(exist_ok=True)
        again(ranks / f"rank-{rank}", 4710 + rank, loss=rank / 8)
    return Case(gate={"kind": "replica-consistency", "subjects": {"run": "run"}}, subjects={"run": ("run", ranks)})


def of_tensors(folder: Path) -> Case:
    run = folder / "run"
    if not run.is_dir():
        recorded(run)
        drawn, rows = random.Random(7), list[dict[str, object]]()
        for row in map(json.loads, (run / "steps.jsonl").read_text().splitlines()):
            shares = [drawn.uniform(0.5, 1) for _ in range(6)]
            whole = row["grad_norm"] / sum(one**2 for one in shares) ** 0.5
            norms = [{"grad": share * whole, "weight": 9 + share, "update": share / 100} for share in shares]
            rows += [{"step": row["step"], "name": f"h.{at}.w", **one} for at, one in enumerate(norms)]
        (run / "layers.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return Case(gate={"kind": "gradient-reach", "subjects": {"run": "run"}}, subjects={"run": ("run", run)})


def of_kept(folder: Path) -> Case:
    """Copy a run of three analysis checkpoints."""
    shutil.copytree(MODELS.parent / "runs" / "kept", folder / "run")
    return Case(
        gate={"kind": "snapshot-cadence", "subjects": {"run": "run"}}, subjects={"run": ("run", folder / "run")}
    )


def of_checkpoints(kind: str, candidate: int, **more: object) -> Callable[[Path], Case]:
    def build(folder: Path) -> Case:
        files = checkpoints(folder / "checkpoints")
        roles = {"source": "source", "candidate": "candidate"}
        return Case(
            gate={"kind": kind, "subjects": roles, **more},
            subjects={"source": ("checkpoint", files[0]), "candidate": ("checkpoint", files[candidate])},
        )

    return build


def of_one_checkpoint(kind: str, **more: object) -> Callable[[Path], Case]:
    def build(folder: Path) -> Case:
        where = folder / "healthy"
        gate = {"kind": kind, "subjects": {"candidate": "checkpoint"}, **more}
        return Case(gate=gate, subjects={"checkpoint": ("checkpoint", where if where.is_dir() else healthy(where))})

    return build


def of_two_configurations(folder: Path) -> Case:
    assert folder.is_dir()
    targets = {"source": CONFIGS / "llama", "candidate": CONFIGS / "llama.gguf"}
    return Case(
        gate={"kind": "config-agreement", "subjects": {role: role for role in targets}},
        subjects={role: ("checkpoint", target) for role, target in targets.items()},
    )


def of_a_merge(folder: Path) -> Case:
    assert folder.is_dir()
    targets = {"source": "base.safetensors", "adapter": "adapter", "candidate": "merged.safetensors"}
    gate = {"kind": "value-preservation", "subjects": {role: role for role in targets}, "with": {"policy": "lossless"}}
    return Case(gate=gate, subjects={role: ("checkpoint", MERGE / target) for role, target in targets.items()})


def of_two_folders(folder: Path) -> Case:
    targets = {role: folder / role for role in ("source", "candidate")}
    for target in targets.values():
        for part, data in (("", bytes(8)), ("1_Dense", bytes(range(16))), ("2_Dense", bytes(range(24)))):
            (target / part).mkdir(exist_ok=True)
            safetensors(target / part / "model.safetensors", {"w": ("F32", [len(data) // 4], data)})
    return Case(
        gate={"kind": "byte-identity", "subjects": {role: role for role in targets}},
        subjects={role: ("checkpoint", target) for role, target in targets.items()},
    )


def of_a_command(folder: Path) -> Case:
    assert folder.is_dir()
    command = shlex.join([sys.executable, "-I", "-S", "-c", REFUSING])
    return Case(
        gate={
            "kind": "device-refusal",
            "subjects": {"command": "trainer"},
            "with": {"exit": 3, "within_s": 20, "names": ["DEVICE_UNAVAILABLE"]},
        },
        subjects={"trainer": ("command", command)},
    )


def of_two_runs(folder: Path) -> Case:
    assert folder.is_dir()
    command = shlex.join([sys.executable, "-I", "-S", "-c", REFUSING])
    case = {"exit": 3, "says": ["DEVICE_UNAVAILABLE"]}
    return Case(
        gate={
            "kind": "command-succeeds",
            "subjects": {"command": "trainer"},
            "with": {"within_s": 20, "cases": [{"args": ["gpu"], **case}, {"args": ["cuda:99"], **case}]},
            "measure": {"timeout_s": 30},
        },
        subjects={"trainer": ("command", command)},
    )


def of_a_report(folder: Path) -> Case:
    tests = "".join(f'<testcase classname="gate" name="falsify_{name}"/>' for name in "abc")
    report = folder / "report.xml"
    report.write_text(f'<testsuites><testsuite name="gate" tests="3">{tests}</testsuite></testsuites>')
    limits = {"tests": ["falsify_*"], "at_least": 3}
    gate = {"kind": "test-report", "subjects": {"report": "report"}, "with": limits}
    return Case(gate=gate, subjects={"report": ("report", report)})


def of_epochs(folder: Path) -> Case:
    for epoch in range(6):
        digest = sha256(f"the state after epoch {epoch}".encode())
        row = {"epoch": epoch, "optimizer_state_sha": digest, "tokens_seen": 4096 * (epoch + 1)}
        (folder / f"epoch-{epoch}.metadata.json").write_text(json.dumps(row))
    gate = {"kind": "optimizer-digest", "subjects": {"run": "epochs"}, "where": {"steps": 6}}
    return Case(gate=gate, subjects={"epochs": ("run", folder)})


def where_the_host_is_what_it_is(folder: Path) -> Case:
    found = host.measure((), {})
    assert isinstance(found, Measurement)
    assert isinstance(found.value, Record)
    assert isinstance(found.value.value, Host)
    refusal = of_a_command(folder)
    return Case(gate={**refusal.gate, "requires": {"cuda": found.value.value.cuda}}, subjects=refusal.subjects)


def of_two_stacks(folder: Path) -> Case:
    assert folder.is_dir()
    return Case(
        gate={"kind": "forward-parity", "subjects": {"reference": "reference", "candidate": "candidate"}},
        subjects={
            "reference": ("model", f"{MODELS / 'tiny_gpt.py'}:reference"),
            "candidate": ("model", f"{MODELS / 'tiny_gpt.py'}:fused"),
        },
    )


ABSMAX = {"tensors": "*", "statistic": "absmax", "at_most": 1}
STD = {"tensors": "*", "statistic": "std", "change_at_most": 0}
BUDGET = {"statistic": "median", "steps": [20, 119], "below_ms": 20}
CASES: Mapping[str, Callable[[Path], Case]] = {
    "tensor_values, byte for byte": of_checkpoints("byte-identity", 1),
    "tensor_values, by dtype": of_checkpoints("dtype-preservation", 2, **{"with": {"policy": "lossless"}}),
    "tensor_values": of_checkpoints("value-preservation", 1, **{"with": {"policy": "same"}}),
    "tensor_values, widened": of_checkpoints("value-preservation", 2, **{"with": {"policy": "lossless"}}),
    "tensor_values-checkpoint-checkpoint-checkpoint": of_a_merge,
    "moment_changes": of_checkpoints("statistics-preservation", 2, **{"with": {"bounds": [STD]}}),
    "facts-checkpoint": of_checkpoints("byte-identity", 1, where={"tensors": 3, "elements": 1_100_364}),
    "step_columns": of_a_run("step-metrics", **{"with": {"required": ["loss", "grad_norm", "lr", "wall_ms"]}}),
    "step_series": of_a_run("wall-time-budget", **{"with": BUDGET}),
    "column_agreement-run-run": of_runs("replay-determinism", "run", "replay", **{"with": {"ignored": ["batch_crc"]}}),
    "column_agreement-run": of_ranks,
    "fact_agreement-run-run": of_runs("one-change", "baseline", "run", **{"with": {"ignored": ["rank"]}}),
    "fact_agreement-run": of_ranks,
    "corpus_progress": of_a_run("corpus-wrap-around"),
    "corpus_epochs": of_a_run("corpus-wrap-around"),
    "digest_formulas": of_epochs,
    "layer_course": of_tensors,
    "run_files": of_kept,
    "device_evidence": of_a_run("no-silent-cpu-fallback", **{"with": {"requested": "cuda", "external_witnesses": 2}}),
    "facts-run": of_a_run("wall-time-budget", where={"tokens_per_step": 32, "steps": 120}, **{"with": BUDGET}),
    "own_claims": of_one_checkpoint("checkpoint-integrity"),
    "file_structure": of_one_checkpoint("checkpoint-integrity"),
    "tensor_health": of_one_checkpoint("checkpoint-integrity"),
    "tensor_bits": of_one_checkpoint("label-plausibility"),
    "tensor_moments": of_one_checkpoint("tensor-statistics", **{"with": {"bounds": [ABSMAX]}}),
    "model_config": of_two_configurations,
    "files_beside": of_two_folders,
    "host": where_the_host_is_what_it_is,
    "command_outcome": of_a_command,
    "command_runs": of_two_runs,
    "test_results": of_a_report,
    "forward_errors": of_two_stacks,
}
