"""A report as SARIF 2.1.0: what did not pass, by gate kind as the rule; `notApplicable` demands the level none."""

from __future__ import annotations

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
LEVELS = {Level.ERROR: "error", Level.WARNING: "warning", Level.NOTICE: "note"}


def log(report: Report) -> str:
    """Return the log, of one run."""
    found = [(suite, row) for suite, row in report.rows if row.level is not Level.NONE]
    kinds = list(dict.fromkeys(row.finding.kind for _, row in report.rows))
    rules = []
    for kind in kinds:
        card = gate_words(kind)
        known = KINDS[kind].codes if kind in KINDS else ()
        of_codes = ((code, hints(words).items()) for code in known if (words := code_card(kind, code)))
        said = {
            code: "; ".join(f"{label}: {unfigured(text)}" for label, text in each if text) for code, each in of_codes
        }
        codes = [f"{code}: {text}" for code, text in said.items() if text]
        named = {"id": kind, "name": "".join(word.capitalize() for word in kind.split("-"))}
        texts = {"shortDescription": card.asks, "fullDescription": card.why}
        texts["help"] = "\n".join((card.why, *codes, f"`weighbridge explain {kind}` says more."))
        rules.append({**named, **{name: {"text": text} for name, text in texts.items()}})
    invocation: dict[str, Any] = {"executionSuccessful": report.code in (0, 1), "exitCode": int(report.code)}
    if report.nothing_shown:
        invocation["toolExecutionNotifications"] = [{"level": "error", "message": {"text": report.nothing_shown}}]
    driver = {"name": "weighbridge", "semanticVersion": __version__, "rules": rules}
    run = {
        "tool": {"driver": driver},
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
        "kind": "notApplicable" if unmeant else "fail",
        "level": "none" if unmeant else LEVELS[row.level],
        "message": {"text": "\n".join((heading, f"checked: {suite.checked}", *row.lines(), *row.said.hints))},
        "locations": [{"physicalLocation": location}],
        # GitHub would make the first one of the line alone, which the instances of a gate have in common.
        "partialFingerprints": {"primaryLocationLineHash": fingerprint, "weighbridge/v0": fingerprint},
        "suppressions": [accepted] if row.excused else [],
        "properties": properties,
    }
