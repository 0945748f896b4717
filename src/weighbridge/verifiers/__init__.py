"""The verifiers, by quantity and kinds of subjects, each imported when first needed; other packages bring more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from weighbridge.core import SubjectKind
from weighbridge.core.plugins import Brought, Extended, OnDemand
from weighbridge.verifiers.verifier import Verifier

Key = tuple[str, tuple[SubjectKind, ...]]

_CHECKPOINT, _RUN = (SubjectKind.CHECKPOINT,), (SubjectKind.RUN,)
MODULES: Mapping[Key, str] = {
    ("column_agreement", (*_RUN, *_RUN)): "column_agreement",
    ("column_agreement", _RUN): "rank_columns",
    ("command_outcome", (SubjectKind.COMMAND,)): "command_outcome",
    ("command_runs", (SubjectKind.COMMAND,)): "command_runs",
    ("corpus_epochs", _RUN): "corpus_epochs",
    ("corpus_progress", _RUN): "corpus_progress",
    ("device_evidence", _RUN): "device_evidence",
    ("digest_formulas", _RUN): "digest_formulas",
    ("fact_agreement", (*_RUN, *_RUN)): "fact_agreement",
    ("fact_agreement", _RUN): "rank_facts",
    ("facts", _CHECKPOINT): "checkpoint_facts",
    ("facts", _RUN): "run_facts",
    ("file_structure", _CHECKPOINT): "file_structure",
    ("files_beside", (*_CHECKPOINT, *_CHECKPOINT)): "files_beside",
    ("forward_errors", (SubjectKind.MODEL, SubjectKind.MODEL)): "forward_errors",
    ("host", ()): "host",
    ("layer_course", _RUN): "layer_course",
    ("model_config", (*_CHECKPOINT, *_CHECKPOINT)): "model_config",
    ("moment_changes", (*_CHECKPOINT, *_CHECKPOINT)): "moment_changes",
    ("run_files", _RUN): "run_files",
    ("step_columns", _RUN): "step_columns",
    ("step_course", _RUN): "step_course",
    ("step_series", _RUN): "step_series",
    ("tensor_bits", _CHECKPOINT): "tensor_bits",
    ("tensor_health", _CHECKPOINT): "tensor_health",
    ("tensor_moments", _CHECKPOINT): "tensor_moments",
    ("tensor_values", (*_CHECKPOINT, *_CHECKPOINT)): "tensor_values",
    ("test_results", (SubjectKind.REPORT,)): "test_results",
}
BROUGHT: Brought[Verifier] = Brought("verifier", {name for name, _ in MODULES})


class _ByKey(Mapping[Key, Verifier]):
    """The verifiers of other packages, each by its quantity and the kinds of its subjects."""

    def __getitem__(self, key: Key) -> Verifier:
        if BROUGHT[key[0]].kinds != key[1]:
            raise KeyError(key)
        return BROUGHT[key[0]]

    def __iter__(self) -> Iterator[Key]:
        return ((name, verifier.kinds) for name, verifier in BROUGHT.items())

    def __len__(self) -> int:
        return len(BROUGHT)


VERIFIERS: Mapping[Key, Verifier] = Extended(OnDemand(__name__, "VERIFIER", MODULES), _ByKey())
