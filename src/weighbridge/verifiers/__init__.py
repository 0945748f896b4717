"""The verifiers, by quantity and kinds of subjects, each imported when first needed; other packages bring more."""

from collections.abc import Iterator, Mapping

from weighbridge.core import SubjectKind
from weighbridge.core.plugins import Brought, Extended, OnDemand
from weighbridge.verifiers.verifier import Verifier

Key = tuple[str, tuple[SubjectKind, ...]]

_CHECKPOINT, _RUN = (SubjectKind.CHECKPOINT,), (SubjectKind.RUN,)
OF_THEIR_NAMES: Mapping[tuple[SubjectKind, ...], tuple[str, ...]] = {  # modules that are called as what they measure
    (): ("host",),
    _CHECKPOINT: ("file_structure", "own_claims", "tensor_bits", "tensor_health", "tensor_moments"),
    (*_CHECKPOINT, *_CHECKPOINT): ("files_beside", "model_config", "moment_changes", "tensor_values"),
    _RUN: (
        *("corpus_epochs", "corpus_progress", "device_evidence", "digest_formulas", "layer_course"),
        *("run_files", "step_columns", "step_course", "step_series"),
    ),
    (*_RUN, *_RUN): ("column_agreement", "fact_agreement"),
    (SubjectKind.COMMAND,): ("command_outcome", "command_runs"),
    (SubjectKind.MODEL, SubjectKind.MODEL): ("forward_errors",),
    (SubjectKind.REPORT,): ("test_results",),
}
MODULES: Mapping[Key, str] = {
    ("column_agreement", _RUN): "rank_columns",
    ("fact_agreement", _RUN): "rank_facts",
    ("facts", _CHECKPOINT): "checkpoint_facts",
    ("facts", _RUN): "run_facts",
    ("tensor_values", (*_CHECKPOINT, *_CHECKPOINT, *_CHECKPOINT)): "adapted_values",
    **{(name, kinds): name for kinds, names in OF_THEIR_NAMES.items() for name in names},
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
