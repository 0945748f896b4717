"""The quantities that verifiers measure and judges read, one dataclass each, typed out by hand."""

from __future__ import annotations

from collections.abc import Mapping

from weighbridge.quantities.base import Form, Quantity, record, rows
from weighbridge.quantities.checkpoint import ConfigField, FileStructure
from weighbridge.quantities.commands import CommandOutcome
from weighbridge.quantities.facts import Fact
from weighbridge.quantities.forward import ForwardError
from weighbridge.quantities.host import Host
from weighbridge.quantities.runs import CorpusEpoch, CorpusProgress, DeviceProbe, StepColumn
from weighbridge.quantities.tensors import TensorBits, TensorHealth, TensorMoments, TensorPair

QUANTITIES: Mapping[str, Quantity] = {
    quantity.name: quantity
    for quantity in (
        record("command_outcome", CommandOutcome),
        rows("corpus_epochs", CorpusEpoch, key="epoch"),
        record("corpus_progress", CorpusProgress),
        rows("device_evidence", DeviceProbe, key="place"),
        rows("facts", Fact),
        rows("file_structure", FileStructure),
        rows("forward_errors", ForwardError, key="point"),
        record("host", Host),
        rows("model_config", ConfigField),
        rows("step_columns", StepColumn, key="column"),
        Quantity(name="step_series", form=Form.SERIES),
        rows("tensor_bits", TensorBits),
        rows("tensor_health", TensorHealth),
        rows("tensor_moments", TensorMoments),
        rows("tensor_values", TensorPair),
    )
}
