"""Findings for programs: JSON with the sealed figures and the words beside them, a list of contracts or a line each."""

from collections.abc import Mapping
from typing import Any

from weighbridge.contract.document import DIALECT
from weighbridge.core import ExitCode, Json, Outcome, Severity, TrialResult, bare_json, dumps
from weighbridge.evidence.codec import finding_to_json
from weighbridge.report import HINTS, FindingText, Level, Row
from weighbridge.report.rows import Report, Suite

SCHEMA = "weighbridge.report/v0"


def document(report: Report) -> str:
    """Return one JSON document: a list with everything that each contract came to."""
    return dumps(bare_json(contracts(report))).decode()


def lines(report: Report) -> str:
    """Return a line of JSON for each finding, with its contract."""
    found = (row_json(row) | {"schema": SCHEMA} | _suite_json(suite) for suite, row in report.rows)
    return "".join(dumps(bare_json(line)).decode() for line in found)


def contracts(report: Report) -> Json:
    """Return what each contract came to, with its findings."""
    listed = []
    for suite in report.suites:
        findings: Json = [row_json(row) for row in suite.rows]
        about: dict[str, Json] = {"schema": SCHEMA, "exit_code": int(report.code), "started": suite.started}
        listed.append(about | _suite_json(suite) | {"seconds": round(suite.seconds, 3), "findings": findings})
    return listed


def row_json(row: Row) -> dict[str, Json]:
    """Return a finding with its words, its place, and what it means for the exit code."""
    of_row = ("title", "level", "file", "line", "column", "excused", "elsewhere", "unexpected")
    more: dict[str, Json] = {name: getattr(row, name) for name in of_row}
    return finding_json(row) | more | {"seconds": round(row.seconds, 3)}


def finding_json(row: Row) -> dict[str, Json]:
    """Return a finding with its words, and what it looked at."""
    said = row.said
    words: dict[str, Json] = {"says": said.lines, "uncounted_says": said.uncounted, "besides": said.besides}
    words |= {"enough_says": said.enough, "hints": dict(hints_by_word(said)), "trials_told": said.trials}
    return finding_to_json(row.finding) | words | {"looked_at": dict(row.looked_at)}


def hints_by_word(said: FindingText) -> Mapping[str, tuple[str, ...]]:
    """Return the likely causes, what to try first, and what to look at; what has no label is to be tried."""
    return {word: tuple(text for of, text in said.helps if (of or "knob") == word) for word in HINTS}


def _suite_json(suite: Suite) -> dict[str, Json]:
    about = {name: getattr(suite, name) for name in ("contract", "version", "checked", "bundle", "bundle_id")}
    return about | {"contract_digest": suite.digest, "contract_file": suite.file}


TEXT, TEXTS, COUNT = {"type": "string"}, {"type": "array", "items": {"type": "string"}}, {"type": "integer"}
NUMBERS = ("string", "number", "boolean", "null", "object")
NUMBER = {"description": 'NaN and the infinities are {"$num": "nan"}', "type": [*NUMBERS]}
SECONDS = {"type": "number", "minimum": 0}


def report_schema(form: str) -> dict[str, Any]:
    """Describe a JSON report, or with `jsonl` a line of one, as a JSON Schema (2020-12)."""
    about = ("contract", "version", "checked", "contract_digest", "contract_file", "bundle", "bundle_id")
    suite = {"schema": {"const": SCHEMA}, **dict.fromkeys(about, TEXT)}
    offence = _closed({"place": TEXT, "code": TEXT, "figures": {"type": "object"}})
    verdict = {"outcome": _one_of(Outcome), "code": TEXT, "unit": TEXT, "counted": COUNT, "of": COUNT}
    verdict |= dict.fromkeys(("measured", "limit", "enough"), NUMBER)
    verdict |= {"offences": {"type": "array", "items": offence}, "figures": {"type": "object"}}
    trial = _closed({"kind": TEXT, "name": TEXT, "code": TEXT, "result": _one_of(TrialResult), "why": TEXT})
    texts = ("gate", "instance", "kind", "title", "file", "excused", "elsewhere", "unexpected")
    finding = dict.fromkeys((*texts, "besides", "enough_says", "trials_told"), TEXT) | verdict
    finding |= {"severity": _one_of(Severity), "level": _one_of(Level), "seconds": SECONDS, "facts": {"type": "object"}}
    finding |= dict.fromkeys(("kind_version", "line", "column"), COUNT)
    finding |= dict.fromkeys(("says", "uncounted_says"), TEXTS)
    finding |= {"trials": {"type": "array", "items": trial}, "hints": _closed(dict.fromkeys(HINTS, TEXTS))}
    looked = {"column": {"type": ["string", "null"]}, **dict.fromkeys(("from_step", "to_step"), NUMBER)}
    finding["looked_at"] = _closed({**looked, "places": TEXTS})
    finding |= {"uncounted": {"anyOf": [{"type": "null"}, _closed(verdict)]}}
    contract = {"exit_code": {"enum": [*map(int, ExitCode)]}, "started": TEXT, "seconds": SECONDS}
    contract |= {**suite, "findings": {"type": "array", "items": _closed(finding)}}
    body = _closed({**suite, **finding}) if form == "jsonl" else {"type": "array", "items": _closed(contract)}
    return {"$schema": DIALECT, "title": f"{SCHEMA} ({form})", **body}


def _closed(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


def _one_of(words: type[Outcome | Severity | Level | TrialResult]) -> dict[str, Any]:
    return {"enum": [str(word) for word in words]}
