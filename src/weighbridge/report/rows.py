"""What a `verify` came to, as every report takes it: a suite for each contract, a row for each finding."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weighbridge.contract.load import BUILTIN
from weighbridge.contract.resolved import digests
from weighbridge.core import Excuses, ExitCode, Outcome, data_path, dataclass, dumps, printable, sha256, unblocked
from weighbridge.core.model import Measurement, Series
from weighbridge.judging.requests import beyond, looked_at
from weighbridge.report import Row, checked, finding_text, tally

if TYPE_CHECKING:
    from weighbridge.core import Contract, Finding, Measured
    from weighbridge.evaluation.verification import ContractResult
    from weighbridge.evidence.bundle import Bundle

ROOTS = ("GITHUB_WORKSPACE", "CI_PROJECT_DIR")
UNEXPECTED = "expected to be blocked, and {}: take it off --expect-blocked"
NOT_OF_HOST = "--expect-blocked does not apply: what was looked at lacks this, not the host"
NOTHING_SHOWN = "no gate passed, so nothing was shown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """One contract as it was verified: where it is written, its digest, its rows, and the bundle that holds them."""

    contract: str
    version: str
    checked: str  # the subjects as they were bound, redacted, and the policies
    digest: str
    file: str
    bundle: str
    bundle_id: str
    started: str
    seconds: float
    rows: tuple[Row, ...]
    overrides: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()  # the gates of the contract that were not judged

    def fingerprint(self, row: Row) -> str:
        """Return what stays the same of a finding from run to run, as long as the gate comes to the same."""
        finding = row.finding
        return sha256(dumps([self.contract, finding.gate, finding.instance, finding.verdict.code]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything that one `verify` came to."""

    suites: tuple[Suite, ...]
    code: ExitCode

    @property
    def rows(self) -> tuple[tuple[Suite, Row], ...]:
        """Return every row with its suite, in the order of the contracts."""
        return tuple((suite, row) for suite in self.suites for row in suite.rows)

    @property
    def tally(self) -> str:
        """Return how many gates came to what, and the exit code."""
        excused = sum(bool(row.excused) for _, row in self.rows)
        left_out = sum(len(suite.left_out) for suite in self.suites)
        return tally([row.finding for _, row in self.rows], self.code, excused, left_out)

    @property
    def nothing_shown(self) -> str:
        """Return that no gate passed where nothing else says so: a report must not look green then."""
        return NOTHING_SHOWN if self.code is ExitCode.NOTHING_SHOWN else ""


def report_of(results: Sequence[ContractResult], code: ExitCode, excuses: Excuses) -> Report:
    """Return the report of what was verified."""
    suites = []
    for result in results:
        loaded, evaluation, bundle = result.loaded, result.evaluation, result.bundle
        contract, rows = loaded.contract, []
        for finding in evaluation.findings:
            at, place = loaded.gate_at(finding.gate), (finding.gate, finding.instance)
            excused = excuses.of(contract.id, finding)
            known = finding.gate in excuses.expect_blocked and finding.verdict.outcome is Outcome.BLOCKED
            about: dict[str, Any] = {"file": shown(at.file), "line": at.line, "column": at.column, "excused": excused}
            about |= {"unexcused": NOT_OF_HOST if known and not excused else ""}
            about |= {"unexpected": UNEXPECTED.format(finding.verdict.outcome) if unblocked(finding, excuses) else ""}
            about |= {"elsewhere": result.elsewhere.get(place, ""), "seconds": evaluation.seconds.get(place, 0.0)}
            rows.append(row_of(contract, finding, evaluation.measured, **about))
        suite = Suite(
            contract=contract.id,
            version=contract.version,
            checked=checked(contract, result.subjects),
            digest=digests(contract).whole,
            file=shown(str(loaded.path)),
            bundle=shown(str(bundle.path)) if bundle else "",
            bundle_id=bundle.id if bundle else "",
            started=evaluation.started.isoformat(timespec="seconds"),
            seconds=(evaluation.finished - evaluation.started).total_seconds(),
            rows=tuple(rows),
            overrides=contract.overrides,
            left_out=tuple(one.id for one in contract.gates if one.id not in {row.finding.gate for row in rows}),
        )
        suites.append(suite)
    return Report(suites=tuple(suites), code=code)


def rows_of_bundle(bundle: Bundle) -> tuple[Row, ...]:
    """Return the findings of a bundle as reports show them."""
    return tuple(row_of(bundle.contract, one, bundle.measured) for one in bundle.findings)


def row_of(contract: Contract, finding: Finding, measured: Mapping[str, Measured], **more: Any) -> Row:
    """Return a finding as reports show it, by its contract and what was measured for it."""
    more["looked_at"] = looked = looked_at(contract, finding, measured)
    gate, said = contract.gate(finding.gate), finding_text(finding, measured, _early(looked, measured.values()))
    steps, of = beyond(contract, finding, measured)
    if len(steps) > 1:  # the message names the worst
        first = f"so first at step {steps[0]}, and at {len(steps)} of {of} samples"
        said = replace(said, besides="; ".join(filter(None, (said.besides, first))))
    return Row(finding=finding, title=printable(gate.title), why=printable(gate.why), said=said, **more)


def _early(looked: Mapping[str, Any], measured: Iterable[Measured]) -> str:
    """Return which steps a gate looked at where none is of the later half of the run, or nothing."""
    series = (one.value for one in measured if isinstance(one, Measurement))
    end = max((one.step[-1] for one in series if isinstance(one, Series) and len(one.step)), default=0)
    first, last = looked["from_step"], looked["to_step"]
    return f"steps {first} to {last} of {end}: " if last is not None and first < last < end / 2 else ""


def shown(file: str) -> str:
    """Return the name of a file: relative to the root of a checkout in CI, else to where one is, or `builtin:NAME`."""
    path = Path(file)
    if path.parent == data_path("contracts"):
        return f"{BUILTIN}{path.stem}"
    here = Path.cwd()
    roots = [Path(os.environ[name]).resolve() for name in ROOTS if os.environ.get(name)]
    root = next((one for one in roots if here.is_relative_to(one)), here)
    return printable(Path(os.path.relpath(path.parent.resolve() / path.name, root)).as_posix())
