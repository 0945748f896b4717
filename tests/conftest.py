"""Nothing is shared between tests but this: no test writes into the checkout."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run the test in an empty folder of its own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
