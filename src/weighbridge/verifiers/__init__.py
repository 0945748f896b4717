"""The verifiers, by quantity and by the kinds of the subjects that they measure, typed out by hand."""

from __future__ import annotations

from collections.abc import Mapping

from weighbridge.model import SubjectKind
from weighbridge.verifiers import checkpoint_facts, forward_errors, tensor_pairs
from weighbridge.verifiers.base import Verifier

_ALL: tuple[Verifier, ...] = (
    tensor_pairs.VERIFIER,
    checkpoint_facts.VERIFIER,
    forward_errors.VERIFIER,
)

VERIFIERS: Mapping[tuple[str, tuple[SubjectKind, ...]], Verifier] = {
    (verifier.quantity, verifier.kinds): verifier for verifier in _ALL
}
