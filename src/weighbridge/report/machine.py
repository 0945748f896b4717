"""Findings for machines: JSON with the sealed figures and the words beside them, and JUnit XML.

In JUnit XML a FAIL is `<failure>`, BLOCKED and ERROR are `<error>`, and what is excused is `<skipped>` with the reason.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from weighbridge.evidence.codec import finding_to_json
from weighbridge.exit_code import NONE, Excuses, ExitCode
from weighbridge.model import Contract, Finding, Json, Measured, Outcome
from weighbridge.report import UNCOUNTED, finding_text, gate_name

if TYPE_CHECKING:
    from weighbridge.verification import Result

SCHEMA = "weighbridge.report/v0"


def finding_json(finding: Finding, measured: Mapping[str, Measured]) -> dict[str, Json]:
    """Return a finding with its words."""
    said = finding_text(finding, measured)
    words: dict[str, Json] = {
        "says": said.lines,
        "uncounted_says": said.uncounted,
        "besides": said.besides,
        "enough_says": said.enough,
        "hint": "; ".join(said.hints),
        "trials_told": said.trials,
    }
    return finding_to_json(finding) | words


def contract_report(result: Result, excuses: Excuses, code: ExitCode) -> dict[str, Json]:
    """Return everything that one contract came to."""
    contract, measured = result.loaded.contract, result.evaluation.measured
    findings = [
        finding_json(one, measured)
        | {"excused": excuses.of(contract.id, one), "elsewhere": result.elsewhere.get((one.gate, one.instance), "")}
        for one in result.evaluation.findings
    ]
    return {
        "schema": SCHEMA,
        "contract": contract.id,
        "version": contract.version,
        "exit_code": int(code),
        "bundle": str(result.bundle.path) if result.bundle else "",
        "findings": findings,
    }


# --- JUnit XML --------------------------------------------------------------------------------------------------------


_NOT_XML = re.compile("[^\\t\\n\\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")


def junit(
    verified: Sequence[tuple[Contract, str, Sequence[Finding], Mapping[str, Measured]]],
    excuses: Excuses = NONE,
) -> bytes:
    """Write one test suite a contract and one test case a gate and instance; `verified` is (contract, file, …)."""
    suites = ET.Element("testsuites", name="weighbridge")
    for contract, file, findings, measured in verified:
        excused = [excuses.of(contract.id, finding) for finding in findings]
        counted = zip(findings, excused, strict=True)
        outcomes = Counter(finding.verdict.outcome for finding, excuse in counted if not excuse)
        counts = {
            "tests": len(findings), "failures": outcomes[Outcome.FAIL],
            "errors": outcomes[Outcome.BLOCKED] + outcomes[Outcome.ERROR], "skipped": sum(map(bool, excused)),
        }  # fmt: skip
        told = {"name": f"{contract.id} {contract.version}"} | {key: str(count) for key, count in counts.items()}
        suite = ET.SubElement(suites, "testsuite", told)
        suite.extend(_case(one, file, measured, why) for one, why in zip(findings, excused, strict=True))
    ET.indent(suites)
    body: bytes = ET.tostring(suites, encoding="utf-8", xml_declaration=True)
    return body + b"\n"


def _case(finding: Finding, file: str, measured: Mapping[str, Measured], excused: str) -> ET.Element:
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
    first = f"{excused}; " if excused else ""
    node = ET.SubElement(case, tag, type=verdict.code, message=_xml(f"{first}{verdict.outcome}: {said.lines[0]}"))
    node.text = text.strip()
    return case


def _xml(text: str) -> str:
    """Return a text with what XML 1.0 cannot carry escaped: control characters, lone surrogates, two non-characters."""
    return _NOT_XML.sub(lambda match: match[0].encode("unicode_escape").decode(), text)
