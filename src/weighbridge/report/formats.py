"""The forms of a report, by name; each is a function of a module of its own, loaded when it is asked for."""

from __future__ import annotations

import importlib
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from weighbridge.report.rows import Report

FORMS: Final = MappingProxyType({
    "json": "machine.document",
    "jsonl": "machine.lines",
    "junit": "junit.suites",
    "sarif": "sarif.log",
    "github": "github.commands",
    "gitlab": "gitlab.issues",
    "markdown": "markdown.comment",
    "tap": "tap.points",
})  # fmt: skip


def rendered(form: str, report: Report) -> str:
    """Return a report in one of the forms, as text."""
    module, _, function = FORMS[form].partition(".")
    text: str = getattr(importlib.import_module(f"weighbridge.report.{module}"), function)(report)
    return text
