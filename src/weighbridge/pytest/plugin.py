"""Collect contracts as tests: `pytest contracts/x.yaml` runs `contracts/x.yaml::GATE-ID`; BLOCKED fails.

Loaded by every pytest on the machine, so it imports nothing of ours until a file mentions a contract.
"""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from collections.abc import Container, Generator, Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from _pytest._code.code import ReprExceptionInfo, ReprFileLocation, ReprTracebackNative

if TYPE_CHECKING:
    from weighbridge.contract.load import LoadedContract
    from weighbridge.core import Excuses, Outcome
    from weighbridge.evaluation.binding import Binding
    from weighbridge.evaluation.runner import Evaluation
    from weighbridge.lanes.waivers import Waivers
    from weighbridge.pytest.marker import MarkedTests

# A key can be written with escapes; what is empty mentions nothing, and is refused where contracts lie.
MENTIONS = re.compile(rb"weigh|contract|\\|\A(?:\s|#[^\n]*(?:\n|\Z))*\Z")
OUTCOME = "weighbridge"
GATES, MARKED = "weighbridge-gates", "weighbridge-marked-tests"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of `weighbridge verify` that a contract needs, each with `--gate-` before it."""
    group = parser.getgroup("weighbridge", "contracts as tests")
    for name, metavar, text in (
        ("--gate-subject", "NAME=PATH", "Bind a subject of the contracts."),
        ("--gate-param", "NAME=VALUE", "Override a parameter of the contracts."),
        ("--gate-expect-blocked", "GATE-ID", "Skip this gate where the host lacks what it requires."),
    ):
        group.addoption(name, action="append", default=[], metavar=metavar, help=text)
    group.addoption("--gate-evidence", metavar="DIR", type=Path, help="Write evidence bundles into this folder.")
    text = "Skip what these waivers excuse, with the reason. (default: waivers.yaml in the root folder)"
    group.addoption("--gate-waivers", metavar="FILE", type=Path, help=text)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marks of gates: `-m required`, `-m advisory`."""
    config.addinivalue_line("markers", "required: a gate of a contract that must pass")
    config.addinivalue_line("markers", "advisory: a gate of a contract that may fail")
    config.addinivalue_line("markers", "gate(id, contract): discharge a gate of a contract at the algorithm level")
    config.pluginmanager.register(Gates(config), GATES)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect YAML with the key of a contract, a misspelt one, or its parts; damaged or empty, where it is meant."""
    if (file_path.parent / "MANIFEST.json").exists():  # what a bundle seals is judged already
        return None
    if file_path.suffix not in {".yaml", ".yml"} or not MENTIONS.search(data := file_path.read_bytes()):
        return None
    from weighbridge.contract import strict_yaml
    from weighbridge.core import closest

    document, problems = strict_yaml.read(data, "")
    keys = document.data if document else {}
    if document is None:
        empty = problems[0].code == "yaml-empty" and parent.config.rootpath / "contracts" in file_path.parents
        meant = empty or b"contract/v" in data
    elif not isinstance(keys, dict) or str(keys.get("weighbridge")).startswith("waivers/"):
        meant = False
    else:
        misspelt = any(closest(key, ["weighbridge"]) and "contract" in str(one) for key, one in keys.items())
        meant = misspelt or "weighbridge" in keys or {"gates", "subjects"} <= keys.keys()
    return ContractFile.from_parent(parent, path=file_path) if meant else None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Add a test that is marked with a gate to those that discharge it."""
    for mark in item.iter_markers("gate"):
        marked_tests(item.config).add(item, mark)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Add a marked class or module without a test: it has shown nothing."""
    report = yield
    for mark in collector.iter_markers("gate") if not report.result and report.passed else ():
        marked_tests(collector.config).add(collector, mark)
    return report


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Merge what a worker of pytest-xdist ran of the marked tests."""
    if (rows := getattr(node, "workeroutput", {}).get("weighbridge-gates-of-tests")) is not None:
        marked_tests(node.config).merge(rows)


def marked_tests(config: pytest.Config) -> MarkedTests:
    """Return the marked tests of a session, whose hooks are in place from the first one on."""
    from weighbridge.pytest.marker import MarkedTests

    found = config.pluginmanager.get_plugin(MARKED)
    if not isinstance(found, MarkedTests):
        gates = gates_of(config)
        found = MarkedTests(config, gates.outcomes, lambda: gates.excuses)
        config.pluginmanager.register(found, MARKED)
    return found


def pytest_report_teststatus(report: Any) -> tuple[str, str, str] | None:
    """Show a blocked gate as BLOCKED; it is counted as failed."""
    outcome = dict(getattr(report, "user_properties", ())).get(OUTCOME)
    if report.when == "call" and report.failed and outcome in ("BLOCKED", "ERROR"):
        return "failed", outcome[0], outcome
    return None


