"""What another test compiled in this process is none of a recorded run's: a recorder that sees it audits nothing."""

from __future__ import annotations

import sys

import pytest


@pytest.fixture(autouse=True)
def nothing_compiled() -> None:
    """Forget what was compiled in this process."""
    compiled = sys.modules.get("torch._dynamo")
    if compiled is not None:
        compiled.reset()
        compiled.utils.counters.clear()
