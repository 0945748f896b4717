"""What did not pass, at the line of its gate: as SARIF 2.1.0, with gate kinds as rules, and as GitLab Code Quality."""

import json
from typing import Any
from urllib.parse import quote

from weighbridge import __version__
from weighbridge.cards.words import code_card, gate_words, unfigured
from weighbridge.core import Outcome
from weighbridge.gates import KINDS
from weighbridge.report import Level, Row, gate_name, hints
from weighbridge.report.rows import Report, Suite

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
SEVERITIES = {Level.ERROR: "critical", Level.WARNING: "minor", Level.NOTICE: "info"}  # of GitLab
LEVELS = {Level.ERROR: "error", Level.WARNING: "warning", Level.NOTICE: "note"}


def log(report: Report) -> str:
    """Return the log, of one run."""
    found = [(suite, row) for suite, row in report.rows if row.level is not Level.NONE]
    kinds = list(dict.fromkeys(row.finding.kind for _, row in report.rows))
    rules = []
    for kind in kinds:
        card = gate_words(kind)
        codes = []
        for code in KINDS[kind].codes if kind in KINDS else ():
            helps = hints(words).items() if (words := code_card(kind, code)) else ()
            said = "; ".join(f"{label}: {unfigured(text)}" for label, text in helps if text)
            codes += [f"{code}: {said}"] if said else []
        named = {"id": kind, "name": "".join(word.capitalize() for word in kind.split("-"))}
        texts = {"shortDescription": card.asks, "fullDescription": card.why}
        texts["help"] = "\n".join((card.why, *codes, f"`weighbridge explain {kind}` says more."))
        rules.append({**named, **{name: {"text": text} for name, text in texts.items()}})
    invocation: dict[str, Any] = {"executionSuccessful": report.code in (0, 1), "exitCode": int(report.code)}
    if report.nothing_shown:
        invocation["toolExecutionNotifications"] = [{"level": "error", "message": {"text": report.nothing_shown}}]
    run = {
        "tool": {"driver": {"name": "weighbridge", "semanticVersion": __version__, "rules": rules}},
        "invocations": [invocation],
        "columnKind": "unicodeCodePoints",
        "properties": {"checked": {f"{one.contract} {one.version}": one.checked for one in report.suites}},
        "results": [_result(suite, row, kinds.index(row.finding.kind)) for suite, row in found],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _result(suite: Suite, row: Row, rule: int) -> dict[str, Any]:
    finding, fingerprint = row.finding, suite.fingerprint(row)
    heading = f"{row.outcome} {gate_name(finding)}: {row.title}"
    location: dict[str, Any] = {"artifactLocation": {"uri": quote(row.file), "uriBaseId": "%SRCROOT%"}}
    location["region"] = {"startLine": max(row.line, 1), "startColumn": max(row.column, 1)}
    unmeant = row.outcome is Outcome.NOT_APPLICABLE and not row.unexpected
    accepted = {"kind": "external", "status": "accepted", "justification": row.excused}
    properties = {name: getattr(finding, name) for name in ("gate", "instance", "severity")}
    properties |= {"outcome": row.outcome, "code": finding.verdict.code, "bundle": suite.bundle}
    properties |= {"bundleId": suite.bundle_id, "contract": f"{suite.contract} {suite.version}"}
    return {
        "ruleId": finding.kind,
        "ruleIndex": rule,
        "kind": "notApplicable" if unmeant else "fail",  # the first of them demands the level none
        "level": "none" if unmeant else LEVELS[row.level],
        "message": {"text": "\n".join((heading, f"checked: {suite.checked}", *row.lines(), *row.said.hints))},
        "locations": [{"physicalLocation": location}],
        # GitHub would make the first one of the line alone, which the instances of a gate have in common.
        "partialFingerprints": {"primaryLocationLineHash": fingerprint, "weighbridge/v0": fingerprint},
        "suppressions": [accepted] if row.excused else [],
        "properties": properties,
    }


def issues(report: Report) -> str:
    """Return the list of issues; GitLab shows a description on one line."""
    found = [
        {
            "check_name": row.finding.kind,
            "description": f"{row.outcome} {gate_name(row.finding)}: {row.title}: {row.lines()[0]}",
            "fingerprint": suite.fingerprint(row),
            "severity": SEVERITIES[row.level],
            "location": {"path": row.file, "lines": {"begin": max(row.line, 1)}},
        }
        for suite, row in report.rows
        if row.level is not Level.NONE
    ]
    return json.dumps(found, indent=2) + "\n"
