"""What a recorder keeps beside the rows: whole, of this run, within its budget, and never seen by what is trained."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

torch = pytest.importorskip("torch")
jsonschema = pytest.importorskip("jsonschema")

from tests.recorder.recorded import Language, adamw, plain  # noqa: E402
from tests.verifiers.weighing import Case, outcome  # noqa: E402

from weighbridge.api import verify  # noqa: E402
from weighbridge.core import Measurement, Outcome, data_path  # noqa: E402
from weighbridge.page.insides import insides  # noqa: E402
from weighbridge.page.sources import sources  # noqa: E402
from weighbridge.quantities.base import rows_of  # noqa: E402
from weighbridge.quantities.runs import RunFile, is_scheduled, scheduled  # noqa: E402
from weighbridge.recorder import Analysis, Diagnostics, Probes, Recorder  # noqa: E402
from weighbridge.verifiers.run_files import VERIFIER, newest_snapshot  # noqa: E402
from weighbridge.views.run import open_run  # noqa: E402

SCHEMA = json.loads((data_path("spec") / "ck.analysis.v1.schema.json").read_text())
Touch = Callable[[int, Any], object]


def texts(count: int, seed: int) -> list[list[int]]:
    drawn = torch.Generator().manual_seed(seed)
    rows: list[list[int]] = torch.randint(0, 40, (count, 12), generator=drawn).tolist()
    return rows


def probe_file(path: Path, trained: int = 6, held_out: int = 6) -> Path:
    rows = [("train", row) for row in texts(trained, 5)] + [("held-out", row) for row in texts(held_out, 6)]
    lines = (json.dumps({"class": of, "prompt": row[:6], "continuation": row[6:]}) for of, row in rows)
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def trained(
    folder: Path | None,
    steps: int = 41,
    at: Touch = lambda _step, _rec: None,
    scale: Mapping[int, float] | None = None,
    model: Any = None,
    **asked: Any,
) -> list[Any]:
    """Train on six texts, recorded or not, and return what was learnt and the random numbers that come next."""
    torch.manual_seed(0)
    model = Language() if model is None else model
    optimizer, data = adamw(model), torch.tensor(texts(6, 5))
    rec = Recorder(folder, model, optimizer, on_fail="raise", **asked) if folder else None
    if rec:
        rec.__enter__()
    for step in range(steps):
        ids = data[torch.randint(0, 6, (4,))]
        loss = plain(model(ids[:, :-1]), ids[:, 1:]) * (scale or {}).get(step, 1.0)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        at(step, rec)
        if rec:
            rec.step(loss)
        optimizer.zero_grad()
    if rec:
        rec.__exit__(None, None, None)
    return [*(one.detach().clone() for one in model.parameters()), torch.rand(3)]


def events(folder: Path, name: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    return [one for one in found if one["event"] == name]


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]


def judged(folder: Path, kind: str, **limits: Any) -> tuple[Outcome, str]:
    gate = {"kind": kind, "subjects": {"run": "run"}, "with": limits, "where": {"ended": "ended"}}
    return outcome(Case(gate=gate, subjects={"run": ("run", folder)}).evaluate(folder.parent))


def why(folder: Path, what: str = "analysis") -> str:
    found = VERIFIER.measure((open_run(folder),), {"what": what})
    assert isinstance(found, Measurement)
    return next(row.why for row in rows_of(found, RunFile) if row.why and row.state != "not read")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    asked: dict[str, Any] = {
        "analysis": Analysis(grids=("head*",)),
        "probes": Probes(path=probe_file(folder / "probes.jsonl")),
    }

    def save(step: int, rec: Any) -> None:
        if step % 10 == 0:
            (folder / f"{step}.pt").write_bytes(os.urandom(64))
            rec.checkpoint(folder / f"{step}.pt")
            (folder / f"{step - 20}.pt").unlink(missing_ok=True)

    trained(folder / "run", at=save, **asked)
    return folder / "run"


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    shutil.copytree(whole.parent, tmp_path, dirs_exist_ok=True)
    return tmp_path / "run"


def test_the_schedule_is_the_one_of_the_specification() -> None:
    assert [len(scheduled(0, last)) for last in (100, 1_000, 10_000, 100_000)] == [11, 29, 74, 164]
    assert scheduled(0, 20_000) == [step for step in range(20_001) if is_scheduled(step)]
    assert scheduled(95, 210) == [100, 150, 200]


def test_nothing_that_is_trained_changes_by_a_bit(tmp_path: Path) -> None:
    asked: dict[str, Any] = {"analysis": Analysis(), "probes": Probes(path=probe_file(tmp_path / "probes.jsonl"))}
    asked["diagnostics"] = Diagnostics(every=10)
    pairs = zip(trained(None), trained(tmp_path / "run", **asked), strict=True)
    assert all(torch.equal(alone, recorded) for alone, recorded in pairs)


def test_every_step_of_the_schedule_has_a_file_that_fits_the_schema_and_names_the_run(whole: Path) -> None:
    files = sorted((whole / "analysis").iterdir())
    assert [one.name for one in files] == [f"step-{step:07}.json" for step in (0, 10, 20, 30, 40)]
    named = json.loads((whole / "run.json").read_text())["run"]
    for one in files:
        content = json.loads(one.read_text())
        jsonschema.Draft202012Validator(SCHEMA).validate(content)
        assert (content["run"], content["reasons"]) == (named, ["schedule"])
        assert content["gradients"].keys() == content["weights"].keys()
        assert {"embedding", "norm", "qkv", "head"} == content["activations"].keys()
        assert [name for name, of in content["weights"].items() if "sampled_grid_32x32" in of] == ["head.weight"]
        assert "attention" not in content
    assert judged(whole, "snapshot-cadence") == (Outcome.PASS, "pass")


class Counting(Language):
    evaluations: ClassVar[list[int]] = []  # of all copies

    def forward(self, ids: Any) -> Any:
        self.evaluations.extend([] if self.training else [1])
        return super().forward(ids)


def test_one_evaluation_of_the_batch_serves_the_figures_and_the_file_of_a_step(tmp_path: Path) -> None:
    counted = {}
    both: dict[str, dict[str, Any]] = {
        "both": {"analysis": Analysis(), "diagnostics": Diagnostics(every=10)},
        "figures": {"diagnostics": Diagnostics(every=10)},
        "files": {"analysis": Analysis()},
    }
    for name, asked in both.items():
        Counting.evaluations.clear()
        asked["probe_every"] = 10**6
        trained(tmp_path / name, steps=21, model=Counting(), **asked)
        counted[name] = len(Counting.evaluations)
    others = counted["figures"]
    assert (counted["both"], counted["files"] > 0) == (others, True)
    seen = [json.loads(line) for line in (tmp_path / "both" / "diagnostics.jsonl").read_text().splitlines()]
    norm = {one["step"]: one["std"] for one in seen if one["of"] == "activation" and one["name"] == "norm"}
    for step in (0, 10, 20):
        content = json.loads((tmp_path / "both" / "analysis" / f"step-{step:07}.json").read_text())
        assert content["activations"]["norm"]["std"] == pytest.approx(norm[step], rel=1e-5)


def test_statistics_are_those_of_the_tensor(whole: Path) -> None:
    content = json.loads((whole / "analysis" / "step-0000040.json").read_text())
    for one in content["weights"].values():
        assert sum(one["histogram"]["counts"]) == one["elements"]
        assert one["histogram"]["bins"][0] == one["min"] <= one["percentiles"]["0.5"] <= one["max"]
    row = rows(whole)[40]
    norms = [one["norm"] for one in content["gradients"].values()]
    assert math.hypot(*norms) == pytest.approx(row["grad_norm_used"], rel=1e-4)


def copied(run: Path) -> None:
    shutil.copy(run / "analysis" / "step-0000010.json", run / "analysis" / "step-0000020.json")


def of_another_run(run: Path) -> None:
    path = run / "analysis" / "step-0000020.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "run": "f" * 16}))


def changed(**fields: Any) -> Callable[[Path], None]:
    def change(run: Path) -> None:
        path = run / "analysis" / "step-0000020.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))

    return change


def cut(run: Path) -> None:
    path = run / "analysis" / "step-0000040.json"
    path.write_bytes(path.read_bytes()[:-100])


def linked(run: Path) -> None:
    path = run / "analysis" / "step-0000010.json"
    path.rename(run / "kept.json")
    path.symlink_to(run / "kept.json")


def linked_folder(run: Path) -> None:
    (run / "analysis").rename(run / "elsewhere")
    (run / "analysis").symlink_to(run / "elsewhere")


def a_fifo(run: Path) -> None:
    path = run / "analysis" / "step-0000010.json"
    path.unlink()
    os.mkfifo(path)


def huge(run: Path) -> None:
    with (run / "analysis" / "step-0000010.json").open("r+b") as file:
        file.truncate(65 << 20)


def a_stranger(run: Path) -> None:
    shutil.copy(run / "analysis" / "step-0000010.json", run / "analysis" / "step-0000011.json")


def gone(run: Path) -> None:
    (run / "analysis" / "step-0000020.json").unlink()


def all_gone(run: Path) -> None:
    shutil.rmtree(run / "analysis")


def named_elsewhere(run: Path) -> None:
    text = (run / "events.jsonl").read_text()
    (run / "events.jsonl").write_text(text.replace("analysis/step-0000010.json", "../10.pt"))


def edited(run: Path) -> None:
    path = run / "analysis" / "step-0000020.json"
    path.write_bytes(path.read_bytes().replace(b'"attempt":1', b'"attempt":2'))


HANDS: Mapping[str, tuple[Callable[[Path], None], str, str]] = {
    "a copy of another step": (copied, "of-another", "it is of step 10, and was announced at step 20"),
    "of another run": (of_another_run, "of-another", f"it is of the run {'f' * 16}"),
    "of a later version": (changed(schema_version="ck.analysis.v2"), "other-version", "'ck.analysis.v2'"),
    "of no version": (changed(schema_version=[1]), "other-version", "ck.analysis.v1 is read"),
    "a text for a number": (changed(step="20"), "damaged", "step: '20' is not of type 'integer'"),
    "a NaN": (changed(loss=math.nan), "damaged", "NaN is not JSON"),
    "a field that nobody knows": (changed(canary=1), "damaged", "'canary'"),
    "no weights": (changed(weights=None), "damaged", "weights: None is not of type 'object'"),
    "cut off": (cut, "damaged", "not strict JSON"),
    "a link": (linked, "damaged", "it is a link"),
    "a folder that is a link": (linked_folder, "damaged", "it is a link"),
    "a FIFO": (a_fifo, "damaged", "a FIFO"),
    "huge": (huge, "damaged", "more than"),
    "one that no event announces": (a_stranger, "of-another", "no event of the run announces it"),
    "one deleted": (gone, "gone", "it is gone"),
    "all deleted": (all_gone, "gone", "it is gone"),
    "one that lies elsewhere": (named_elsewhere, "damaged", "is no file of a run directory"),
    "one byte": (edited, "changed", "its SHA-256 is not the one"),
}


@pytest.mark.parametrize("hand", HANDS)
def test_an_analysis_checkpoint_that_is_not_what_was_written_blocks_by_its_code(hand: str, run: Path) -> None:
    damage, code, says = HANDS[hand]
    damage(run)
    assert judged(run, "snapshot-cadence") == (Outcome.BLOCKED, code)
    assert says in why(run)


def test_a_step_that_was_never_looked_at_fails_and_a_run_without_files_blocks(run: Path, tmp_path: Path) -> None:
    log = (run / "events.jsonl").read_text().splitlines(keepends=True)
    (run / "events.jsonl").write_text("".join(line for line in log if "step-0000020" not in line))
    gone(run)
    assert judged(run, "snapshot-cadence") == (Outcome.FAIL, "missing")
    trained(tmp_path / "none", steps=3)
    assert judged(tmp_path / "none", "snapshot-cadence") == (Outcome.BLOCKED, "no-analysis")


def test_without_jsonschema_it_is_blocked_and_says_what_to_install(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    assert judged(run, "snapshot-cadence") == (Outcome.BLOCKED, "needs-extra")
    assert judged(run, "sealed-probes", at_least=1) == (Outcome.PASS, "pass")


def test_a_loss_and_a_gradient_that_jump_are_looked_at_with_the_reason(tmp_path: Path) -> None:
    trained(tmp_path / "run", steps=30, scale={23: 40.0}, analysis=Analysis())
    content = json.loads((tmp_path / "run" / "analysis" / "step-0000023.json").read_text())
    assert [one.split(" is more than")[0].partition(":")[0] for one in content["reasons"]] == ["loss", "gradient"]
    assert "median of the" in content["reasons"][1]
    assert judged(tmp_path / "run", "snapshot-cadence") == (Outcome.PASS, "pass")


def test_a_tensor_without_gradients_is_named_once(tmp_path: Path) -> None:
    model = Language()
    model.qkv.weight.register_hook(torch.zeros_like)  # type: ignore[no-untyped-call]
    trained(tmp_path / "run", steps=14, model=model, analysis=Analysis(), probe_every=2)
    said = [one for event in events(tmp_path / "run", "analysis") for one in event["reasons"] if one.startswith("dead")]
    assert said == ["dead: qkv.weight had no gradient in 5 looks"]


def test_weights_that_are_not_finite_are_counted_and_never_zeros(tmp_path: Path) -> None:
    model = Language()
    model.norm.bias.data.fill_(math.nan)
    trained(tmp_path / "run", steps=1, model=model, analysis=Analysis())
    content = json.loads((tmp_path / "run" / "analysis" / "step-0000000.json").read_text())
    assert content["weights"]["norm.bias"] == {"elements": 16, "not_finite": 16}
    assert content["loss"] == "nan"
    assert judged(tmp_path / "run", "snapshot-cadence") == (Outcome.PASS, "pass")


def test_above_the_budget_nothing_is_written_and_training_goes_on(tmp_path: Path) -> None:
    trained(tmp_path / "run", steps=25, analysis=Analysis(file_bytes=1000))
    (event,) = events(tmp_path / "run", "analysis")
    assert "1000 may be" in event["refused"]
    assert not (tmp_path / "run" / "analysis").exists()
    assert len(rows(tmp_path / "run")) == 25
    assert judged(tmp_path / "run", "snapshot-cadence") == (Outcome.BLOCKED, "over-budget")


def test_the_budget_of_a_run_ends_with_the_files_that_it_has(tmp_path: Path) -> None:
    trained(tmp_path / "run", steps=41, analysis=Analysis(run_bytes=40_000))
    assert [("refused" in one) for one in events(tmp_path / "run", "analysis")][-2:] == [False, True]
    assert judged(tmp_path / "run", "snapshot-cadence") == (Outcome.BLOCKED, "over-budget")


def test_a_folder_that_cannot_be_written_costs_analysis_checkpoints_alone(tmp_path: Path) -> None:
    model = Language()
    with Recorder(tmp_path / "run", model, adamw(model), analysis=Analysis()) as rec:
        (tmp_path / "run" / "analysis").write_text("in the way")
        with pytest.warns(RuntimeWarning, match="_look_closer"):
            rec.step(1.0)
    assert [one["costs"] for one in events(tmp_path / "run", "recorder-failure")] == [["analysis"]]
    assert len(rows(tmp_path / "run")) == 1


def test_a_model_of_transformers_is_looked_into_by_layer_and_learns_the_same_bits(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = {"vocab_size": 40, "n_layer": 2, "n_embd": 16, "n_head": 2, "n_positions": 16, "bos_token_id": 0}

    def learnt(folder: Path | None) -> list[Any]:
        transformers.set_seed(0)
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**config, eos_token_id=0))
        optimizer, ids = adamw(model), torch.tensor(texts(6, 5))
        asked: dict[str, Any] = {
            "analysis": Analysis(grids=("*.attn",)),
            "probes": Probes(path=probe_file(tmp_path / "probes.jsonl")),
        }
        with contextlib.ExitStack() as stack:
            rec = stack.enter_context(Recorder(folder, model, optimizer, on_fail="raise", **asked)) if folder else None
            for _ in range(3):
                loss = model(input_ids=ids, labels=ids).loss
                loss.backward()
                optimizer.step()
                if rec is not None:
                    rec.step(loss)
                optimizer.zero_grad()
        return [*(one.detach().clone() for one in model.parameters()), torch.rand(3)]

    pairs = zip(learnt(None), learnt(tmp_path / "run"), strict=True)
    assert all(torch.equal(alone, recorded) for alone, recorded in pairs)
    content = json.loads((tmp_path / "run" / "analysis" / "step-0000000.json").read_text())
    jsonschema.Draft202012Validator(SCHEMA).validate(content)
    assert content["attention"].keys() == {"transformer.h.0.attn", "transformer.h.1.attn"}
    one = content["attention"]["transformer.h.1.attn"]
    assert [len(one["entropy_per_head"]), len(one["sampled_qk_grid_32x32_per_head"])] == [2, 2]
    assert {"transformer.h.0", "transformer.h.1"} <= content["activations"].keys()
    assert "probe_loss" in rows(tmp_path / "run")[0]
    caption = "Queries times keys of 4 heads, at most 32 x 32 of them, at step 0: analysis/step-0000000.json of --run, "
    looked = head_maps(tmp_path / "run", "GATE-DIAG-4.1-KEPT")
    assert looked == (caption + "which is whole: PASS GATE-DIAG-4.1-KEPT.", 4)
    assert head_maps(tmp_path / "run", "GATE-DIAG-M1") == (caption + "not judged: no gate reads it.", 4)
    content["attention"]["transformer.h.1.attn"]["sampled_qk_grid_32x32_per_head"][0][0][0] = 7.0
    (tmp_path / "run" / "analysis" / "step-0000000.json").write_text(json.dumps(content))
    assert newest_snapshot(open_run(tmp_path / "run")) is None


def head_maps(run: Path, gate: str) -> tuple[str, int]:
    """Return the caption and the number of the maps that a page draws of a run under one gate."""
    pytest.importorskip("jinja2")
    request: dict[str, Any] = {"subjects": {"run": run}, "gates": [gate], "evidence": run.parent / gate}
    (result,) = verify("builtin:diagnostics", **request).results
    assert result.bundle is not None
    given = sources([result.bundle.path], run, None)
    (part,) = [one for one in insides(given).parts if one.caption.startswith("Queries times keys")]
    return part.caption, part.picture.count("<image ")


def test_a_grid_that_names_nothing_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"heads\.\* names no parameter"):
        trained(tmp_path / "run", analysis=Analysis(grids=("heads.*",)))


def test_a_second_attempt_has_files_of_its_own(tmp_path: Path) -> None:
    trained(tmp_path / "run", steps=21, analysis=Analysis())
    trained(tmp_path / "run", steps=15, analysis=Analysis(), first_step=21)
    assert (tmp_path / "run" / "attempt-2" / "analysis" / "step-0000030.json").exists()
    assert judged(tmp_path / "run", "snapshot-cadence") == (Outcome.PASS, "pass")


# --- Checkpoints ------------------------------------------------------------------------------------------------------


def test_checkpoints_that_are_pruned_in_time_pass(whole: Path) -> None:
    assert judged(whole, "checkpoint-retention", at_most=2) == (Outcome.PASS, "pass")


def saving(folder: Path, save: Callable[[int, Any], object]) -> Path:
    folder.mkdir(exist_ok=True)
    trained(folder / "run", steps=13, at=lambda step, rec: save(step, rec) if step % 4 == 0 else None)
    return folder / "run"


def test_pruning_before_the_next_is_whole_fails(tmp_path: Path) -> None:
    def save(step: int, rec: Any) -> None:
        (tmp_path / f"{step - 4}.pt").unlink(missing_ok=True)
        (tmp_path / f"{step}.pt").write_bytes(b"weights")
        rec.checkpoint(tmp_path / f"{step}.pt")

    assert judged(saving(tmp_path, save), "checkpoint-retention") == (Outcome.FAIL, "pruned-early")


@pytest.mark.parametrize(("beside", "code"), [(True, "pass"), (False, "pruned-early")])
def test_writing_over_a_checkpoint_fails_and_taking_its_place_does_not(beside: bool, code: str, tmp_path: Path) -> None:
    def save(step: int, rec: Any) -> None:
        path = tmp_path / ("next.pt" if beside else "last.pt")
        path.write_bytes(b"weights" * (step + 1))
        path.replace(tmp_path / "last.pt")
        rec.checkpoint(tmp_path / "last.pt")

    assert judged(saving(tmp_path, save), "checkpoint-retention")[1] == code


def test_more_than_may_be_kept_fails_and_one_cut_off_since_does(tmp_path: Path) -> None:
    def save(step: int, rec: Any) -> None:
        (tmp_path / f"{step}.pt").write_bytes(b"weights")
        rec.checkpoint(tmp_path / f"{step}.pt")

    run = saving(tmp_path, save)
    assert judged(run, "checkpoint-retention", at_most=3) == (Outcome.PASS, "pass")
    assert judged(run, "checkpoint-retention", at_most=2) == (Outcome.FAIL, "too-many")
    (tmp_path / "12.pt").write_bytes(b"weight")
    assert judged(run, "checkpoint-retention", at_most=3) == (Outcome.FAIL, "not-whole")
    (tmp_path / "12.pt").unlink()
    assert judged(run, "checkpoint-retention", at_most=3) == (Outcome.FAIL, "not-whole")


def test_folders_are_hashed_as_they_were_logged_and_one_elsewhere_is_not_read(tmp_path: Path) -> None:
    def save(step: int, rec: Any) -> None:
        (tmp_path / f"c-{step}").mkdir()
        (tmp_path / f"c-{step}" / "model.bin").write_bytes(b"weights")
        rec.checkpoint(tmp_path / f"c-{step}")

    run = saving(tmp_path, save)
    assert judged(run, "checkpoint-retention") == (Outcome.PASS, "pass")
    (tmp_path / "c-12" / "more.bin").write_bytes(b"")
    assert judged(run, "checkpoint-retention") == (Outcome.FAIL, "not-whole")

    def away(step: int, rec: Any) -> None:
        rec.checkpoint(tmp_path / "c-0")

    run = saving(tmp_path / "deep", away)
    assert judged(run, "checkpoint-retention") == (Outcome.BLOCKED, "unread")


# --- Probes -----------------------------------------------------------------------------------------------------------


def test_what_was_trained_is_known_by_heart_in_the_end_and_what_was_held_out_is_not(whole: Path) -> None:
    known = [row for row in rows(whole) if "probe_loss" in row]
    assert known[0]["continuation_exact"] < known[-1]["continuation_exact"]
    assert known[0]["probe_loss"] > 2 > known[-1]["probe_loss"]
    assert known[-1]["probes_missed"] == 1 - known[-1]["continuation_exact"]
    assert known[-1]["held_out_exact"] == 0
    assert known[-1]["unseen_ppl"] > math.exp(known[-1]["probe_loss"])
    assert judged(whole, "sealed-probes") == (Outcome.PASS, "pass")


def test_probes_are_looked_at_with_a_checkpoint_and_at_the_end(whole: Path) -> None:
    assert [one["step"] for one in events(whole, "probes")] == [0, 10, 20, 30, 40, 41]


def emptied(path: Path) -> None:
    path.write_text("")


def swapped(path: Path) -> None:
    probe_file(path, 5, 7)


def of_equal_length(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"train", b"tra1n", 1))


@pytest.mark.parametrize("hand", [emptied, swapped, of_equal_length])
def test_a_file_of_probes_that_changes_after_the_first_step_fails(hand: Callable[[Path], None], tmp_path: Path) -> None:
    path = probe_file(tmp_path / "probes.jsonl")
    trained(tmp_path / "run", steps=25, at=lambda step, _: hand(path) if step == 22 else None, probes=Probes(path=path))
    assert judged(tmp_path / "run", "sealed-probes") == (Outcome.FAIL, "probes-changed")


def test_a_file_of_probes_that_is_deleted_fails(tmp_path: Path) -> None:
    path = probe_file(tmp_path / "probes.jsonl")
    trained(
        tmp_path / "run", steps=12, at=lambda step, _: path.unlink() if step == 5 else None, probes=Probes(path=path)
    )
    assert judged(tmp_path / "run", "sealed-probes") == (Outcome.FAIL, "probes-gone")


def test_probes_of_another_run_are_not_those_that_were_sealed(run: Path) -> None:
    head = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**head, "digests": {"probes": "0" * 64}}))
    assert judged(run, "sealed-probes") == (Outcome.FAIL, "probes-changed")
    (run / "run.json").write_text(json.dumps({name: one for name, one in head.items() if name != "digests"}))
    assert judged(run, "sealed-probes") == (Outcome.BLOCKED, "not-sealed")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ({"class": "train", "prompt": [1] * 30, "continuation": [1]}, "a probe takes 30 tokens, and the model 11"),
        ({"class": "train", "prompt": [40], "continuation": [1]}, "a probe has the token 40, and the model knows 40"),
    ],
)
def test_probes_that_the_model_cannot_be_asked_are_left_out_by_name(
    line: dict[str, Any], says: str, tmp_path: Path
) -> None:
    path = probe_file(tmp_path / "probes.jsonl")
    path.write_text(path.read_text() + json.dumps(line) + "\n")
    trained(tmp_path / "run", steps=3, probes=Probes(path=path))
    assert events(tmp_path / "run", "probes")[0]["refused"] == says
    assert not any("probe_loss" in row for row in rows(tmp_path / "run"))
    assert judged(tmp_path / "run", "sealed-probes") == (Outcome.BLOCKED, "not-asked")
    assert why(tmp_path / "run", "probes") == says


NO_PROBES: Mapping[str, str] = {
    "nothing": "",
    "no JSON": "{",
    "a list": "[]",
    "no texts": '{"class": "train"}',
    "another class": '{"class": "test", "prompt": [1], "continuation": [1]}',
    "an empty prompt": '{"class": "train", "prompt": [], "continuation": [1]}',
    "texts that nobody makes ids of": '{"class": "train", "prompt": "a", "continuation": "b"}',
    "an id below 0": '{"class": "train", "prompt": [-1], "continuation": [1]}',
    "a truth value": '{"class": "train", "prompt": [true], "continuation": [1]}',
    "half an id": '{"class": "train", "prompt": [1.5], "continuation": [1]}',
    "a key twice": '{"class": "train", "class": "train", "prompt": [1], "continuation": [1]}',
    "another key": '{"class": "train", "prompt": [1], "continuation": [1], "more": 1}',
    "a number": '{"class": "train", "prompt": 1, "continuation": [1]}',
    "an infinity": '{"class": "train", "prompt": [Infinity], "continuation": [1]}',
    "nested too deep": "[" * 100_000,
}


@pytest.mark.parametrize("text", NO_PROBES.values(), ids=NO_PROBES)
@pytest.mark.filterwarnings("ignore:weighbridge recorder")
def test_a_file_that_is_none_of_probes_costs_their_columns_alone(text: str, tmp_path: Path) -> None:
    (tmp_path / "probes.jsonl").write_text(text)
    model = Language()
    with Recorder(tmp_path / "run", model, adamw(model), probes=Probes(path=tmp_path / "probes.jsonl")) as rec:
        rec.step(1.0)
    (failure,) = events(tmp_path / "run", "recorder-failure")
    assert "probe_loss" in failure["costs"]
    assert "loss" not in failure["costs"]
    assert judged(tmp_path / "run", "sealed-probes") == (Outcome.BLOCKED, "no-probes")


def test_texts_are_probes_where_somebody_makes_ids_of_them(tmp_path: Path) -> None:
    rows_ = [{"class": "train", "prompt": "abc", "continuation": "de"}] * 10
    (tmp_path / "probes.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows_))
    asked = Probes(path=tmp_path / "probes.jsonl", encode=lambda text: [ord(one) - 97 for one in text])
    trained(tmp_path / "run", steps=2, probes=asked)
    row = rows(tmp_path / "run")[0]
    assert "probe_loss" in row
    assert "unseen_ppl" not in row


class LooksAhead(Language):
    def forward(self, ids: Any) -> Any:
        return super().forward(ids) + super().forward(ids.flip(1)).mean(1, keepdim=True)


def test_a_masked_model_of_transformers_has_no_continuation(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    transformers.set_seed(0)
    sizes = {"num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.BertConfig(vocab_size=40, max_position_embeddings=16, **sizes)
    model = transformers.BertForMaskedLM(config)
    optimizer, ids = adamw(model), torch.tensor(texts(6, 5))
    asked = Probes(path=probe_file(tmp_path / "probes.jsonl"))
    with Recorder(tmp_path / "run", model, optimizer, on_fail="raise", probes=asked) as rec:
        for _ in range(12):
            loss = model(input_ids=ids, labels=ids).loss
            loss.backward()
            optimizer.step()
            rec.step(loss)
            optimizer.zero_grad()
    assert all("looks ahead" in one["refused"] for one in events(tmp_path / "run", "probes")[:2])
    assert not any("probe_loss" in row for row in rows(tmp_path / "run"))


def test_a_model_that_looks_ahead_has_no_continuation(tmp_path: Path) -> None:
    probes = Probes(path=probe_file(tmp_path / "probes.jsonl"))
    trained(tmp_path / "run", steps=2, model=LooksAhead(), probes=probes)
    assert "looks ahead" in events(tmp_path / "run", "probes")[0]["refused"]
    assert not any("probe_loss" in row for row in rows(tmp_path / "run"))
