"""The forms of a report, by name: each a function of a module, loaded when asked for; other packages bring more."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any, Final

from weighbridge.core import FAULTS, PluginError, dataclass
from weighbridge.core.plugins import Brought
from weighbridge.report.rows import Report

FORMS: Final[Mapping[str, str]] = {
    "json": "machine.document",
    "jsonl": "machine.lines",
    "junit": "as_tests.suites",
    "sarif": "code_scanning.log",
    "github": "github.commands",
    "gitlab": "code_scanning.issues",
    "markdown": "github.page",
    "tap": "as_tests.points",
}


@dataclass(frozen=True, slots=True)
class ReportFormat:
    """A form of another package: its name in `--report NAME:FILE`, and what makes bytes of what `--json` prints."""

    name: str
    write: Callable[[Any], bytes]


BROUGHT: Brought[ReportFormat] = Brought("report format", FORMS)


def rendered(form: str, report: Report) -> str:
    """Return a report in one of our forms, as text."""
    module, _, function = FORMS[form].partition(".")
    text: str = getattr(importlib.import_module(f"weighbridge.report.{module}"), function)(report)
    return text


def data_of(form: str, report: Report) -> bytes:
    """Return a report in one of our forms or in another package's; `plugin-broken` where its function writes none."""
    if form in FORMS:
        return rendered(form, report).encode(errors="backslashreplace")
    from weighbridge.report.machine import contracts

    try:
        data = BROUGHT[form].write(contracts(report))
    except FAULTS as error:  # somebody else's code may raise anything
        why = f"raised {type(error).__name__}: {error}"
    else:
        if isinstance(data, bytes):
            return data
        why = f"returned a {type(data).__name__}, not bytes"
    remedy = "tell whoever wrote it; the evidence is sealed, and `evidence show` tells it"
    raise PluginError("plugin-broken", f"the report format {form!r} {why}", remedy=remedy)
