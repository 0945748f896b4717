"""What a training script imports: a recorder that writes a run directory and never changes the training it watches."""

from __future__ import annotations

import importlib.util

if importlib.util.find_spec("torch") is None:
    raise ModuleNotFoundError("weighbridge.recorder needs torch: pip install 'weighbridge[torch]'", name="torch")

from weighbridge.recorder.recorder import Recorder

__all__ = ["Recorder"]
