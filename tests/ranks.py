"""How a rank of a test ends, whoever started it."""

from __future__ import annotations

import os

import torch


def leave() -> None:
    """Leave at once, when all ranks are done.

    A thread of gloo may outlive the interpreter, also where its group was destroyed, and aborts the rank then.
    """
    torch.distributed.barrier()
    os._exit(0)
