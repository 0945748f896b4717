"""Findings for machines: JSON with the sealed figures and the words beside them, and JUnit XML.

In JUnit XML a FAIL is `<failure>`, BLOCKED and ERROR are `<error>`, and an expected block is `<skipped>`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from xml.etree import ElementTree as ET

from weighbridge.errors import PluginError
from weighbridge.evidence.codec import finding_to_json
from weighbridge.exit_code import ExitCode, expected
from weighbridge.model import Contract, Finding, Json, Measured, Outcome
from weighbridge.report import BROUGHT, UNCOUNTED, finding_text, gate_name

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


def contract_report(
    contract: Contract, findings: Sequence[Finding], measured: Mapping[str, Measured], code: ExitCode, bundle: str
) -> dict[str, Json]:
    """Return everything that one contract came to."""
    return {
        "schema": SCHEMA,
        "contract": contract.id,
        "version": contract.version,
        "exit_code": int(code),
        "bundle": bundle,
        "findings": [finding_json(finding, measured) for finding in findings],
    }


def brought(form: str, rows: Sequence[Json]) -> bytes:
    """Return a report in a format that another package brings; `rows` are those that `contract_report` gives.

    Raises:
        PluginError: `plugin-broken`, where it writes none.
    """
    try:
        data = BROUGHT[form](rows)
    except Exception as error:  # noqa: BLE001 -- somebody else's code may raise anything
        why = f"raised {type(error).__name__}: {error}"
    else:
        if isinstance(data, bytes):
            return data
        why = f"returned a {type(data).__name__}, not bytes"
    remedy = "tell whoever wrote it; the evidence is sealed, and `evidence show` tells it"
    raise PluginError("plugin-broken", f"the report format {form!r} {why}", remedy=remedy)


# --- JUnit XML --------------------------------------------------------------------------------------------------------


_NOT_XML = re.compile("[^\\t\\n\\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")


def junit(
    verified: Sequence[tuple[Contract, str, Sequence[Finding], Mapping[str, Measured]]],
    expect_blocked: frozenset[str] = frozenset(),
) -> bytes:
    """Write one test suite a contract and one test case a gate and instance; `verified` is (contract, file, …)."""
    suites = ET.Element("testsuites", name="weighbridge")
    for contract, file, findings, measured in verified:
        outcomes = Counter(finding.verdict.outcome for finding in findings)
        skipped = sum(expected(finding, expect_blocked) for finding in findings)
        counts = {
            "tests": len(findings), "failures": outcomes[Outcome.FAIL],
            "errors": outcomes[Outcome.BLOCKED] + outcomes[Outcome.ERROR] - skipped, "skipped": skipped,
        }  # fmt: skip
        told = {"name": f"{contract.id} {contract.version}"} | {key: str(count) for key, count in counts.items()}
        suite = ET.SubElement(suites, "testsuite", told)
        suite.extend(_case(one, file, measured, excused=expected(one, expect_blocked)) for one in findings)
    ET.indent(suites)
    body: bytes = ET.tostring(suites, encoding="utf-8", xml_declaration=True)
    return body + b"\n"


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
