"""The verifiers, by quantity and by the kinds of the subjects that they measure, typed out by hand."""

from __future__ import annotations

from collections.abc import Mapping

from weighbridge.model import SubjectKind
from weighbridge.verifiers import (
    checkpoint_facts,
    command_outcome,
    corpus_epochs,
    corpus_progress,
    device_evidence,
    file_structure,
    forward_errors,
    host,
    model_config,
    run_facts,
    step_columns,
    step_series,
    tensor_bits,
    tensor_health,
    tensor_moments,
    tensor_values,
)
from weighbridge.verifiers.verifier import Verifier

_ALL: tuple[Verifier, ...] = (
    checkpoint_facts.VERIFIER,
    command_outcome.VERIFIER,
    corpus_epochs.VERIFIER,
    corpus_progress.VERIFIER,
    device_evidence.VERIFIER,
    file_structure.VERIFIER,
    forward_errors.VERIFIER,
    host.VERIFIER,
    model_config.VERIFIER,
    run_facts.VERIFIER,
    step_columns.VERIFIER,
    step_series.VERIFIER,
    tensor_bits.VERIFIER,
    tensor_health.VERIFIER,
    tensor_moments.VERIFIER,
    tensor_values.VERIFIER,
)

VERIFIERS: Mapping[tuple[str, tuple[SubjectKind, ...]], Verifier] = {
    (verifier.quantity, verifier.kinds): verifier for verifier in _ALL
}
