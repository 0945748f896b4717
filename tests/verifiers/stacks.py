"""Real stacks to weigh: the tiny GPT of the specimens, as its factories or as modules changed by a test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.modules import module_at
from torch import nn

from weighbridge.core.model import Measurement, Verdict
from weighbridge.evidence.codec import decode_measured, encode_measured
from weighbridge.gates.families.local_errors import Limits
from weighbridge.gates.forward_parity import judge
from weighbridge.quantities.base import rows_of
from weighbridge.quantities.forward import ForwardError
from weighbridge.verifiers.forward_errors import measure
from weighbridge.views.model_view import ModelView, open_model

MODELS = Path(__file__).parents[2] / "verifiers" / "specimens" / "models"
gpt: Any = module_at(MODELS / "tiny_gpt.py")


class Layered(nn.Module):
    """Two layers of one kind between a table and a head, as wide as is said: token ids to 50 logits each."""

    def __init__(self, width: int, layer: type[nn.Module]) -> None:
        super().__init__()
        self.token = nn.Embedding(50, width)
        self.layers = nn.ModuleList([layer(), layer()])
        self.head = nn.Linear(width, 50)

    def forward(self, ids: Any) -> Any:
        x = self.token(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


@dataclass(frozen=True)
class Ready:
    """A factory that returns what it was given."""

    stack: object

    def make(self) -> object:
        return self.stack

    def digest(self, *_others: object) -> Mapping[str, str]:
        return {}


def shown(subject: object) -> ModelView:
    """Put a ready stack on the scale, as if a factory had made it."""
    return ModelView(spec="ready_made:stack", source=Ready(subject))


def named(factory: str, file: str = "tiny_gpt.py") -> ModelView:
    return open_model(f"{MODELS / file}:{factory}")


def measured(reference: ModelView, candidate: ModelView) -> Measurement:
    found = measure((reference, candidate), {})
    assert isinstance(found, Measurement)
    sealed = decode_measured(*encode_measured(found))  # a judge sees only what the sealed bytes decode to
    assert isinstance(sealed, Measurement)
    return sealed


def rows(found: Measurement) -> Mapping[str, ForwardError]:
    return {row.point: row for row in rows_of(found, ForwardError)}


REFERENCE = named("reference")  # its runs are kept, so that each is made once for all tests


def weighed(candidate: object, dtype: str = "float32", **limits: Any) -> Verdict:
    """Judge a candidate; what a test changed in its weights stands for a bug in its operations, unless it says so."""
    view = candidate if isinstance(candidate, ModelView) else shown(gpt.forward(candidate, dtype))
    return judge({"points": measured(REFERENCE, view)}, Limits(**{"other_weights": ("*",), **limits}))
