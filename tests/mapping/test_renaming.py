"""Where names differ by one rename, compare says which, and what it says makes the comparison succeed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.cli.conftest import Cli, cli  # noqa: F401 -- a fixture
from tests.comparison.conversions import converted, decoder, directory, gguf_file
from tests.formats.files import safetensors

from weighbridge.mapping.renaming import renamings

PLAIN = [f"layers.{layer}.{part}.weight" for layer in range(3) for part in ("q", "k")] + ["norm.weight"]
HOLDERS = "_fsdp_wrapped_module.", "_checkpoint_wrapped_module."
WRAPPED = {
    "nested": [f"state_dict.{name}" for name in PLAIN],
    "compiled and parallel": [f"module._orig_mod.{name}" for name in PLAIN],
    "a part of a larger model": [*(f"language_model.model.{name}" for name in PLAIN), "vision.patch"],
    "in every layer": [HOLDERS[0] + name.replace("q.", HOLDERS[0] + "q.").replace("k.", HOLDERS[1] + "k.")
                       for name in PLAIN],
    "both": [f"model.{name.replace('q.', '_orig_mod.q.')}" for name in PLAIN],
}  # fmt: skip


def written(path: Path, names: list[str]) -> Path:
    """Write tensors whose values are told by their place among the names."""
    return safetensors(path, {name: ("F32", (8,), np.full(8, at, "<f4").tobytes()) for at, name in enumerate(names)})


@pytest.mark.parametrize("wrapped", WRAPPED)
@pytest.mark.parametrize("prefix", ["", "model."])
@pytest.mark.parametrize("forth", [True, False])
def test_what_holds_a_model_and_what_wraps_it_is_read_through(
    cli: Cli, workplace: Path, wrapped: str, prefix: str, *, forth: bool,  # noqa: F811
) -> None:  # fmt: skip
    plain = [prefix + name for name in PLAIN]
    paths = [written(workplace / "a", WRAPPED[wrapped]), written(workplace / "b", plain)]
    ended = cli("compare", *(paths if forth else reversed(paths)))
    (printed,) = (line for line in ended.lines if line.startswith("  names: "))
    assert printed.startswith("  names: renamed: ")
    for name in ("_orig_mod", "_fsdp_wrapped_module"):
        assert (f"{name}. is what" in printed) is any(name in one for one in WRAPPED[wrapped])
    left = len(WRAPPED[wrapped]) - len(PLAIN)
    assert ended.code == (1 if left else 0)
    assert ended.lines[-1].startswith(
        f"DIFFERENT: {left} of 8 tensors: 1 {'missing' if forth else 'extra'}" if left else "SAME: 7 of 7"
    )


def test_the_line_that_is_given_makes_other_names_match(cli: Cli, workplace: Path) -> None:  # noqa: F811
    source, import_ = written(workplace / "a", [f"tower.{name}" for name in PLAIN]), written(workplace / "b", PLAIN)
    ended = cli("compare", source, import_)
    assert ended.code == 1
    printed = f"names match after one rename: {len(PLAIN)} of the import's {len(PLAIN)} tensors then have a source"
    assert any(printed in line for line in ended.lines)
    (given,) = (line for line in ended.lines if line.startswith("  echo '"))
    (workplace / "map.yaml").write_text(given.split("'")[1])
    assert given.endswith("' > map.yaml; then add --map map.yaml")
    assert cli("compare", source, import_, "--map", "map.yaml").lines[-1].startswith("SAME: 7 of 7")


def test_a_head_that_kept_its_name_does_not_hide_that_the_rest_was_renamed(cli: Cli, workplace: Path) -> None:  # noqa: F811
    sides = ["head", "model.a.weight"], ["head", "a.weight"]  # which the canary cuts any two checkpoints down to
    ended = cli("compare", *(written(workplace / name, side) for name, side in zip("ab", sides, strict=True)))
    assert (ended.code, ended.lines[-1].startswith("SAME: 2 of 2")) == (0, True)


def test_of_two_models_in_one_file_neither_is_chosen(cli: Cli, workplace: Path) -> None:  # noqa: F811
    names = [f"{holder}.{name}" for holder in ("model", "net") for name in PLAIN]
    ended = cli("compare", written(workplace / "a", names), written(workplace / "b", PLAIN))
    assert ended.code == 1
    printed = "'model.' taken away; 'net.' taken away"
    assert f"  names match after either of these renames, so none is made: {printed}" in ended.lines
    assert "--map" not in ended.out  # under either the other half is missing


def test_what_torch_s_wrapper_adds_is_named_and_a_damage_behind_it_found(cli: Cli, workplace: Path) -> None:  # noqa: F811
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 3))
    torch.save({"model": torch.nn.DataParallel(model).state_dict(), "epoch": 1}, workplace / "a.pt")
    torch.save(model.state_dict(), workplace / "b.pt")
    printed = "  names: renamed: 'model.module.' taken away (module. is what DistributedDataParallel adds)"
    ended = cli("compare", "a.pt", "b.pt")
    assert (ended.code, printed in ended.lines) == (0, True)
    with torch.no_grad():
        model[1].bias[2] += 1
    torch.save(model.state_dict(), workplace / "b.pt")
    ended = cli("compare", "a.pt", "b.pt")
    assert (ended.code, ended.lines[-1]) == (1, "DIFFERENT: 1 of 4 tensors: 1 changed (different content)")


@pytest.mark.parametrize("wrapper", ["module.", "_orig_mod."])
def test_a_wrapped_model_is_the_source_of_its_gguf_file(cli: Cli, workplace: Path, wrapper: str) -> None:  # noqa: F811
    source = decoder(1)
    import_ = gguf_file(workplace / "m.gguf", converted(source, "llama"), "llama")
    wrapped = directory(workplace / "hf", {wrapper + name: values for name, values in source.items()})
    ended = cli("compare", wrapped, import_)
    assert "  names: gguf:auto (llama), what holds or wraps the names taken away" in ended.lines
    assert ended.lines[-1].startswith("SAME: 12 of 12")


HELD = {
    "as PyTorch's guide says": lambda model, optimizer: {"model_state_dict": model, "optimizer_state_dict": optimizer},
    "under names of one's own": lambda model, optimizer: {"net": model, "adam": optimizer, "epoch": 1},
    "in a list": lambda model, optimizer: [model, optimizer],
    "in an app": lambda model, optimizer: {"app": {"model": model, "optim": optimizer}},
}  # fmt: skip


@pytest.mark.parametrize("stored", HELD)
@pytest.mark.parametrize("forth", [True, False])
def test_training_state_beside_the_model_is_left_out_and_counted(
    cli: Cli, workplace: Path, stored: str, *, forth: bool,  # noqa: F811
) -> None:  # fmt: skip
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(2, 3)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2)).sum().backward()
    optimizer.step()
    torch.save(HELD[stored](model.state_dict(), optimizer.state_dict()), workplace / "a.pt")  # type: ignore[no-untyped-call]
    torch.save(model.state_dict(), workplace / "b.pt")
    ended = cli("compare", *(("a.pt", "b.pt") if forth else ("b.pt", "a.pt")))
    assert ended.code == 0
    assert "  6 left out: training state beside the model" in ended.lines
    assert ended.lines[-1].startswith("AS MEANT: 8 of 8 tensors")


def test_what_is_lost_of_training_state_that_both_sides_have_is_missing(cli: Cli, workplace: Path) -> None:  # noqa: F811
    torch = pytest.importorskip("torch")
    moments = {"exp_avg": torch.ones(3), "exp_avg_sq": torch.ones(3)}
    for name, kept in (("a.pt", moments), ("b.pt", {"exp_avg": torch.ones(3)})):
        torch.save({"model": {"w": torch.ones(3)}, "optimizer": {"state": {0: kept}}}, workplace / name)
    ended = cli("compare", "a.pt", "b.pt")
    assert (ended.code, ended.lines[-1]) == (1, "DIFFERENT: 1 of 3 tensors: 1 missing")


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_a_distributed_checkpoint_of_model_and_optimizer_is_its_model(cli: Cli, workplace: Path) -> None:  # noqa: F811
    torch = pytest.importorskip("torch")
    from torch.distributed.checkpoint.state_dict_saver import save

    state = {"model": {"w": torch.ones(3)}, "optimizer": {"state": {"w": {"exp_avg": torch.ones(3)}}}}
    save(state, checkpoint_id=workplace / "step-1", no_dist=True)
    torch.save(state["model"], workplace / "b.pt")
    ended = cli("compare", "step-1", "b.pt")
    assert (ended.code, "  1 left out: training state beside the model" in ended.lines) == (0, True)


@pytest.mark.parametrize(
    ("source", "candidate", "now"),
    [
        (PLAIN, PLAIN, 7),
        (PLAIN, [*PLAIN, "more.norm.weight"], 7),  # the rename would cost the others their names
        (["a.weight", "b.weight"], ["c.weight", "d.weight"], 0),  # one end, two beginnings
        (["x'; rm.a", "x'; rm.b"], ["a", "b"], 0),  # what no shell should be given
        ([], ["a"], 0),
    ],
)
def test_no_rename_is_made_up(source: list[str], candidate: list[str], now: int) -> None:
    assert renamings(source, candidate, more_than=now) == ()