class Gates:
    """The contracts that a session collected, and what their gates came to, wherever they ran."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.files: list[ContractFile] = []
        self.outcomes: Counter[str] = Counter()
        self.refused = ""
        self.judged: dict[tuple[str, str, str], Outcome] = {}

    @cached_property
    def waivers(self) -> Waivers:
        """Return the waivers that were named, or that lie in the root folder; read when a contract is collected."""
        from weighbridge.lanes.waivers import waivers_of

        return waivers_of(self.config.getoption("--gate-waivers"), dt.datetime.now(dt.UTC), self.config.rootpath)

    @cached_property
    def excuses(self) -> Excuses:
        """Return what excuses a gate."""
        from weighbridge.core import Excuses

        expect_blocked = frozenset(self.config.getoption("--gate-expect-blocked"))
        return Excuses(expect_blocked=expect_blocked, waived=self.waivers.good)

    @property
    def nothing_shown(self) -> bool:
        """Return whether gates ran and none passed."""
        return bool(self.outcomes) and not self.outcomes["PASS"]

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out the gates that marked tests discharge: they are judged when those have run."""
        if not config.pluginmanager.has_plugin(MARKED):
            return
        tests = marked_tests(config).tests
        marked = {((config.rootpath / name).resolve(), gate) for name, gates in tests.items() for gate in gates}
        idle = [one for one in items if isinstance(one, GateItem) and (one.path.resolve(), one.key[0]) in marked]
        if idle:
            items[:] = [item for item in items if item not in idle]
            config.hook.pytest_deselected(items=idle)

    def pytest_collection_finish(self) -> None:
        """Refuse what no collected contract knows, as `weighbridge verify` does: nothing would look at it."""
        if not self.files:
            return
        from weighbridge.core import ContractError, nearest
        from weighbridge.pytest.evaluation import under_pytest

        known = {
            "subject": {name for file in self.files for name in file.loaded.contract.subjects},
            "param": {name for file in self.files for name in file.params},
            "expect-blocked": {gate.id for file in self.files for gate in file.loaded.contract.gates},
        }
        for option, names in known.items():
            for text in _asked(self.config, option)[1]:
                if _name(text) not in names:
                    hint = nearest(_name(text), names)
                    self.refused = f"--gate-{option} {text}: no contract that was collected knows it{hint}"
        try:
            if self.waivers.given:
                from weighbridge.evaluation.binding import all_instances
                from weighbridge.lanes.waivers import demand_places

                contracts = ((file.loaded.contract, file.bound) for file in self.files)
                judged = {contract.id: all_instances(contract, bound) for contract, bound in contracts}
                demand_places(self.waivers, judged, self.config.rootpath / "evidence" / "ledger")
        except ContractError as error:
            self.refused = under_pytest(str(error))
        if self.refused and not hasattr(self.config, "workerinput"):  # a worker that raised would end without a word
            raise pytest.UsageError(self.refused)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count what a gate came to."""
        if report.when == "call" and (outcome := dict(report.user_properties).get(OUTCOME)):
            self.outcomes[str(outcome)] += 1

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """End with 5 where nothing was shown, whatever passed beside the gates."""
        if exitstatus == session.exitstatus == pytest.ExitCode.OK and self.nothing_shown:
            session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Write what is to be known of waivers, and that nothing was shown."""
        for remark in self.waivers.remarks(self.judged) if self.outcomes else ():
            terminalreporter.write_line(str(remark), yellow=True)
        if self.nothing_shown:
            counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(self.outcomes.items()))
            terminalreporter.write_line(f"weighbridge: no gate passed, so nothing was shown ({counts})", red=True)


def gates_of(config: pytest.Config) -> Gates:
    """Return the gates of a session."""
    found = config.pluginmanager.get_plugin(GATES)
    assert isinstance(found, Gates)  # registered by pytest_configure
    return found


def _name(text: str) -> str:
    return text.partition("=")[0].partition("@")[0]


def _asked(config: pytest.Config, option: str) -> tuple[list[str], list[str]]:
    """Return what `addopts` gives for an option, for whichever contracts know it, and what was typed."""
    flag, values = f"--gate-{option}", list(config.getoption(f"--gate-{option}"))
    kept = sum(word == flag or word.startswith(f"{flag}=") for word in config.getini("addopts"))
    return values[:kept], values[kept:]  # pytest puts addopts first


