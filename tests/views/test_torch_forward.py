"""A PyTorch module on the scale: taps mean what they say, copies leave the module alone, weights are rounded once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from weighbridge.errors import SubjectError  # noqa: E402
from weighbridge.views.forward_subject import Captured, ForwardSubject  # noqa: E402
from weighbridge.views.torch_forward import Tap, TorchForward, tap  # noqa: E402

TOKENS = [[0, 1, 2], [3, 2, 1]]


class Small(nn.Module):
    """An embedding and a projection, with one computed constant."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(4, 2)
        self.project = nn.Linear(2, 4)
        self.again = nn.Identity()
        self.register_buffer("table", torch.tensor([0.1, 0.2], dtype=torch.float32), persistent=False)
        self.register_buffer("kept", torch.tensor([0.3], dtype=torch.float32))
        self.register_buffer("steps", torch.tensor([3]))

    def forward(self, tokens: Any) -> Any:
        return self.project(self.embed(tokens) + self.table.to(self.embed.weight.dtype))


class Twice(Small):
    def forward(self, tokens: Any) -> Any:
        return self.again(self.again(self.embed(tokens)))


class InPlace(Small):
    def forward(self, tokens: Any) -> Any:
        return self.embed(tokens).mul_(0)


def stack(module: nn.Module, **taps: str) -> TorchForward:
    return TorchForward(module=module, taps={f"L0.{name}.out": place for name, place in taps.items()}, tokens=TOKENS)


def captured(subject: TorchForward, dtype: str = "float32", storage: str = "float32") -> Mapping[str, Captured]:
    return subject.prepare(dtype, storage)(TOKENS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.b", Tap("a.b", "out", slice(None))),
        ("a:in", Tap("a", "in", slice(None))),
        ("", Tap("", "out", slice(None))),
        ("layers.0.qkv:out[64:128]", Tap("layers.0.qkv", "out", slice(64, 128))),
        ("a[0:4]", Tap("a", "out", slice(0, 4))),
    ],
)
def test_a_tap_names_a_side_and_channels(text: str, expected: Tap) -> None:
    assert tap(text) == expected


@pytest.mark.parametrize("text", ["a:inside", "a[1]", "a b", "a:in:out", "a[-1:2]"])
def test_another_form_of_tap_is_refused(text: str) -> None:
    with pytest.raises(SubjectError, match="names no place in a module"):
        tap(text)


def test_it_is_a_forward_subject() -> None:
    assert isinstance(stack(Small(), embed="embed"), ForwardSubject)


def test_inputs_outputs_and_channel_ranges_are_captured() -> None:
    torch.manual_seed(0)
    module = Small()
    held = captured(stack(module, embed="embed", sum="project:in", logits="project", some="project:out[1:3]", whole=""))
    with torch.no_grad():
        embedded = module.embed(torch.tensor(TOKENS))
        logits = module(torch.tensor(TOKENS))
    assert np.array_equal(held["L0.embed.out"].values, embedded.double().numpy())
    assert np.array_equal(held["L0.sum.out"].values, (embedded + module.table).double().numpy())
    assert np.array_equal(held["L0.some.out"].values, logits.double().numpy()[..., 1:3])
    assert np.array_equal(held["L0.whole.out"].values, held["L0.logits.out"].values)
    assert (held["L0.embed.out"].dtype, held["L0.embed.out"].device) == ("float32", "cpu")


def test_the_module_is_left_as_it_was() -> None:
    module = Small().train()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    captured(stack(module, embed="embed"), "bfloat16", "bfloat16")
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    assert module.training
    assert not module.embed._forward_hooks
    assert torch.get_default_dtype() is torch.float32


def test_what_is_stored_is_rounded_once_and_what_is_computed_never() -> None:
    module = Small()
    nn.init.constant_(module.embed.weight, 0.1)
    held = captured(stack(module, embed="embed", sum="project:in"), "float64", "bfloat16")
    rounded = torch.tensor(0.1).bfloat16().item()
    assert held["L0.embed.out"].values.ravel().tolist() == [rounded] * 12
    assert held["L0.sum.out"].values[0, 0, 0] == rounded + torch.tensor(0.1).item()


@pytest.mark.parametrize(("keep", "value"), [(True, 0.10000000149011612), (False, 0.10009765625)])
def test_constants_can_stay_in_their_own_dtype_below_float64(keep: bool, value: float) -> None:
    class Shows(Small):
        def forward(self, tokens: Any) -> Any:
            return self.again(self.embed(tokens) * 0 + self.table)

    subject = TorchForward(module=Shows(), taps={"L0.x.out": "again"}, tokens=TOKENS, keep_constants=keep)
    assert captured(subject, "bfloat16", "bfloat16")["L0.x.out"].values[0, 0, 0] == value


def test_float64_forwards_make_float64_by_default() -> None:
    class Makes(Small):
        def forward(self, tokens: Any) -> Any:
            return self.again(torch.ones(*tokens.shape, 1))

    assert captured(stack(Makes(), x="again"), "float64")["L0.x.out"].dtype == "float64"
    assert captured(stack(Makes(), x="again"), "float32")["L0.x.out"].dtype == "float32"


def test_a_later_change_in_place_does_not_reach_a_capture() -> None:
    assert captured(stack(InPlace(), embed="embed"))["L0.embed.out"].values.any()


def test_a_point_reached_twice_is_refused() -> None:
    with pytest.raises(SubjectError, match=r"L0\.x\.out was reached twice"):
        captured(stack(Twice(), x="again"))


def test_a_part_that_is_not_there_is_named() -> None:
    with pytest.raises(SubjectError, match=r"the module has no part 'layers\.9'"):
        captured(stack(Small(), x="layers.9"))


def test_a_value_without_sequences_and_tokens_is_refused() -> None:
    class Flat(Small):
        def forward(self, tokens: Any) -> Any:
            return self.again(self.embed(tokens).flatten(0, 1))

    with pytest.raises(SubjectError, match=r"L0\.x\.out holds \[6, 2\], not \[2 sequences, 3 tokens, …\]"):
        captured(stack(Flat(), x="again"))


def test_a_point_never_reached_is_left_out() -> None:
    assert list(captured(stack(Small(), embed="embed", x="again"))) == ["L0.embed.out"]


def test_equal_weights_have_equal_digests_whatever_their_dtype() -> None:
    module = Small().bfloat16()
    wide = Small()
    wide.load_state_dict(module.state_dict())
    assert stack(module).weights("bfloat16") == stack(wide).weights("bfloat16")
    with torch.no_grad():
        wide.project.bias[3] += 1
    other, same = stack(wide).weights("bfloat16"), stack(module).weights("bfloat16")
    assert [name for name in same if same[name] != other[name]] == ["project.bias"]


def test_only_computed_floating_constants_are_told() -> None:
    constants = stack(Small()).constants()
    assert {name: values.tolist() for name, values in constants.items()} == {
        "table": [0.10000000149011612, 0.20000000298023224]
    }


def test_the_caller_may_say_how_to_run() -> None:
    calls: list[Any] = []

    def run(module: Any, tokens: Any) -> Any:
        calls.append(tokens.tolist())
        return module(tokens)

    subject = TorchForward(module=Small(), taps={"embed": "embed"}, tokens=TOKENS, run=run)
    assert list(captured(subject)) == ["embed"]
    assert calls == [TOKENS]
