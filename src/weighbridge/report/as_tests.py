"""A report as that of a test runner, of which each gate on an instance is a test: JUnit XML, and TAP version 14."""

import json
import re
from collections import Counter
from collections.abc import Mapping
from xml.etree import ElementTree as ET

from weighbridge.core import Outcome
from weighbridge.report import Level, Row, gate_name
from weighbridge.report.rows import Report, Suite

COUNTED = {"failures": "failure", "errors": "error", "skipped": "skipped"}
NOT_JUDGED = "this gate of the contract was not judged"
TODO = (Level.WARNING, Level.NOTICE)  # shown, and nobody fails on it
_NOT_XML = re.compile("[^\\t\\n\\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")


def suites(report: Report) -> str:
    """Return the document; where no gate passed, an error more says so, for nothing in it may be red otherwise."""
    root = ET.Element("testsuites", name="weighbridge", time=f"{sum(one.seconds for one in report.suites):.3f}")
    for suite in report.suites:
        cases = [_case(suite, row) for row in suite.rows]
        more = [(gate, "skipped", "not-judged", NOT_JUDGED) for gate in suite.left_out]
        more += [("nothing shown", "error", "nothing-shown", why)] if (why := report.nothing_shown) else []
        for name, tag, code, message in more:
            cases.append(ET.Element("testcase", classname=suite.file, name=name, file=suite.file))
            ET.SubElement(cases[-1], tag, type=code, message=message)
        of_tags = Counter(child.tag for case in cases for child in case)
        counts = {name: str(of_tags[tag]) for name, tag in COUNTED.items()}
        changed = "".join(f" {one}" for one in suite.overrides)
        about = {"name": _xml(f"{suite.contract} {suite.version}{changed}"), "tests": str(len(cases)), **counts}
        about |= {"time": f"{suite.seconds:.3f}", "timestamp": suite.started.partition("+")[0]}
        element = ET.SubElement(root, "testsuite", about)
        sealed = {"checked": suite.checked, "contract digest": suite.digest, "bundle": suite.bundle}
        sealed |= {"bundle id": suite.bundle_id, "exit code": str(int(report.code))}
        element.append(_properties(sealed))
        element.extend(cases)
    ET.indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _case(suite: Suite, row: Row) -> ET.Element:
    place = {"classname": _xml(suite.file), "name": gate_name(row.finding), "file": _xml(row.file)}
    case = ET.Element("testcase", {**place, "line": str(row.line), "time": f"{row.seconds:.3f}"})
    about = {"outcome": row.outcome, "severity": row.finding.severity, "kind": row.finding.kind, "level": row.level}
    case.append(_properties(about | ({"excused": row.excused} if row.excused else {})))
    text = _xml("\n".join((row.title, *row.lines(), *row.said.hints)))
    if row.outcome is Outcome.PASS and not row.unexpected:
        ET.SubElement(case, "system-out").text = f"{text}\ntrials: {row.said.trials}"
        return case
    failed = row.unexpected or row.outcome is Outcome.FAIL
    skipped = row.excused or (row.outcome is Outcome.NOT_APPLICABLE and not failed)
    tag = "skipped" if skipped else "failure" if failed else "error"
    message = _xml(f"{row.outcome}: {row.excused or row.unexpected or row.said.lines[0]}")
    ET.SubElement(case, tag, type=row.finding.verdict.code, message=message).text = text
    return case


def _properties(values: Mapping[str, str]) -> ET.Element:
    element = ET.Element("properties")
    for name, value in values.items():
        ET.SubElement(element, "property", name=name, value=_xml(value))
    return element


def _xml(text: str) -> str:
    """Return a text with what XML 1.0 cannot carry escaped: control characters, lone surrogates, two non-characters."""
    return _NOT_XML.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def points(report: Report) -> str:
    """Return a test point for each finding, and one more that is not ok where no gate passed.

    `# SKIP` counts as ok, and is for NOT_APPLICABLE alone.
    """
    rows = report.rows
    lines = ["TAP version 14", f"1..{len(rows) + bool(report.nothing_shown)}"]
    for number, (suite, row) in enumerate(rows, start=1):
        name = _as_tap(f"{suite.contract} {gate_name(row.finding)} {row.title}")
        unmeant = row.outcome is Outcome.NOT_APPLICABLE and row.level is Level.NOTICE
        why = row.said.lines[0] if unmeant else "advisory" if row.level is Level.WARNING else row.excused
        directive = f" # {'SKIP' if unmeant else 'TODO'} {_as_tap(why)}" if why and row.level in TODO else ""
        lines.append(f"{'ok' if unmeant or row.level is Level.NONE else 'not ok'} {number} - {name}{directive}")
        diagnostic: dict[str, object] = {"outcome": row.outcome, "severity": row.finding.severity}
        diagnostic |= {"checked": suite.checked, "at": f"{row.file}:{row.line}"}
        diagnostic |= {"duration_ms": round(row.seconds * 1000), "found": row.lines(), "hints": row.said.hints}
        said = (f"  {key}: {json.dumps(value, ensure_ascii=False)}" for key, value in diagnostic.items())
        lines += ["  ---", *said, "  ..."]
    if report.nothing_shown:
        lines.append(f"not ok {len(rows) + 1} - {report.nothing_shown}")
    return "\n".join(lines) + "\n"


def _as_tap(text: str) -> str:
    return re.sub(r"([\\#])", r"\\\1", text)
