"""test_results: what a real run of pytest leaves, what is hostile, and an instrument that does not look."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cases import each

from weighbridge.core.data import data_path
from weighbridge.core.errors import SubjectError
from weighbridge.core.model import Measurement, Origin, Rows
from weighbridge.evaluation.runner import lay_canary
from weighbridge.quantities.base import rows_of
from weighbridge.quantities.commands import ReportedTest, Result
from weighbridge.run_logs.junit_xml import MAX_DEPTH
from weighbridge.verifiers.test_results import VERIFIER
from weighbridge.views.test_cases import ReportView, open_report

REPORTS = data_path("verifiers") / "specimens" / "reports"
RUN = """
import pytest
@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_holds(device): pass
def test_fails(): assert 1 == 2, "the mutant survived"
@pytest.mark.skip(reason="no GPU")
def test_waits(): pass
"""


def results(view: ReportView) -> dict[str, tuple[Result, str]]:
    return {row.name: (row.result, row.message) for row in rows_of(VERIFIER.measure((view,), {}), ReportedTest)}


@pytest.mark.slow
def test_a_real_run_of_pytest_is_read_as_it_ended(workplace: Path) -> None:
    Path("test_gate.py").write_text(RUN)
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:weighbridge", "-p", "no:cacheprovider", "--junitxml=r.xml"]
    subprocess.run(run, cwd=workplace, capture_output=True, check=False)
    view = open_report("r.xml")
    assert results(view) == {
        "test_gate::test_holds[cpu]": (Result.PASSED, ""),
        "test_gate::test_holds[cuda:0]": (Result.PASSED, ""),
        "test_gate::test_fails": (Result.FAILED, "AssertionError: the mutant survived"),
        "test_gate::test_waits": (Result.SKIPPED, "no GPU"),
    }
    assert not any(row.contradicted_by for row in rows_of(VERIFIER.measure((view,), {}), ReportedTest))
    assert (view.origin, len(view.digest()["r.xml"])) == (Origin.FIXTURE, 64)


@pytest.mark.parametrize("name", ["cargo.xml", "ctest.xml", "pytest.xml"])
def test_what_real_runners_wrote_contradicts_itself_nowhere_but_in_what_pytest_counts_twice(name: str) -> None:
    rows = rows_of(VERIFIER.measure((open_report(str(REPORTS / name)),), {}), ReportedTest)
    assert rows
    assert [row.contradicted_by for row in rows if row.contradicted_by] == []


def test_a_test_that_pytest_counts_twice_is_found() -> None:
    suite = '<testsuite name="pytest" tests="2" errors="1"><testcase name="t"><error/></testcase></testsuite>'
    (row,) = rows_of(VERIFIER.measure((ReportView(suite.encode(), "r"),), {}), ReportedTest)
    assert (row.result, row.contradicted_by) == (Result.ERROR, ("suite 'pytest' says that 2 tests ran, 1 in it did",))


def test_a_suite_of_which_nothing_is_left_is_compared_with_all_others() -> None:
    empty, other = '<testsuite name="a" tests="5"/>', '<testsuite><testcase name="t"/></testsuite>'
    again = '\n<?xml version="1.0"?><testsuite name="a" tests="5"/>'
    for inside, after in ((empty + other, ""), (other + empty, ""), (other, again)):
        view = ReportView(f"<testsuites>{inside}</testsuites>{after}".encode(), "r")
        (row,) = rows_of(VERIFIER.measure((view,), {}), ReportedTest)
        assert row.contradicted_by == ("suite 'a' says that 5 tests ran, 0 in it did",)


@each(
    "test, result",
    [
        ("<testcase name='t'><FAILURE/></testcase>", Result.FAILED),
        ("<testcase name='t'><n:failure xmlns:n='urn:x'/></testcase>", Result.FAILED),
        ("<TestCase Name='t'><Error/></TestCase>", Result.ERROR),
        ("<n:testcase xmlns:n='urn:x' name='t'><n:error/></n:testcase>", Result.ERROR),
        ("<testcase name='t'><system-out><failure/></system-out></testcase>", Result.FAILED),
        ("<testcase name='t'><system-out><a><b><error/></b></a></system-out></testcase>", Result.ERROR),
        ("<testcase name='t'><properties><skipped/></properties></testcase>", Result.SKIPPED),
        ("<testcase name='t'><RerunFailure/></testcase>", Result.FAILED),
        ("<testcase name='t' Status='FAILED'/>", Result.FAILED),
        ("<testcase name='t' result='Aborted'/>", Result.ERROR),
        ("<testcase name='t' status='timeout'/>", Result.ERROR),
        ("<testcase name='t' result='Skip'/>", Result.SKIPPED),
        ("<testcase name='t'><system-out>a failure, as text: &lt;failure/&gt;</system-out></testcase>", Result.PASSED),
        ("<testcase name='t' status='run' result='completed'/>", Result.PASSED),
    ],
)
@each("around", ["<testsuite>{}</testsuite>", "<TESTSUITES><TestSuite>{}</TestSuite></TESTSUITES>"])
def test_a_failure_is_one_in_any_letter_case_namespace_and_depth(test: str, result: Result, around: str) -> None:
    view = ReportView(around.format(test).encode(), "r")
    assert {name: came for name, (came, _) in results(view).items()} == {"t": result}
    assert VERIFIER.extent((view,), {}) == 1


@each(
    "error", ["<error/>", "<failure message='no device'/>", "<ERROR/>", "<x:error xmlns:x='urn:x'/>", "<a><error/></a>"]
)
@each(
    "place",
    [
        "<testsuite name='s'>{}<testcase name='t'/></testsuite>",
        "<testsuite name='s'><testcase name='t'/>{}</testsuite>",
    ],
)
def test_an_error_of_the_suite_is_compared_with_its_tests(error: str, place: str) -> None:
    for report in (place, f"<testsuites>{place}</testsuites>"):
        (row,) = rows_of(VERIFIER.measure((ReportView(report.format(error).encode(), "r"),), {}), ReportedTest)
        assert row.contradicted_by == (
            f"suite 's' has <{'failure' if 'fail' in error else 'error'}> outside of its tests",
        )


DEEP = b"<testsuite>" * (MAX_DEPTH + 1)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "report-syntax"),
        (DEEP, "report-depth"),
        ("<testsuite/>".encode("utf-16"), "report-encoding"),
        (b"<testsuite><testcase name='&lol;'/></testsuite>", "report-syntax"),
        (b"<?xml version='1.0'?><!DOCTYPE testsuite SYSTEM 'file:///etc/passwd'><testsuite/>", "report-doctype"),
        (b"<testsuite/><testsuite/>", "report-syntax"),
        (b"<?xml version='1.0'?><testsuite/>\n<?xml version='1.0'?><html/>", "report-form"),
        (b"<testsuite>\xff</testsuite>", "report-syntax"),
    ],
)
def test_what_is_hostile_or_no_report_is_refused(tmp_path: Path, data: bytes, code: str) -> None:
    (tmp_path / "r.xml").write_bytes(data)
    with pytest.raises(SubjectError) as caught:
        VERIFIER.measure((open_report(str(tmp_path / "r.xml")),), {})
    assert caught.value.code == code


def test_a_url_and_what_is_no_file_are_refused(tmp_path: Path) -> None:
    for target, code in (("https://ci.example/r.xml", "report-elsewhere"), (str(tmp_path), "file-kind")):
        with pytest.raises(SubjectError) as caught:
            open_report(target)
        assert caught.value.code == code


def test_more_tests_than_are_read_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weighbridge.run_logs.junit_xml.MAX_TESTS", 3)
    with pytest.raises(SubjectError, match="holds more than 3 tests"):
        VERIFIER.measure((open_report(str(REPORTS / "ctest.xml")),), {})


@pytest.mark.parametrize(
    "blind",
    [
        lambda row: dataclasses.replace(row, result=Result.PASSED),
        lambda row: dataclasses.replace(row, contradicted_by=()),
        lambda row: dataclasses.replace(row, times=1),
        lambda row: None if row.result is Result.SKIPPED else row,
        lambda row: None if row.name == "falsify_gone" else row,
    ],
)
def test_an_instrument_that_does_not_look_is_seen_to_be_blind(blind: Any) -> None:
    views = (open_report(str(REPORTS / "ctest.xml")),)
    honest = VERIFIER.measure(views, {})
    assert isinstance(honest, Measurement)

    def measure(asked: Any, options: Any) -> Measurement:
        seen = VERIFIER.measure(asked, options)
        assert isinstance(seen, Measurement)
        rows = tuple(new for row in rows_of(seen, ReportedTest) if (new := blind(row)) is not None)
        return dataclasses.replace(seen, value=Rows("name", rows))

    assert lay_canary(VERIFIER, views, {}, honest).seen
    assert not lay_canary(dataclasses.replace(VERIFIER, measure=measure), views, {}, honest).seen
