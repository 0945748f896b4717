"""Collect contracts as tests: `pytest contracts/x.yaml` runs `contracts/x.yaml::GATE-ID`; BLOCKED fails.

Loaded by every pytest on the machine, so it imports nothing of ours until a contract is collected.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from weighbridge.binding import Bound
    from weighbridge.contract.load import LoadedContract
    from weighbridge.runner import Evaluation

MARK = b"weighbridge: contract/"
HEAD = 4096
PROPERTY = "weighbridge"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that bind subjects."""
    group = parser.getgroup("weighbridge", "contracts as tests")
    group.addoption(
        "--gate-subject", action="append", default=[], metavar="NAME=PATH", help="Bind a subject of the contracts."
    )
    group.addoption(
        "--gate-expect-blocked", action="append", default=[], metavar="GATE-ID",
        help="Skip this gate where the host lacks what it requires.",
    )  # fmt: skip


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect a YAML file that says it is a contract."""
    if file_path.suffix not in {".yaml", ".yml"}:
        return None
    with file_path.open("rb") as file:
        is_contract = any(line.startswith(MARK) for line in file.read(HEAD).splitlines())
    return ContractFile.from_parent(parent, path=file_path) if is_contract else None


def pytest_report_teststatus(report: Any) -> tuple[str, str, str] | None:
    """Show a blocked gate as BLOCKED; it is counted as failed."""
    outcome = dict(getattr(report, "user_properties", ())).get(PROPERTY)
    if report.when == "call" and report.failed and outcome in ("BLOCKED", "ERROR"):
        return "failed", outcome[0], outcome
    return None


class ContractFile(pytest.File):
    """One contract: a test for each gate and instance; everything is evaluated once, when the first test runs."""

    _loaded: LoadedContract
    _bound: tuple[Bound, ...]
    _evaluation: Evaluation | None = None

    def collect(self) -> Iterable[GateItem]:
        """Load the contract, and name its gates."""
        from weighbridge.binding import bind, instances
        from weighbridge.contract.load import load_contract
        from weighbridge.errors import WeighbridgeError

        try:
            self._loaded = load_contract(str(self.path))
            contract = self._loaded.contract
            given: list[str] = self.config.getoption(
                "--gate-subject"
            )  # of several contracts, where several are collected
            mine = [text for text in given if text.partition("=")[0].partition("@")[0] in contract.subjects]
            self._bound = bind(contract, self.path.parent, mine)
        except WeighbridgeError as error:
            raise self.CollectError(str(error)) from None
        for gate in contract.gates:
            for instance in instances(gate, self._bound):
                name = gate.id if instance == "default" else f"{gate.id}[{instance}]"
                yield GateItem.from_parent(self, name=name, key=(gate.id, instance))

    def evaluation(self) -> Evaluation:
        """Weigh the whole contract, once."""
        if self._evaluation is None:
            from weighbridge.binding import instances
            from weighbridge.runner import judge, measure, seal

            contract = self._loaded.contract
            on = {gate.id: instances(gate, self._bound) for gate in contract.gates}
            self._evaluation = judge(seal(measure(contract, self._bound, on), None))
        return self._evaluation


class GateItem(pytest.Item):
    """One gate on one instance."""

    parent: ContractFile

    def __init__(self, *, key: tuple[str, str], **more: Any) -> None:
        super().__init__(**more)
        self.key = key

    def runtest(self) -> None:
        """Pass on PASS; what an advisory gate finds is an expected failure, and an expected block is a skip."""
        import click

        from weighbridge.exit_code import expected
        from weighbridge.model import Outcome, Severity
        from weighbridge.report import block

        evaluation = self.parent.evaluation()
        finding = next(one for one in evaluation.findings if (one.gate, one.instance) == self.key)
        outcome = finding.verdict.outcome
        self.user_properties.append((PROPERTY, str(outcome)))
        if outcome is Outcome.PASS:
            return
        title = next(gate.title for gate in evaluation.contract.gates if gate.id == finding.gate)
        text = click.unstyle("\n".join(block(finding, title, "", evaluation.measured)))
        if expected(finding, frozenset(self.config.getoption("--gate-expect-blocked"))):
            pytest.skip(f"expected: {text}")
        if finding.severity is Severity.ADVISORY and outcome is not Outcome.ERROR:
            pytest.xfail(f"advisory: {text}")
        raise NotPassedError(text)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Show what the gate found; a traceback only where something broke."""
        if isinstance(excinfo.value, NotPassedError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Return the gate's place and name in headings."""
        return self.path, None, self.name


class NotPassedError(Exception):
    """A gate that failed, was blocked, or broke."""
