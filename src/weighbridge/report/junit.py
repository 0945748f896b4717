"""Findings as JUnit XML: a FAIL is `<failure>`, BLOCKED and ERROR are `<error>`, an expected block is `<skipped>`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from xml.etree import ElementTree as ET

from weighbridge.exit_code import expected
from weighbridge.model import Contract, Finding, Measured, Outcome
from weighbridge.report.lines import UNCOUNTED, finding_text
from weighbridge.report.terminal import gate_name

_NOT_XML = re.compile("[^\\t\\n\\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")


def junit(
    verified: Sequence[tuple[Contract, str, Sequence[Finding], Mapping[str, Measured]]],
    expect_blocked: frozenset[str] = frozenset(),
) -> bytes:
    """Return one test suite per contract with one test case per gate and instance.

    `verified` holds (contract, file, findings, measurements).
    """
    suites = ET.Element("testsuites", name="weighbridge")
    for contract, file, findings, measured in verified:
        suites.append(_suite(contract, file, findings, measured, expect_blocked))
    ET.indent(suites)
    body: bytes = ET.tostring(suites, encoding="utf-8", xml_declaration=True)
    return body + b"\n"


def _suite(
    contract: Contract,
    file: str,
    findings: Sequence[Finding],
    measured: Mapping[str, Measured],
    expect_blocked: frozenset[str],
) -> ET.Element:
    outcomes = [finding.verdict.outcome for finding in findings]
    skipped = sum(expected(finding, expect_blocked) for finding in findings)
    errors = sum(outcome in (Outcome.BLOCKED, Outcome.ERROR) for outcome in outcomes) - skipped
    suite = ET.Element(
        "testsuite",
        name=f"{contract.id} {contract.version}",
        tests=str(len(findings)),
        failures=str(outcomes.count(Outcome.FAIL)),
        errors=str(errors),
        skipped=str(skipped),
    )
    for finding in findings:
        suite.append(_case(finding, file, measured, excused=expected(finding, expect_blocked)))
    return suite


def _case(finding: Finding, file: str, measured: Mapping[str, Measured], *, excused: bool) -> ET.Element:
    said = finding_text(finding, measured)
    case = ET.Element("testcase", classname=_xml(file), name=gate_name(finding), file=_xml(file))
    verdict = finding.verdict
    otherwise = finding.uncounted.outcome if finding.uncounted else ""
    uncounted = (f"{UNCOUNTED} {otherwise} {line}" for line in said.uncounted)
    text = "\n".join(_xml(line) for line in (*said.lines, *uncounted, *said.hints))
    if verdict.outcome is Outcome.PASS:
        ET.SubElement(case, "system-out").text = f"{text.strip()}\ntrials: {said.trials}"
        return case
    tag = "skipped" if excused else "failure" if verdict.outcome is Outcome.FAIL else "error"
    node = ET.SubElement(case, tag, type=verdict.code, message=f"{verdict.outcome}: {_xml(said.lines[0])}")
    node.text = text.strip()
    return case


def _xml(text: str) -> str:
    """Return a text with what XML 1.0 cannot carry escaped: control characters, lone surrogates, two non-characters."""
    return _NOT_XML.sub(lambda match: match[0].encode("unicode_escape").decode(), text)
