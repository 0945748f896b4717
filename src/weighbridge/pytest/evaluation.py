"""What gates come to under pytest, and how it is shown there; imported when a gate is to be judged."""

import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import click
import pytest

from weighbridge.contract.load import LoadedContract
from weighbridge.core import Finding, uncommanded
from weighbridge.evaluation.binding import Binding
from weighbridge.evaluation.runner import Evaluation, EvaluationSession
from weighbridge.evaluation.verification import keep
from weighbridge.evidence.redact import own_key, redactor_here
from weighbridge.report import INDENT, Row, checked, finding_text
from weighbridge.report.terminal import block

AS_HERE = re.compile(r" \(under pytest [^)]*\)")
OPTION = re.compile(r"(?<![\w-])--(subject|param|expect-blocked|evidence|waivers)\b")


def evaluate(
    config: pytest.Config, loaded: LoadedContract, bound: Sequence[Binding], on: Mapping[str, tuple[str, ...]]
) -> Evaluation:
    """Measure and judge the gates that `on` names instances for; write a bundle where `--gate-evidence` says so."""
    folder = config.getoption("--gate-evidence")
    named = (str(loaded.path), *sys.argv, *(item.target for item in bound))
    redactor = redactor_here(own_key(), run=Path.cwd(), named=named) if folder else None
    evaluation = EvaluationSession(contract=loaded.contract, bound=bound, on=on).evaluate(redactor)
    if redactor:
        keep(evaluation, loaded.source, redactor, folder, ("pytest", *config.invocation_params.args))
    return evaluation


def summary(finding: Finding, evaluation: Evaluation, excused: str = "", *, everything: bool = False) -> str:
    """Return what a gate came to, in lines."""
    title = evaluation.contract.gate(finding.gate).title
    row = Row(finding=finding, title=title, said=finding_text(finding, evaluation.measured), excused=excused)
    subjects = ((one.subject, one.instance, one.target, "") for one in evaluation.bound)
    lines = (*block(row, everything=everything), f"{INDENT}checked: {checked(evaluation.contract, subjects)}")
    return under_pytest(click.unstyle("\n".join(lines)), (one.target for one in evaluation.bound))


def under_pytest(text: str, targets: Iterable[str] = ()) -> str:
    """Return a message with the options as they are called here, and without absolute paths: it goes into reports."""
    for target in filter(os.path.isabs, targets):
        text = text.replace(target, os.path.relpath(target))
    return uncommanded(OPTION.sub(r"--gate-\1", AS_HERE.sub("", text))).replace(f"{Path.cwd()}{os.sep}", "")
