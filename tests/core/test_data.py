"""What ships with the tool is found, and its tables mean the same to every reader of YAML."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from weighbridge.contract import strict_yaml
from weighbridge.core.data import PACKAGE, data_path, table

PATTERN = re.compile(r"\s*([\w-]+: )?'.*'\]?")  # one regular expression alone, which reads worst in pieces
TABLES = sorted(PACKAGE.glob("*/*.yaml"))


def test_the_starter_contracts_are_found() -> None:
    assert (data_path("contracts") / "checkpoint-import.yaml").is_file()


def listed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: listed(inner) for key, inner in value.items()}
    return [*map(listed, value)] if isinstance(value, tuple) else value


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_a_table_is_read_as_the_strict_reader_of_contracts_reads_it(path: Path) -> None:
    read = table(path.relative_to(PACKAGE).with_suffix("").as_posix())
    strict = strict_yaml.load(path.read_bytes(), path.name).data
    assert repr(listed(read)) == repr(strict)  # a whole number and a fraction of one value are written otherwise
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if len(line) > 160 and not PATTERN.fullmatch(line)] == []
