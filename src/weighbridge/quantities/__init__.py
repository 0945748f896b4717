"""The quantities that verifiers measure and judges read, one dataclass each, typed out by hand."""

from __future__ import annotations

from collections.abc import Mapping

from weighbridge.quantities.base import Form, Quantity, rows
from weighbridge.quantities.tensors import TensorMoments

QUANTITIES: Mapping[str, Quantity] = {
    quantity.name: quantity
    for quantity in (
        rows("tensor_moments", TensorMoments),
        # TRANSITION: not yet typed
        Quantity(name="facts", form=Form.RECORD, row=dict),
        Quantity(name="command_outcome", form=Form.RECORD, row=dict),
        Quantity(name="corpus_passes", form=Form.ROWS, row=dict, key="pass"),
        Quantity(name="corpus_progress", form=Form.RECORD, row=dict),
        Quantity(name="device_evidence", form=Form.ROWS, row=dict, key="place"),
        Quantity(name="file_structure", form=Form.ROWS, row=dict),
        Quantity(name="forward_errors", form=Form.ROWS, row=dict, key="point"),
        Quantity(name="host", form=Form.RECORD, row=dict),
        Quantity(name="model_config", form=Form.ROWS, row=dict),
        Quantity(name="step_columns", form=Form.ROWS, row=dict, key="column"),
        Quantity(name="step_series", form=Form.SERIES),
        Quantity(name="tensor_bits", form=Form.ROWS, row=dict),
        Quantity(name="tensor_health", form=Form.ROWS, row=dict),
        Quantity(name="tensor_pairs", form=Form.ROWS, row=dict),
        Quantity(name="tensor_values", form=Form.ROWS, row=dict),
    )
}
