"""The verifiers, by quantity and by the kinds of the subjects that they measure, typed out by hand.

Each is imported when it is first asked for: a comparison of two files needs none of those that measure runs.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from weighbridge.model import SubjectKind
from weighbridge.verifiers.verifier import Verifier

Key = tuple[str, tuple[SubjectKind, ...]]

_CHECKPOINT, _RUN = (SubjectKind.CHECKPOINT,), (SubjectKind.RUN,)
_MODULES: Mapping[Key, str] = {
    ("command_outcome", (SubjectKind.COMMAND,)): "command_outcome",
    ("corpus_epochs", _RUN): "corpus_epochs",
    ("corpus_progress", _RUN): "corpus_progress",
    ("device_evidence", _RUN): "device_evidence",
    ("facts", _CHECKPOINT): "checkpoint_facts",
    ("facts", _RUN): "run_facts",
    ("file_structure", _CHECKPOINT): "file_structure",
    ("forward_errors", (SubjectKind.MODEL, SubjectKind.MODEL)): "forward_errors",
    ("host", ()): "host",
    ("model_config", (*_CHECKPOINT, *_CHECKPOINT)): "model_config",
    ("step_columns", _RUN): "step_columns",
    ("step_series", _RUN): "step_series",
    ("tensor_bits", _CHECKPOINT): "tensor_bits",
    ("tensor_health", _CHECKPOINT): "tensor_health",
    ("tensor_moments", _CHECKPOINT): "tensor_moments",
    ("tensor_values", (*_CHECKPOINT, *_CHECKPOINT)): "tensor_values",
}


@dataclass(frozen=True, slots=True)
class _Verifiers(Mapping[Key, Verifier]):
    modules: Mapping[Key, str]

    def __getitem__(self, key: Key) -> Verifier:
        found: Verifier = importlib.import_module(f"{__name__}.{self.modules[key]}").VERIFIER
        return found

    def __iter__(self) -> Iterator[Key]:
        return iter(self.modules)

    def __len__(self) -> int:
        return len(self.modules)


VERIFIERS: Mapping[Key, Verifier] = _Verifiers(_MODULES)
