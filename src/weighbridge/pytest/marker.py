"""The mark by which ordinary tests discharge a gate at the algorithm level: `@pytest.mark.gate("ID", contract="FILE")`.

A gate, of the kind `test-report`, looks at a report of all marked tests that were collected: one that was skipped,
deselected, expected to fail or never run has shown nothing, and blocks it. Imported when a marked test is collected.
"""

import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from weighbridge.contract.load import LoadedContract, load_contract
from weighbridge.core import Excuses, GateDecl, Outcome, Severity, SubjectKind, WeighbridgeError, nearest, printable
from weighbridge.evaluation.binding import Binding
from weighbridge.judging.requests import DEFAULT

KIND = "test-report"
ROWS = "weighbridge-gates-of-tests"  # what a worker of pytest-xdist hands over
NOT_RUN, DESELECTED = "never run", "deselected"
WORST = (NOT_RUN, DESELECTED, "passed", "skipped", "failed", "error")  # the last: the first two give way to any other
ELEMENTS = dict(zip(WORST, ("skipped", "skipped", "", "skipped", "failure", "error"), strict=True))
UNREASONED = "unconditional skip"  # what pytest says for a mark without a reason
UNBROKEN = (Outcome.PASS, Outcome.NOT_APPLICABLE)  # of a required gate
ENDED = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)


class MarkedTests:
    """The marked tests that were collected, by contract and gate, and what each came to."""

    def __init__(self, config: pytest.Config, outcomes: Counter[str], excuses: Callable[[], Excuses]) -> None:
        self.config = config
        self.outcomes = outcomes  # of all gates of the session
        self.excuses = excuses
        self.contracts: dict[str, LoadedContract] = {}
        self.tests: dict[str, dict[str, dict[str, tuple[str, str]]]] = {}
        self.refused = ""
        self.lines: list[str] = []

    def add(self, item: pytest.Item | pytest.Collector, mark: pytest.Mark) -> None:
        """Add a collected test, or an empty class, under the gate of its mark; what cannot be is refused later."""
        try:
            gate, contract = _named(mark)
            self._gate(contract, gate)
        except (WeighbridgeError, ValueError) as error:
            file, line, _ = getattr(item, "location", (item.nodeid.partition("::")[0], 0, ""))
            self.refused = self.refused or f"{file}:{(line or 0) + 1}: {error}"
        else:
            self.tests.setdefault(contract, {}).setdefault(gate, {})[item.nodeid] = NOT_RUN, ""

    def _gate(self, contract: str, gate: str) -> GateDecl:
        if contract not in self.contracts:
            self.contracts[contract] = load_contract(os.path.relpath(self.config.rootpath / contract))
        gates = {one.id: one for one in self.contracts[contract].contract.gates}
        if gate not in gates:
            raise ValueError(f"{contract} has no gate {gate!r}{nearest(gate, gates)}")
        found = gates[gate]
        if found.kind != KIND:
            raise ValueError(f"{gate} is of the kind {found.kind}; tests discharge gates of the kind {KIND} alone")
        if of_one := [one.id for one in gates.values() if one is not found and one.subjects == found.subjects]:
            raise ValueError(f"{gate} and {of_one[0]} look at one subject; give each of them a report of its own")
        return found

    def rows(self) -> Iterator[tuple[str, str, str, str, str]]:
        """Yield contract, gate, test, what it came to and why, of every marked test."""
        for contract, gates in self.tests.items():
            for gate, tests in gates.items():
                yield from ((contract, gate, test, *came_to) for test, came_to in tests.items())

    def merge(self, rows: Iterable[tuple[str, str, str, str, str]]) -> None:
        """Merge what a worker ran; all of them have collected all tests."""
        for contract, gate, test, outcome, why in rows:
            self._gate(contract, gate)
            tests = self.tests.setdefault(contract, {}).setdefault(gate, {})
            tests[test] = _worse(tests.get(test, (NOT_RUN, "")), (outcome, why))

    def pytest_deselected(self, items: Iterable[pytest.Item]) -> None:
        """Note which marked tests were deselected."""
        for item in items:
            self._note(item.nodeid, DESELECTED, "")

    def pytest_collection_finish(self) -> None:
        """Refuse a mark that names no gate; a worker of pytest-xdist that raised would end without a word."""
        if self.refused and not hasattr(self.config, "workerinput"):
            raise pytest.UsageError(self.refused)

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Let marked tests fail where a mark was refused, which nothing showed before."""
        if self.refused and item.get_closest_marker("gate"):
            pytest.fail(self.refused, pytrace=False)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note what a test came to, the worst of set-up, call and clean-up."""
        if report.when == "call" or report.outcome != "passed":
            self._note(report.nodeid, *_came_to(report))

    def _note(self, test: str, outcome: str, why: str) -> None:
        for gates in self.tests.values():
            for tests in gates.values():
                if test in tests:
                    tests[test] = _worse(tests[test], (outcome, why))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Judge the gates; fail where a required one did not pass, unless all of its tests were deselected."""
        if hasattr(self.config, "workeroutput"):
            self.config.workeroutput[ROWS] = [list(row) for row in self.rows()]
            return
        if self.refused or exitstatus not in ENDED or self.config.getoption("collectonly"):
            return
        for contract, gates in self.tests.items():
            try:
                broken = self._judged(contract, gates)
            except WeighbridgeError as error:
                self.lines, broken = [*self.lines, *str(error).splitlines()], True
            if broken:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _judged(self, contract: str, gates: Mapping[str, Mapping[str, tuple[str, str]]]) -> bool:
        from weighbridge.pytest.evaluation import evaluate, summary

        loaded = self.contracts[contract]
        with tempfile.TemporaryDirectory() as folder:
            bound = []
            for gate, tests in gates.items():
                (subject,) = self._gate(contract, gate).subjects.values()
                path = Path(folder, f"{subject}.xml")
                path.write_bytes(junit(gate, tests))
                kind, target = SubjectKind.REPORT, str(path)
                bound.append(Binding(subject=subject, instance=DEFAULT, kind=kind, target=target, by_hand=False))
            on = {one.id: (DEFAULT,) if one.id in gates else () for one in loaded.contract.gates}
            evaluation = evaluate(self.config, loaded, bound, on)
        excuses = {one.gate: self.excuses().of(loaded.contract.id, one) for one in evaluation.findings}
        self.lines += [contract, *(summary(one, evaluation, excuses[one.gate]) for one in evaluation.findings)]
        asked = {gate for gate, tests in gates.items() if any(one != DESELECTED for one, _ in tests.values())}
        findings = [one for one in evaluation.findings if one.gate in asked]
        self.outcomes.update(str(one.verdict.outcome) for one in findings)
        allowed = {Severity.REQUIRED: UNBROKEN, Severity.ADVISORY: (*UNBROKEN, Outcome.FAIL, Outcome.BLOCKED)}
        return any(one.verdict.outcome not in allowed[one.severity] and not excuses[one.gate] for one in findings)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Write what the gates came to."""
        if self.lines:
            terminalreporter.section("gates of marked tests")
        for line in self.lines:
            terminalreporter.write_line(line)