class ContractFile(pytest.File):
    """One contract: a test for each gate and instance; what was selected is evaluated once, as the first test runs."""

    loaded: LoadedContract
    params: frozenset[str]
    bound: tuple[Binding, ...]

    def collect(self) -> Iterable[GateItem]:
        """Load the contract, and name its gates."""
        from weighbridge.contract.load import load_contract
        from weighbridge.core import Severity, WeighbridgeError
        from weighbridge.evaluation.binding import bind, instances

        try:
            self.loaded = load_contract(str(self.path))
            # Of several contracts that are collected, each takes what is its own.
            self.params = frozenset(self.loaded.layered.data.get("params", ()))
            if params := dict(text.partition("=")[::2] for text in self._given("param", self.params)):
                self.loaded = load_contract(str(self.path), params)
            contract = self.loaded.contract
            self.bound = bind(contract, self.path.parent, self._given("subject", contract.subjects))
        except WeighbridgeError as error:
            from weighbridge.pytest.evaluation import under_pytest

            raise self.CollectError(under_pytest(str(error))) from None
        if not contract.gates:
            raise self.CollectError(f"{self.path}: it declares no gate, so it can show nothing")
        gates_of(self.config).files.append(self)
        for gate in contract.gates:
            for instance in instances(gate, self.bound):
                name = gate.id if instance == "default" else f"{gate.id}[{instance}]"
                item = GateItem.from_parent(self, name=name, key=(gate.id, instance))
                item.add_marker("required" if gate.severity is Severity.REQUIRED else "advisory")
                yield item

    def _given(self, option: str, names: Container[str]) -> list[str]:
        """Return what is given of these names: what was typed takes the place of what `addopts` says from the root."""
        kept, typed = _asked(self.config, option)
        again = {text.partition("=")[0] for text in typed}
        kept = [text for text in kept if text.partition("=")[0] not in again]
        root = self.config.rootpath
        if option == "subject" and root != Path.cwd():
            pairs = (text.partition("=") for text in kept)
            kept = [f"{name}={root / target if (root / target).exists() else target}" for name, _, target in pairs]
        return [text for text in (*kept, *typed) if _name(text) in names]

    @cached_property
    def evaluation(self) -> Evaluation:
        """Return what the selected gates of the contract came to, measured once."""
        from weighbridge.pytest.evaluation import evaluate

        selected = [item.key for item in self.session.items if isinstance(item, GateItem) and item.parent is self]
        on = {gate.id: tuple(one for name, one in selected if name == gate.id) for gate in self.loaded.contract.gates}
        return evaluate(self.config, self.loaded, self.bound, on)


class GateItem(pytest.Item):
    """One gate on one instance."""

    parent: ContractFile

    def __init__(self, *, key: tuple[str, str], **more: Any) -> None:
        super().__init__(**more)
        self.key = key

    def runtest(self) -> None:
        """Pass on PASS; an advisory finding is an expected failure; an expected block and NOT_APPLICABLE are skips."""
        from weighbridge.core import Outcome, Severity
        from weighbridge.pytest.evaluation import summary, under_pytest

        gates = gates_of(self.config)
        if gates.refused:
            raise NotPassedError(gates.refused)
        evaluation = self.parent.evaluation
        finding = next(one for one in evaluation.findings if (one.gate, one.instance) == self.key)
        outcome = finding.verdict.outcome
        self.user_properties.append((OUTCOME, str(outcome)))
        contract = evaluation.contract.id
        gates.judged[contract, *self.key] = outcome
        unblocked = finding.gate in gates.excuses.expect_blocked and outcome is not Outcome.BLOCKED
        if outcome is Outcome.PASS and not unblocked:
            return
        text = summary(finding, evaluation, everything=self.config.get_verbosity() > 0)
        if unblocked:
            what = f"    expected to be blocked, and {outcome}: take it off --gate-expect-blocked"
            head, *rest = text.splitlines()
            raise NotPassedError("\n".join((head, what, *rest)))
        if outcome is Outcome.NOT_APPLICABLE:
            pytest.skip(text)
        if excuse := gates.excuses.of(contract, finding):
            pytest.skip(f"{under_pytest(excuse)}\n{text}")
        if finding.severity is Severity.ADVISORY and outcome is not Outcome.ERROR:
            pytest.xfail(f"advisory: {text}")
        raise NotPassedError(text)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Show what the gate found, its first line in the summary; a traceback only where something broke."""
        if not isinstance(excinfo.value, NotPassedError):
            return super().repr_failure(excinfo, style)
        text = str(excinfo.value)
        first = (text.splitlines()[1:2] or [text])[0].strip()
        place = ReprFileLocation(str(self.path), (self._line() or 0) + 1, first)
        return ReprExceptionInfo(reprcrash=place, reprtraceback=ReprTracebackNative([f"{text}\n"]))

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Return the gate's place and name in headings."""
        return self.path, self._line(), self.name

    def _line(self) -> int | None:
        at = self.parent.loaded.gate_at(self.key[0])
        return at.line - 1 if at.file == str(self.path) else None  # where it is written in what the contract extends


class NotPassedError(Exception):
    """A gate that failed, was blocked, or broke."""
