"""What an adapter adds is looked at or refused: nothing that it changes passes for what the base has."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from ml_dtypes import bfloat16, float8_e4m3fn
from safetensors.numpy import save_file

from weighbridge.core import Measurement, SubjectError
from weighbridge.core.model import CanaryResult
from weighbridge.evaluation.runner import lay_canary
from weighbridge.quantities.tensors import TensorPair
from weighbridge.verifiers.adapted_values import VERIFIER
from weighbridge.verifiers.verifier import Views, rows_by_name
from weighbridge.views.checkpoint import open_checkpoint

Tensors: TypeAlias = dict[str, Any]
WEIGHTS = np.random.default_rng(0).standard_normal((8, 4)).astype("f4")
BASE: Tensors = {"a.weight": WEIGHTS, "b.weight": 2 * WEIGHTS, "norm": np.ones(4, "f4")}
LOW, HIGH = np.asarray([[1.0, -0.5, 2.0, 0.25]], "f4"), np.arange(1, 9, dtype="f4")[:, None]
CONFIG = {"peft_type": "LORA", "r": 1, "lora_alpha": 2}


def lora(*modules: str) -> Tensors:
    pairs = {"A": LOW, "B": HIGH}
    return {f"base_model.model.{one}.lora_{end}.weight": pairs[end] for one in modules for end in pairs}


def laid(
    folder: Path, base: Tensors, adapter: Tensors, candidate: Tensors, config: Mapping[str, Any] = CONFIG
) -> Views:
    files = {"base/model": base, "adapter/adapter_model": adapter, "new/model": candidate}
    for name, tensors in files.items():
        path = folder / f"{name}.safetensors"
        path.parent.mkdir(exist_ok=True)
        save_file(tensors, path)
    (folder / "adapter" / "adapter_config.json").write_text(json.dumps(config))
    return tuple(open_checkpoint(folder / name.partition("/")[0]) for name in files)


def merged(base: Tensors, *modules: str) -> Tensors:
    return base | {f"{one}.weight": base[f"{one}.weight"] + 2 * HIGH @ LOW for one in modules}


def rows(views: Views) -> dict[str, TensorPair]:
    return rows_by_name(VERIFIER.measure(views, {}))


def canary(views: Views, **options: Any) -> CanaryResult:
    measured = VERIFIER.measure(views, options)
    assert isinstance(measured, Measurement)
    return lay_canary(VERIFIER, views, options, measured)


def refused(views: Views) -> str:
    with pytest.raises(SubjectError) as raised:
        VERIFIER.measure(views, {})
    assert raised.value.code == "adapter"
    return raised.value.what


def test_a_weight_is_compared_with_its_sum_and_another_one_as_ever(tmp_path: Path) -> None:
    found = rows(laid(tmp_path, BASE, lora("a"), merged(BASE, "a")))
    assert found["a.weight"].reproduced["adapter-merged"] == 32
    assert found["a.weight"].adapter_share == pytest.approx(1)
    assert found["b.weight"].reproduced["identical"] == 32


SHAPES: Mapping[str, tuple[Tensors, Tensors, str]] = {  # adapter, candidate, and the place of the damage
    "of several": (lora("a", "b"), merged(BASE, "a", "b"), "b.weight"),
    "of one": (lora("b"), merged(BASE, "b"), "b.weight"),
    "not merged": (lora("a", "b"), BASE, "b.weight"),
    "one of two not merged": (lora("a", "b"), merged(BASE, "b"), "b.weight"),
    "at another scale": (lora("a", "b"), {name: 3 * one for name, one in BASE.items()}, "norm"),
    "merged as nothing explains": (lora("a"), BASE | {"a.weight": WEIGHTS[::-1].copy()}, "norm"),
    "saved whole alone": ({"base_model.model.norm": 2 * BASE["norm"]}, BASE | {"norm": 2 * BASE["norm"]}, "b.weight"),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_damaged_merge_is_seen_whatever_was_merged(tmp_path: Path, shape: str) -> None:
    adapter, candidate, place = SHAPES[shape]
    views = laid(tmp_path, BASE, adapter, candidate)
    found = canary(views)
    assert (found.applied, found.seen, found.place) == (True, True, place)


@pytest.mark.parametrize("dtype", ["f4", "f2", bfloat16, "f8"])
def test_a_damaged_merge_is_seen_in_every_dtype_and_where_values_are_zero(tmp_path: Path, dtype: Any) -> None:
    base = {"a.weight": np.zeros((8, 4), dtype), "b.weight": WEIGHTS.astype(dtype)}
    views = laid(tmp_path, base, {name: 0 * one for name, one in lora("a", "b").items()}, base)
    found = canary(views)
    assert (found.applied, found.seen) == (True, True)


def test_headers_alone_have_no_canary(tmp_path: Path) -> None:
    views = laid(tmp_path, BASE, lora("a"), merged(BASE, "a"))
    assert canary(views, headers=True).why == "no content was looked at"


def test_a_base_that_is_packed_does_not_hide_the_adapter(tmp_path: Path) -> None:
    codes = WEIGHTS.astype(float8_e4m3fn)
    base = {"a.weight": WEIGHTS, "p.weight": codes, "p.weight_scale_inv": np.ones((1, 1), "f4")}
    views = laid(tmp_path, base, lora("a"), {"a.weight": WEIGHTS, "p.weight": codes.astype("f4")})
    assert "no rule for an adapter of a base whose weights are packed" in refused(views)


def test_a_head_that_the_adapter_changes_is_not_dropped_as_one_that_repeats_the_embedding(tmp_path: Path) -> None:
    base = {"model.embed_tokens.weight": WEIGHTS, "lm_head.weight": WEIGHTS.copy()}
    without = {"model.embed_tokens.weight": WEIGHTS}
    assert rows(laid(tmp_path, base, lora("lm_head"), without))["lm_head.weight"].identical_to is None
    others = laid(tmp_path, base | {"a.weight": WEIGHTS}, lora("a"), merged(without | {"a.weight": WEIGHTS}, "a"))
    assert rows(others)["lm_head.weight"].identical_to == "model.embed_tokens.weight"


REFUSED: Mapping[str, tuple[Tensors, Mapping[str, Any], str]] = {
    "empty": ({}, CONFIG, "it has no tensors"),
    "another base's": (lora("c"), CONFIG, "it changes c.weight, which the base does not have"),
    "of another width": ({**lora("a"), "base_model.model.a.lora_A.weight": np.ones((1, 5), "f4")}, CONFIG, "[8, 5]"),
    "half of a pair": ({"base_model.model.a.lora_A.weight": LOW}, CONFIG, "has no base_model.model.a.lora_B.weight"),
    "one name twice": (
        {**lora("a"), "base_model.model.norm": BASE["norm"], "norm": BASE["norm"]}, CONFIG, "no rule for 1 of its",
    ),
    "another method's": (lora("a"), {**CONFIG, "peft_type": "IA3"}, "no rule for IA3"),
    "a scale that is true": (lora("a"), {**CONFIG, "lora_alpha": True}, "no number lora_alpha"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_adapter_of_this_base_is_refused(tmp_path: Path, what: str) -> None:
    adapter, config, said = REFUSED[what]
    assert said in refused(laid(tmp_path, BASE, adapter, BASE, config))


def test_an_adapter_without_its_configuration_is_refused(tmp_path: Path) -> None:
    views = laid(tmp_path, BASE, lora("a"), merged(BASE, "a"))
    (tmp_path / "adapter" / "adapter_config.json").unlink()
    assert refused((views[0], open_checkpoint(tmp_path / "adapter"), views[2])).startswith("there is no adapter_config")


def test_files_of_one_name_are_not_taken_for_each_other(tmp_path: Path) -> None:
    views = laid(tmp_path, BASE, {"base_model.model.norm": 2 * BASE["norm"]}, BASE | {"norm": 2 * BASE["norm"]})
    named = tmp_path / "adapter" / "model.safetensors"
    (tmp_path / "adapter" / "adapter_model.safetensors").rename(named)
    found = rows((views[0], open_checkpoint(named), views[2])).values()
    assert [row.reproduced["identical"] == row.elements for row in found] == [True, True, True]


def infinite(tensors: Tensors) -> Tensors:
    return tensors | {"a.weight": np.full((8, 4), np.inf, "f4")}


@pytest.mark.parametrize("sides", [(infinite, dict), (dict, infinite), (infinite, infinite)])
@pytest.mark.filterwarnings("error")
def test_infinite_weights_are_no_merge(tmp_path: Path, sides: tuple[Callable[[Tensors], Tensors], ...]) -> None:
    views = laid(tmp_path, sides[0](BASE), lora("a"), sides[1](merged(BASE, "a")))
    assert rows(views)["a.weight"].reproduced["adapter-merged"] == 0


def test_an_adapter_that_is_written_to_meanwhile_is_noticed(tmp_path: Path) -> None:
    views = laid(tmp_path, BASE, lora("a"), merged(BASE, "a"))
    with (tmp_path / "adapter" / "adapter_model.safetensors").open("ab") as file:
        file.write(b"x")
    with pytest.raises(SubjectError) as raised:
        VERIFIER.measure(views, {})
    assert raised.value.code == "subject-changed"
