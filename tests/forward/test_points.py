"""Points of a module: what its modules return, with stable ids, as rows of channels; taps give them other names."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from weighbridge.core.errors import SubjectError  # noqa: E402
from weighbridge.forward.points import as_rows  # noqa: E402
from weighbridge.forward.stacks import Torch  # noqa: E402

TOKENS = [[0, 1, 2], [3, 2, 1]]


class Small(nn.Module):
    """An embedding and a projection, with one computed constant."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(4, 2)
        self.project = nn.Linear(2, 4)
        self.again = nn.Identity()
        self.register_buffer("table", torch.tensor([0.1, 0.2], dtype=torch.float32), persistent=False)

    def forward(self, ids: Any) -> Any:
        return self.project(self.embed(ids) + self.table.to(self.embed.weight.dtype))


class Doubled(Small):
    def forward(self, ids: Any) -> Any:
        return self.project(self.again(self.embed(ids) + 1) + self.again(self.embed(ids) * 2))


class InPlace(Small):
    def forward(self, ids: Any) -> Any:
        return self.embed(ids).mul_(0)


class Keyed(Small):
    def forward(self, ids: Any) -> Any:
        return {"logits": self.project(input=self.embed(ids) * 1), "hidden": (self.embed(ids) + 1, None)}


def seen(module: nn.Module, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    Torch(module=module, **more).forward(TOKENS, lambda point, rows: found.update({point: rows.clone()}))
    return found


def test_points_are_what_modules_return_and_inputs_that_no_module_returned() -> None:
    assert list(seen(Small())) == ["embed.out", "project.in", "project.out"]


def test_a_module_that_runs_twice_has_two_points_of_each() -> None:
    twice = ["embed.out", "again.in", "embed.call2.out", "again.call2.in"]
    assert list(seen(Doubled())) == [*twice, "project.in", "project.out"]


def test_inputs_by_keyword_and_outputs_in_mappings_are_points() -> None:
    assert list(seen(Keyed())) == ["embed.out", "project.in", "project.out", "embed.call2.out", "hidden.out"]


@pytest.mark.parametrize("place", ["project.in", "project.out", "embed.out"])
def test_a_visit_may_put_other_values_in_the_place_of_a_point(place: str) -> None:
    made: dict[str, Any] = {}

    def visit(point: str, rows: Any) -> Any:
        found = torch.ones_like(rows) if point == place else None
        made[point] = rows if found is None else found
        return found

    module = Small()
    Torch(module=module).forward(TOKENS, visit)
    with torch.no_grad():
        given = made["embed.out"] + module.table if place == "embed.out" else made["project.in"]
        expected = module.project(given)
    assert place == "project.out" or torch.allclose(made["project.out"], expected)


@pytest.mark.parametrize(
    ("shape", "rows"),
    [
        ((2, 3, 5), (2, 3, 5)),
        ((2, 3, 5, 7), (2, 3, 35)),
        ((6, 5), (2, 3, 5)),
        ((1, 3, 5), (1, 3, 5)),
        ((2, 5, 3, 7), (2, 3, 35)),
        ((2, 5, 9, 7), (2, 3, 35)),
        ((4, 5), None),
        ((5,), None),
    ],
    ids=["plain", "heads last", "flat", "shared", "heads first", "cache", "no tokens", "a vector"],
)
def test_a_tensor_is_taken_as_rows_where_its_dimensions_say_so(shape: tuple[int, ...], rows: Any) -> None:
    found = as_rows(torch.arange(float(torch.Size(shape).numel())).reshape(shape), 2, 3)
    assert (found and tuple(found.tensor.shape)) == rows
    if found is not None and shape[2:3] != (9,):  # of a cache, only the new tokens come back
        assert tuple(found.back(found.tensor).shape) == shape


def test_a_later_change_in_place_does_not_reach_a_capture(tmp_path: Path) -> None:
    trace = Torch(module=InPlace(), dtype="float32").capture(TOKENS, tmp_path / "a.trace")
    assert trace.stored("embed.out").any()


# --- Taps -------------------------------------------------------------------------------------------------------------


def tapped(**taps: str) -> Mapping[str, Any]:
    return seen(Small(), taps={f"L0.{name}.out": place for name, place in taps.items()})


def test_taps_name_inputs_outputs_and_channel_ranges_and_these_alone_count() -> None:
    module, found = Small(), tapped(embed="embed", sum="project:in", logits="project", some="project:out[1:3]")
    with torch.no_grad():
        embedded = module.embed(torch.tensor(TOKENS))
        logits = module(torch.tensor(TOKENS))
    assert set(found) == {"L0.embed.out", "L0.sum.out", "L0.logits.out", "L0.some.out"}
    assert torch.equal(found["L0.embed.out"], embedded)
    assert torch.equal(found["L0.sum.out"], embedded + module.table)
    assert torch.equal(found["L0.logits.out"], logits)
    assert torch.equal(found["L0.some.out"], logits[..., 1:3])


@pytest.mark.parametrize("text", ["a:inside", "a[1]", "a b", "a:in:out", "a[-1:2]"])
def test_another_form_of_tap_is_refused(text: str) -> None:
    with pytest.raises(SubjectError, match="names no place in a module"):
        tapped(x=text)


# --- The module -------------------------------------------------------------------------------------------------------


def test_the_module_is_left_as_it_was(tmp_path: Path) -> None:
    module = Small().train()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    Torch(module=module).prepared("bfloat16").capture(TOKENS, tmp_path / "a.trace")
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    assert module.training
    assert not module.embed._forward_hooks
    assert torch.get_default_dtype() is torch.float32


def test_what_is_stored_is_cast_and_what_is_computed_is_not() -> None:
    cast = Torch(module=Small()).prepared("bfloat16")
    module: Any = cast.module
    assert (cast.dtype, module.embed.weight.dtype) == ("bfloat16", torch.bfloat16)
    assert module.table.dtype is torch.float32
    assert torch.equal(module.table, Small().table)


def test_tied_weights_stay_tied_in_a_copy_that_is_cast_and_every_other_memory_is_its_own() -> None:
    module: Any = Small()
    module.tied = module.embed.weight
    cast: Any = Torch(module=module).prepared("bfloat16").module
    assert cast.tied is cast.embed.weight
    assert isinstance(cast.tied, torch.nn.Parameter)
    assert cast.table.data_ptr() != module.table.data_ptr()


def test_equal_weights_have_equal_digests_whatever_their_dtype() -> None:
    module, wide = Small().bfloat16(), Small()
    wide.load_state_dict(module.state_dict())
    assert Torch(module=module).digests("bfloat16") == Torch(module=wide).digests("bfloat16")
    with torch.no_grad():
        wide.project.bias[3] += 1
    other, same = Torch(module=wide).digests("bfloat16"), Torch(module=module).digests("bfloat16")
    assert [name for name in same if same[name] != other[name]] == ["project.bias"]


def test_only_weights_with_other_bits_are_digested_again() -> None:
    module, other = Small(), Small()
    other.load_state_dict(module.state_dict())
    with torch.no_grad():
        other.project.bias[3] += 1
        for one in (module, other):
            one.embed.weight[0, 0] = math.nan
    known = dict.fromkeys(module.state_dict(), "known")
    found = Torch(module=other).digests("float32", Torch(module=module), known)
    assert [name for name in found if found[name] != "known"] == ["project.bias"]
    assert found["project.bias"] == Torch(module=other).digests("float32")["project.bias"]


def test_the_caller_may_say_how_to_call() -> None:
    calls: list[Any] = []

    def call(module: Any, ids: Any) -> Any:
        calls.append(ids.tolist())
        return module(ids)

    seen(Small(), call=call)
    assert calls == [TOKENS]


def test_a_module_that_is_given_no_token_ids_is_refused() -> None:
    with pytest.raises(SubjectError) as caught:
        seen(nn.Linear(3, 3), call=lambda module, ids: module(ids.float()))
    assert caught.value.code == "no-token-ids"


def test_tokens_are_drawn_for_the_table_that_they_are_looked_up_in() -> None:
    class Sees(nn.Module):
        config = SimpleNamespace(vocab_size=1000)  # of another part, or of none

        def __init__(self) -> None:
            super().__init__()
            self.patches, self.words = nn.Embedding(16, 2), nn.Embedding(40, 2)

        def get_input_embeddings(self) -> nn.Module:
            return self.words

    most = max(token for row in Torch(module=Sees()).drawn() for token in row)
    assert 16 < most < 40


def test_tokens_are_drawn_by_a_fixed_rule_below_the_vocabulary() -> None:
    module = nn.Sequential(nn.Embedding(50, 2))
    drawn = Torch(module=module).drawn()
    assert drawn == Torch(module=module).drawn()
    assert len({tuple(row) for row in drawn}) == 4
    assert 1 < min(map(min, drawn)) < max(map(max, drawn)) < 50
    with pytest.raises(SubjectError, match="no vocabulary"):
        Torch(module=nn.Sequential(nn.Linear(2, 2))).drawn()
