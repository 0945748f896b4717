"""The verifiers, by quantity and by the kinds of the subjects that they measure, typed out by hand."""

from __future__ import annotations

from collections.abc import Mapping

from weighbridge.model import SubjectKind
from weighbridge.verifiers.base import Verifier
from weighbridge.verifiers.checkpoint_facts import CHECKPOINT_FACTS
from weighbridge.verifiers.tensor_pairs import TENSOR_PAIRS

_ALL: tuple[Verifier, ...] = (
    TENSOR_PAIRS,
    CHECKPOINT_FACTS,
)

VERIFIERS: Mapping[tuple[str, tuple[SubjectKind, ...]], Verifier] = {
    (verifier.quantity, verifier.kinds): verifier for verifier in _ALL
}
