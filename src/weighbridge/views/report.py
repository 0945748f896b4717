"""A report of tests as a subject: JUnit XML as cargo, pytest, ctest, go and gradle write it. Hostile until parsed.

Document types, and with them entities, are refused; size, depth and the number of tests are bounded. Several documents
one after the other, as `cargo test` prints them, are one report.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NoReturn
from xml.parsers import expat

from weighbridge.canonical import sha256
from weighbridge.errors import SubjectError
from weighbridge.model import Origin
from weighbridge.quantities.reports import Result
from weighbridge.storage.local_files import local_path, read_regular_file

MAX_BYTES: Final = 64 << 20
MAX_DEPTH: Final = 32
MAX_TESTS: Final = 100_000
MESSAGE: Final = 200
DOCUMENT = re.compile(rb"(?m)^(?=<\?xml |<report )")
TIMES = b"<report "  # what rustdoc writes after the document of the doctests: how long they took
ENDED: Final = {  # elements inside a test: a failure that a second try made good was one all the same
    **dict.fromkeys(("failure", "rerunFailure", "flakyFailure"), Result.FAILED),
    **dict.fromkeys(("error", "rerunError", "flakyError"), Result.ERROR),
    "skipped": Result.SKIPPED,
}
COUNTED = ("failure", "error")
STATUS: Final = {  # of the attributes `status` and `result`, where no element tells
    **dict.fromkeys(("notrun", "skipped", "disabled", "ignored", "suppressed"), Result.SKIPPED),
    **dict.fromkeys(("fail", "failed", "failure"), Result.FAILED),
    "error": Result.ERROR,
}
WORST = tuple(Result)


@dataclass(slots=True)
class Entry:
    """One test where it stands: its name, how it ended, and the counts of its suites that differ."""

    name: str
    result: Result
    message: str = ""
    failed: bool = False  # as runners count it
    contradicted_by: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Suite:
    """A suite that is open: what it declares, and which test is its first."""

    said: Mapping[str, str]
    first: int


@dataclass(frozen=True, slots=True)
class ReportView:
    """The bytes of a report, and where they are from."""

    data: bytes
    name: str

    @property
    def origin(self) -> Origin:
        """Return FIXTURE: a report does not say of which program, commit and host it is."""
        return Origin.FIXTURE

    def digest(self) -> Mapping[str, str]:
        """Return the SHA-256 of the file."""
        return {Path(self.name).name: sha256(self.data)}

    def documents(self) -> list[bytes]:
        """Return the documents in the file, each of which declares itself."""
        parts = [part for part in DOCUMENT.split(self.data) if part.strip()]
        return [*parts[:1], *(part for part in parts[1:] if not part.startswith(TIMES))] or [b""]

    def overlaid(self, data: bytes) -> ReportView:
        """Return a view of other bytes."""
        return dataclasses.replace(self, data=data)

    def entries(self) -> list[Entry]:
        """Return every test in the order of the report.

        Raises:
            SubjectError: `report-syntax`, `report-doctype`, `report-depth`, `report-tests` or `report-form`.
        """
        return [entry for at, part in enumerate(self.documents()) for entry in _Reader(self, at).read(part)]

    def refuse(self, code: str, what: str, remedy: str = "") -> NoReturn:
        """Raise the error that this report cannot be read."""
        raise SubjectError(code, what, where=self.name, remedy=remedy or "let the test runner write it again")


def open_report(target: str) -> ReportView:
    """Read the bytes of a report.

    Raises:
        SubjectError: where it is no regular file here, is larger than 64 MiB, or is UTF-16.
    """
    path = local_path(target)
    if path is None:
        raise SubjectError("report-elsewhere", "is a URL", where=target, remedy="fetch it, and bind its path")
    view = ReportView(read_regular_file(path, MAX_BYTES, SubjectError), str(path))
    if view.data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        view.refuse("report-encoding", "is UTF-16", "write it as UTF-8")
    return view


class _Reader:
    """One document being read."""

    def __init__(self, view: ReportView, at: int) -> None:
        self.view, self.place = view, f" of document {at + 1}" if at else ""
        self.path: list[str] = []
        self.suites: list[_Suite] = []
        self.entries: list[Entry] = []
        self.parser = expat.ParserCreate()
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.StartDoctypeDeclHandler = self._doctype

    def read(self, data: bytes) -> list[Entry]:
        try:
            self.parser.Parse(data, True)
        except expat.ExpatError as problem:
            what = f"line {problem.lineno}{self.place}: {expat.errors.messages[problem.code]}"
            self.view.refuse("report-syntax", what)
        return self.entries

    def _doctype(self, *_told: object) -> None:
        what = f"line {self.parser.CurrentLineNumber}{self.place}: declares a document type"
        self.view.refuse("report-doctype", what, "delete it: no test runner writes one")

    def _start(self, tag: str, said: dict[str, str]) -> None:
        if not self.path and tag not in ("testsuites", "testsuite"):
            what = f"begins with <{tag[:40]}>, not with <testsuites> or <testsuite>"
            self.view.refuse("report-form", what, "let the test runner write JUnit XML")
        self.path.append(tag)
        if len(self.path) > MAX_DEPTH:
            self.view.refuse("report-depth", f"nested deeper than {MAX_DEPTH}")
        within = self.path[-2] if len(self.path) > 1 else ""
        if tag in ("testsuites", "testsuite"):
            self.suites.append(_Suite(said, len(self.entries)))
        elif tag == "testcase" and within == "testsuite":
            self._test(said)
        elif within == "testcase" and tag in ENDED and self.entries:
            test = self.entries[-1]
            test.result = max(test.result, ENDED[tag], key=WORST.index)
            test.message = test.message or next(iter((said.get("message") or "").splitlines()), "")[:MESSAGE]
            test.failed |= tag in COUNTED

    def _test(self, said: Mapping[str, str]) -> None:
        if len(self.entries) >= MAX_TESTS:
            self.view.refuse("report-tests", f"holds more than {MAX_TESTS} tests", "write a report for each suite")
        told = (STATUS.get(said.get(key, "").lower(), Result.PASSED) for key in ("status", "result"))
        result = max(told, key=WORST.index)
        self.entries.append(Entry(full_name(said), result, failed=result in (Result.FAILED, Result.ERROR)))

    def _end(self, tag: str) -> None:
        self.path.pop()
        if tag in ("testsuites", "testsuite"):
            suite = self.suites.pop()
            mine = self.entries[suite.first :]
            wrong = list(_contradictions(suite.said, mine))
            for entry in mine or self.entries:
                entry.contradicted_by += wrong


def _contradictions(said: Mapping[str, str], tests: list[Entry]) -> Iterator[str]:
    """Yield the counts that a suite declares and that are not those of its tests.

    Runners leave tests out that were skipped, or do not count them: what ran is held against what ran.
    """
    name = f"suite {said.get('name', '')[:60]!r}"
    skipped = sum(test.result is Result.SKIPPED for test in tests)
    declared, not_run = _sum(said, "tests"), _sum(said, "skipped", "disabled")
    if declared is not None and (ran := declared - (skipped if not_run is None else not_run)) != len(tests) - skipped:
        yield f"{name} says that {ran} tests ran, {len(tests) - skipped} in it did"
    wrong, failed = _sum(said, "failures", "errors"), sum(test.failed for test in tests)
    if wrong not in (None, failed):
        yield f"{name} says that {wrong} failed, {failed} in it did"


def _sum(said: Mapping[str, str], *keys: str) -> int | None:
    """Return the sum of the counts that a suite declares, None where it declares none of them."""
    counts = [int(said[key]) for key in keys if said.get(key, "").isdecimal()]
    return sum(counts) if counts else None


def full_name(said: Mapping[str, str]) -> str:
    """Return the name of a test by its attributes: class and name, or the one where they are one."""
    return "::".join(dict.fromkeys(filter(None, (said.get("classname"), said.get("name"))))) or "(unnamed)"
