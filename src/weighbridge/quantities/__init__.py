"""The quantities that verifiers measure and judges read, one dataclass each, typed out by hand."""

from __future__ import annotations

from collections.abc import Mapping

from weighbridge.quantities.base import Form, Quantity, rows
from weighbridge.quantities.checkpoint import ConfigField, FileStructure
from weighbridge.quantities.facts import Fact
from weighbridge.quantities.tensors import TensorBits, TensorHealth, TensorMoments, TensorPair

QUANTITIES: Mapping[str, Quantity] = {
    quantity.name: quantity
    for quantity in (
        rows("facts", Fact),
        rows("file_structure", FileStructure),
        rows("model_config", ConfigField),
        rows("tensor_bits", TensorBits),
        rows("tensor_health", TensorHealth),
        rows("tensor_moments", TensorMoments),
        rows("tensor_values", TensorPair),
        # TRANSITION: not yet typed
        Quantity(name="command_outcome", form=Form.RECORD, row=dict),
        Quantity(name="corpus_passes", form=Form.ROWS, row=dict, key="pass"),
        Quantity(name="corpus_progress", form=Form.RECORD, row=dict),
        Quantity(name="device_evidence", form=Form.ROWS, row=dict, key="place"),
        Quantity(name="forward_errors", form=Form.ROWS, row=dict, key="point"),
        Quantity(name="host", form=Form.RECORD, row=dict),
        Quantity(name="step_columns", form=Form.ROWS, row=dict, key="column"),
        Quantity(name="step_series", form=Form.SERIES),
    )
}