def _named(mark: pytest.Mark) -> tuple[str, str]:
    contract = mark.kwargs.get("contract")
    texts = all(isinstance(one, str) for one in (*mark.args, contract))
    if len(mark.args) != 1 or set(mark.kwargs) != {"contract"} or not texts:
        raise ValueError('write @pytest.mark.gate("GATE-ID", contract="contracts/FILE.yaml")')
    return mark.args[0], str(contract)


def _worse(one: tuple[str, str], other: tuple[str, str]) -> tuple[str, str]:
    return max(one, other, key=lambda came_to: WORST.index(came_to[0]))


def _came_to(report: pytest.TestReport) -> tuple[str, str]:
    if hasattr(report, "wasxfail"):  # which has shown nothing
        return "skipped", _left_out(report, report.wasxfail.removeprefix("reason: "), "xfail")
    if report.outcome == "skipped":
        why = str(report.longrepr[2]).removeprefix("Skipped: ") if isinstance(report.longrepr, tuple) else ""
        return "skipped", _left_out(report, why.removeprefix(UNREASONED), "skip", "skipif")
    if report.outcome == "passed":
        return "passed", ""
    crash = getattr(report.longrepr, "reprcrash", None)  # a failure, or what a plug-in will run again
    return "failed" if report.when == "call" else "error", getattr(crash, "message", "")


def _left_out(report: pytest.TestReport, reason: str, *marks: str) -> str:
    """Return why a test was left out or may fail: by a mark, or as it said itself when it ran."""
    return ": ".join(filter(None, (*(f"marked {one}" for one in marks if one in report.keywords), reason)))


def junit(gate: str, tests: Mapping[str, tuple[str, str]]) -> bytes:
    """Write the report of one gate's tests, named as pytest names them in its own."""
    found = [ELEMENTS[outcome] for outcome, _ in tests.values()]
    counts = {"skipped": "skipped", "failures": "failure", "errors": "error"}
    counted = {name: str(found.count(element)) for name, element in counts.items()}
    suite = ET.Element("testsuite", {"name": gate, "tests": str(len(tests)), **counted})
    for test, (outcome, why) in tests.items():
        base, bracket, parameters = test.partition("[")
        file, *names = base.split("::")
        module = file.removesuffix(".py").replace("/", ".")
        case = ET.SubElement(suite, "testcase", classname=".".join((module, *names[:-1])))
        case.set("name", printable((names or [module])[-1] + bracket + parameters))
        if ELEMENTS[outcome]:
            ET.SubElement(case, ELEMENTS[outcome], message=printable(next(iter(why.splitlines()), outcome)))
    return bytes(ET.tostring(suite, encoding="utf-8", xml_declaration=True))
