"""Where names differ by one rename, compare says which, and what it says makes the comparison succeed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.cli.conftest import Cli, cli  # noqa: F401 -- a fixture
from tests.comparison.conversions import converted, decoder, directory, gguf_file
from tests.formats.files import safetensors

from weighbridge.comparison.renaming import renaming

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
def test_the_line_that_is_given_makes_names_match(cli: Cli, workplace: Path, wrapped: str, prefix: str) -> None:  # noqa: F811
    plain = [prefix + name for name in PLAIN]
    source, import_ = written(workplace / "a", WRAPPED[wrapped]), written(workplace / "b", plain)
    ended = cli("compare", source, import_)
    told = f"names match after one rename: {len(PLAIN)} of the import's {len(PLAIN)} tensors then have a source"
    assert any(told in line for line in ended.lines)
    (given,) = (line for line in ended.lines if line.startswith("  echo '"))
    (workplace / "map.yaml").write_text(given.split("'")[1])
    assert given.endswith("' > map.yaml; then add --map map.yaml")
    ended = cli("compare", source, import_, "--map", "map.yaml")
    left = len(WRAPPED[wrapped]) - len(PLAIN)
    assert ended.code == (1 if left else 0)
    assert ended.lines[-1].startswith(f"DIFFERENT: {left} of 8 tensors: 1 missing" if left else "SAME: 7 of 7")


def test_what_torch_s_wrapper_adds_is_named(cli: Cli, workplace: Path) -> None:  # noqa: F811
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 3))
    torch.save({"model": torch.nn.DataParallel(model).state_dict(), "epoch": 1}, workplace / "a.pt")
    torch.save(model.state_dict(), workplace / "b.pt")
    ended = cli("compare", "a.pt", "b.pt")
    told = (
        "4 of the import's 4 tensors then have a source, 0 have one now (module. is what DistributedDataParallel adds)"
    )
    assert any(told in line for line in ended.lines)
    assert (
        """  echo 'rename: [{from: "^model[.]module[.]", to: ""}]' > map.yaml; then add --map map.yaml""" in ended.lines
    )


@pytest.mark.parametrize("wrapper", ["module.", "_orig_mod."])
def test_a_wrapped_model_is_the_source_of_its_gguf_file(cli: Cli, workplace: Path, wrapper: str) -> None:  # noqa: F811
    source = decoder(1)
    import_ = gguf_file(workplace / "m.gguf", converted(source, "llama"), "llama")
    wrapped = directory(workplace / "hf", {wrapper + name: values for name, values in source.items()})
    assert cli("compare", wrapped, import_).lines[-1].startswith("SAME: 12 of 12")


def test_an_optimizer_beside_the_model_may_go_where_the_policy_says_so(cli: Cli, workplace: Path) -> None:  # noqa: F811
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(2, 3)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2)).sum().backward()
    optimizer.step()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, workplace / "a.pt")
    torch.save(model.state_dict(), workplace / "b.pt")
    (workplace / "map.yaml").write_text('rename: [{from: "^model[.]", to: ""}]')
    ended = cli("compare", "a.pt", "b.pt", "--map", "map.yaml")
    (told,) = (line for line in ended.lines if "training state" in line)
    assert told.startswith("  6 of the missing are training state: where they may go, put allow_missing")
    given = told.partition("put ")[2].partition(" beside")[0]
    (workplace / "meant.yaml").write_text(f"policy: lossless\n{given}\n")
    ended = cli("compare", "a.pt", "b.pt", "--map", "map.yaml", "--policy", "meant.yaml")
    assert ended.code == 0


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
    assert renaming(source, candidate, more_than=now) is None
