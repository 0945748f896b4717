from __future__ import annotations

from weighbridge.core.data import data_path


def test_the_starter_contracts_are_found() -> None:
    assert (data_path("contracts") / "checkpoint-import.yaml").is_file()
