"""Read hostile JUnit XML, as cargo, pytest, ctest, go and gradle write it; several documents are one report."""

import re
from collections.abc import Mapping
from typing import Final, NoReturn
from xml.parsers import expat

from weighbridge.core import SubjectError, dataclass, field
from weighbridge.quantities.commands import Result

MAX_DEPTH: Final = 32
MAX_TESTS: Final = 100_000
MESSAGE: Final = 200
ENDED: Final = {  # elements inside a test: a failure that a second try made good was one all the same
    **dict.fromkeys(("failure", "rerunfailure", "flakyfailure"), Result.FAILED),
    **dict.fromkeys(("error", "rerunerror", "flakyerror"), Result.ERROR),
    "skipped": Result.SKIPPED,
}
COUNTED = ("failure", "error")
STATUS: Final = {  # of the attributes `status` and `result`, where no element tells
    **dict.fromkeys(("notrun", "skip", "skipped", "disabled", "ignored", "suppressed", "pending"), Result.SKIPPED),
    **dict.fromkeys(("fail", "failed", "failure"), Result.FAILED),
    **dict.fromkeys(("error", "broken", "aborted", "crashed", "timeout", "timedout"), Result.ERROR),
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


def documents(data: bytes) -> list[bytes]:
    """Return the documents in a report, each of which declares itself."""
    # After the document of the doctests, rustdoc writes a <report> of how long they took.
    parts = [part for part in re.split(rb"(?m)^(?=<\?xml |<report )", data) if part.strip()]
    return [*parts[:1], *(part for part in parts[1:] if not part.startswith(b"<report "))] or [b""]


def entries(data: bytes, where: str) -> list[Entry]:
    """Return every test in the order of a report, called `where` in messages; refuse with `report-…`."""
    found: list[Entry] = []
    doubts: list[str] = []  # of suites of which nothing is there
    for at, document in enumerate(documents(data)):
        reader = _Reader(where, f" of document {at + 1}" if at else "")
        reader.read(document)
        found += reader.entries
        doubts += reader.doubts
    for entry in found:
        entry.contradicted_by += doubts
    return found


class _Reader:
    """One document being read."""

    def __init__(self, where: str, place: str) -> None:
        self.where, self.place = where, place
        self.path: list[str] = []
        self.suites: list[tuple[Mapping[str, str], int]] = []  # what each open one declares, and its first test
        self.outside: list[str] = []  # failures of suites, that no test has
        self.entries: list[Entry] = []
        self.doubts: list[str] = []
        self.parser = expat.ParserCreate()
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._data
        self.parser.StartDoctypeDeclHandler = self._doctype

    def read(self, data: bytes) -> None:
        try:
            self.parser.Parse(data, True)
        except expat.ExpatError as problem:
            what = f"line {problem.lineno}{self.place}: {expat.errors.messages[problem.code]}"
            self._refuse("report-syntax", what, "let the test runner write it again")

    def _refuse(self, code: str, what: str, remedy: str) -> NoReturn:
        raise SubjectError(code, what, where=self.where, remedy=remedy)

    def _doctype(self, *_parts: object) -> None:
        what = f"line {self.parser.CurrentLineNumber}{self.place}: declares a document type"
        self._refuse("report-doctype", what, "delete it: no test runner writes one")

    def _start(self, tag: str, said: dict[str, str]) -> None:
        tag, said = plain(tag), {plain(key): value for key, value in said.items()}
        if not self.path and tag not in ("testsuites", "testsuite"):
            what = f"begins with <{tag[:40]}>, not with <testsuites> or <testsuite>"
            self._refuse("report-form", what, "let the test runner write JUnit XML")
        self.path.append(tag)
        if len(self.path) > MAX_DEPTH:
            self._refuse("report-depth", f"nested deeper than {MAX_DEPTH}", "let the test runner write it again")
        if tag in ("testsuites", "testsuite"):
            self.suites.append((said, len(self.entries)))
        elif tag == "testcase" and self.path[-2:-1] == ["testsuite"]:
            if len(self.entries) >= MAX_TESTS:
                self._refuse("report-tests", f"holds more than {MAX_TESTS} tests", "write a report for each suite")
            results = (STATUS.get(said.get(key, "").lower(), Result.PASSED) for key in ("status", "result"))
            result = max(results, key=WORST.index)
            self.entries.append(Entry(full_name(said), result, failed=result in (Result.FAILED, Result.ERROR)))
        elif tag in ENDED and "testcase" not in self.path:
            self.outside.append(f"suite {self.suites[-1][0].get('name', '')[:60]!r} has <{tag}> outside of its tests")
        elif tag in ENDED and self.entries:  # however deep in the test
            test = self.entries[-1]
            test.result = max(test.result, ENDED[tag], key=WORST.index)
            test.message = test.message or next(iter((said.get("message") or "").splitlines()), "")[:MESSAGE]
            test.failed |= tag in COUNTED

    def _data(self, text: str) -> None:
        """Use the first line of a failure as its message, where it has no other; cargo writes it as output."""
        saying = self.path[-2:-1] == ["testcase"] and self.path[-1] in (*COUNTED, "system-out")
        if saying and self.entries and text.strip():
            test = self.entries[-1]
            test.message = test.message or (text.strip()[:MESSAGE] if test.failed else "")

    def _end(self, _tag: str) -> None:
        if self.path.pop() in ("testsuites", "testsuite"):
            said, first = self.suites.pop()
            mine, name = self.entries[first:], f"suite {said.get('name', '')[:60]!r}"
            wrong, self.outside = self.outside, []
            # What ran is compared, as runners may omit the skipped.
            skipped = sum(test.result is Result.SKIPPED for test in mine)
            tests, not_run, ran = _sum(said, "tests"), _sum(said, "skipped", "disabled"), len(mine) - skipped
            if tests is not None and (declared := tests - (skipped if not_run is None else not_run)) != ran:
                wrong.append(f"{name} says that {declared} tests ran, {ran} in it did")
            failures, failed = _sum(said, "failures", "errors"), sum(test.failed for test in mine)
            if failures not in (None, failed):
                wrong.append(f"{name} says that {failures} failed, {failed} in it did")
            for doubts in [entry.contradicted_by for entry in mine] or [self.doubts]:
                doubts.extend(wrong)


def _sum(said: Mapping[str, str], *keys: str) -> int | None:
    """Return the sum of the counts that a suite declares, None where it declares none of them."""
    counts = [int(said[key]) for key in keys if re.fullmatch("[0-9]{1,12}", said.get(key, ""))]
    return sum(counts) if counts else None


def plain(name: str) -> str:
    """Return the name of an element or attribute without its namespace, in lower case: some runners write others."""
    return name.rpartition(":")[2].lower()


def full_name(said: Mapping[str, str]) -> str:
    """Return the name of a test by its attributes: class and name, or the one where they are one."""
    return "::".join(dict.fromkeys(filter(None, (said.get("classname"), said.get("name"))))) or "(unnamed)"
