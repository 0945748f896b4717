"""`weighbridge compare` of what trainers and converters write: averages, adapters and layouts of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.cli.conftest import Cli

OWN = {
    "conv.weight": torch.arange(6.0).reshape(2, 3),
    "bn.bias": torch.ones(2),
    "bn.num_batches_tracked": torch.tensor(3),
}
EMA = {name: one * 2 for name, one in OWN.items()}
SECOND = "of {}, another set of weights beside {}, not compared; save it by itself to compare it"


def saved(path: Path, state: Any) -> Path:
    torch.save(state, path)
    return path


BESIDE: dict[str, tuple[str, str, dict[str, Any]]] = {
    "timm's CheckpointSaver": ("state_dict", "state_dict_ema", EMA),
    "torchvision's references": (
        "model", "model_ema", {"n_averaged": torch.tensor(5), **{f"module.{name}": one for name, one in EMA.items()}},
    ),
    "BasicSR": ("params", "params_ema", EMA),
    "a loop": ("model_state_dict", "ema", EMA),
}  # fmt: skip


@pytest.mark.parametrize("by", BESIDE)
def test_averages_beside_a_model_are_left_out_by_name_and_the_model_is_compared(
    cli: Cli, tmp_path: Path, by: str
) -> None:
    holder, key, averages = BESIDE[by]
    optimizer = {"state": {0: {"momentum_buffer": torch.ones(2)}}, "param_groups": [{"lr": 0.1}]}
    both = {"epoch": 0, "arch": "x", "optimizer": optimizer, "metric": 0.5, holder: OWN, key: averages}
    whole, own = saved(tmp_path / "whole.pth", both), saved(tmp_path / "own.pth", OWN)
    for pair in ((whole, own), (own, whole)):
        ended = cli("compare", *pair)
        assert ended.code == 0
        assert f"  {len(averages)} left out: {SECOND.format(key, holder)}" in ended.lines
    ended = cli("compare", whole, saved(tmp_path / "ema.pth", EMA))
    assert (ended.code, ended.lines[-1].partition(":")[0]) == (1, "DIFFERENT")
    other = {**both, key: {**averages, [*averages][-1]: torch.tensor(4)}}
    assert "left out" not in cli("compare", whole, saved(tmp_path / "again.pth", both)).out
    assert cli("compare", whole, saved(tmp_path / "other.pth", other)).code == 1


NOT_BESIDE: dict[str, dict[str, Any]] = {
    "a part of the model that is called so": {"model": OWN, "ema": {"codebook": torch.ones(4)}},
    "averages of another shape": {"model": OWN, "ema": {**EMA, "bn.bias": torch.ones(3)}},
    "nothing that holds a model": {"encoder": OWN, "ema": EMA},
    "a key that is none of averages": {"model": OWN, "teacher": EMA},
}


@pytest.mark.parametrize("case", NOT_BESIDE)
def test_what_is_no_second_set_of_the_models_own_weights_is_missing(cli: Cli, tmp_path: Path, case: str) -> None:
    state = NOT_BESIDE[case]
    whole = saved(tmp_path / "whole.pth", state)
    first = next(iter(state))
    ended = cli("compare", whole, saved(tmp_path / "own.pth", {first: state[first]}))
    assert (ended.code, "missing" in ended.lines[-1]) == (1, True)


def test_averages_by_themselves_are_a_model(cli: Cli, tmp_path: Path) -> None:
    alone = saved(tmp_path / "ema.pth", {"state_dict_ema": EMA})
    ended = cli("compare", alone, saved(tmp_path / "bare.pth", EMA))
    assert (ended.code, ended.lines[-1].partition(" (")[0]) == (0, "SAME: 3 of 3 tensors")


def test_a_mapping_file_decides_which_of_two_sets_is_compared(cli: Cli, tmp_path: Path) -> None:
    whole = saved(tmp_path / "whole.pth", {"state_dict": OWN, "state_dict_ema": EMA})
    (tmp_path / "map.yaml").write_text('rename: [{from: "^state_dict_ema[.]", to: ""}]')
    ema = saved(tmp_path / "ema.pth", EMA)
    ended = cli("compare", whole, ema, "--map", tmp_path / "map.yaml")
    assert ended.lines[-1] == "DIFFERENT: 3 of 6 tensors: 3 missing"
