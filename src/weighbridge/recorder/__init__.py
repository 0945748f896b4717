"""What a training script imports: a recorder that writes a run directory and never changes the training it watches."""

import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weighbridge.recorder.beside.memorized import Probes
    from weighbridge.recorder.beside.snapshots import Analysis
    from weighbridge.recorder.passes.diagnostics import Diagnostics
    from weighbridge.recorder.recorder import Recorder

__all__ = ["Analysis", "Diagnostics", "Probes", "Recorder"]


def __getattr__(name: str) -> Any:
    if name not in __all__:  # a witness reads what is beside it, without torch
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if importlib.util.find_spec("torch") is None:
        raise ModuleNotFoundError("weighbridge.recorder needs torch: pip install 'weighbridge[torch]'", name="torch")
    from weighbridge.recorder import recorder

    return getattr(recorder, name)
