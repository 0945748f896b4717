"""The quantities that verifiers measure and judges read, one dataclass each, typed out by hand."""

from __future__ import annotations

from collections.abc import Mapping

from weighbridge.quantities.base import Form, Quantity, record, rows
from weighbridge.quantities.commands import CommandOutcome
from weighbridge.quantities.facts import Fact
from weighbridge.quantities.forward import ForwardError
from weighbridge.quantities.host import Host
from weighbridge.quantities.runs import CorpusEpoch, CorpusProgress, DeviceProbe, StepColumn
from weighbridge.quantities.tensors import TensorMoments

QUANTITIES: Mapping[str, Quantity] = {
    quantity.name: quantity
    for quantity in (
        record("command_outcome", CommandOutcome),
        rows("corpus_epochs", CorpusEpoch, key="epoch"),
        record("corpus_progress", CorpusProgress),
        rows("device_evidence", DeviceProbe, key="place"),
        rows("facts", Fact),
        rows("forward_errors", ForwardError, key="point"),
        record("host", Host),
        rows("step_columns", StepColumn, key="column"),
        Quantity(name="step_series", form=Form.SERIES),
        rows("tensor_moments", TensorMoments),
        # TRANSITION: not yet typed
        Quantity(name="file_structure", form=Form.ROWS, row=dict),
        Quantity(name="model_config", form=Form.ROWS, row=dict),
        Quantity(name="tensor_bits", form=Form.ROWS, row=dict),
        Quantity(name="tensor_health", form=Form.ROWS, row=dict),
        Quantity(name="tensor_pairs", form=Form.ROWS, row=dict),
        Quantity(name="tensor_values", form=Form.ROWS, row=dict),
    )
}
