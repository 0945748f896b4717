"""What a training script imports: a recorder that writes a run directory and never changes the training it watches."""

from __future__ import annotations

from weighbridge.recorder.recorder import Recorder

__all__ = ["Recorder"]
