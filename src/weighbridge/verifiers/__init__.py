"""The verifiers, by quantity and by the kinds of the subjects that they measure, typed out by hand."""

from __future__ import annotations

from collections.abc import Mapping

from weighbridge.model import SubjectKind
from weighbridge.verifiers import corpus_passes, corpus_progress, run_facts, step_columns, step_series
from weighbridge.verifiers.base import Verifier

_ALL: tuple[Verifier, ...] = (
    corpus_passes.VERIFIER,
    corpus_progress.VERIFIER,
    run_facts.VERIFIER,
    step_columns.VERIFIER,
    step_series.VERIFIER,
)

VERIFIERS: Mapping[tuple[str, tuple[SubjectKind, ...]], Verifier] = {
    (verifier.quantity, verifier.kinds): verifier for verifier in _ALL
}
