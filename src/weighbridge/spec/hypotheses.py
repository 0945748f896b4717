"""Hypotheses: what a section holds possible or has decided, by an experiment that was written before it ran."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from operator import eq, ge, gt, le, lt
from typing import TypeAlias

from weighbridge.contract.layers import Found
from weighbridge.core import WeighbridgeError, dataclass
from weighbridge.evidence.statement import moment
from weighbridge.spec.amendments import Section
from weighbridge.spec.citations import NUMBER, Bundles, citations
from weighbridge.spec.reading import Known, Text, Unit, found, units_of

HEADS = (["id", "hypothesis", "state", "evidence"], ["decides", "measure", "confirmed by", "refuted by"])
Wrong: TypeAlias = Iterator[tuple[str, str]]  # what is wrong, and the remedy
OPEN = "OPEN"
STATES = (OPEN, "ELIMINATED", "CONFIRMED", "REFUTED")
DECIDED_BY = {"CONFIRMED": 2, "REFUTED": 3, "ELIMINATED": 3}  # the columns of an experiment
SIGNS = {"<": lt, "<=": le, "≤": le, "=": eq, "≥": ge, ">=": ge, ">": gt}
CONDITION = re.compile(rf"(?P<sign>[<>]=?|[≤=≥]) ?(?P<value>{NUMBER})(?: [^\d]*)?")


@dataclass(frozen=True, slots=True)
class HypothesisRow:
    """One row of a table of hypotheses, with its line."""

    line: int
    name: str
    words: str
    state: str
    evidence: str


def tables(units: Iterable[Unit]) -> tuple[list[HypothesisRow], dict[int, list[str]]]:
    """Return the hypotheses of a text, and its experiments by their lines."""
    head, hypotheses, experiments = "", list[HypothesisRow](), dict[int, list[str]]()
    for one in units:
        cells = [cell.strip() for cell in one.text.strip("|").split("|")]
        if not one.text.startswith("|") or set("".join(cells)) <= set("-: "):
            continue
        if cells in HEADS or len(cells) != len(HEADS[0]):
            head = cells[0] if cells in HEADS else ""
        elif head == HEADS[0][0]:
            hypotheses.append(HypothesisRow(one.line, *cells))
        elif head:
            experiments[one.line] = cells
    return hypotheses, experiments


def undecided(text: Text) -> Iterator[Found]:
    """Check the tables of one text: decided ones have evidence, open ones an experiment that would decide them."""
    hypotheses, experiments = tables(text.units)
    text.planned |= experiments.keys()
    planned = {name for name, measure, yes, no in experiments.values() if measure and yes and no and yes != no}
    for one in hypotheses:
        text.counted["hypotheses"] += 1
        if one.state not in STATES:
            what = f"{one.name} is {one.state or 'nothing'}"
            yield text.found(one.line, "hypothesis", what, f"write one of {', '.join(STATES)}")
        elif one.state == OPEN and one.name not in planned:
            what = f"{one.name} is OPEN, and no experiment says which values would confirm and which refute it"
            yield text.found(one.line, "hypothesis", what, "write it under Next experiment before it runs")
        elif one.state != OPEN and "[ev:" not in one.evidence and "A-" not in one.evidence:
            what = f"{one.name} is {one.state} without evidence"
            yield text.found(one.line, "hypothesis", what, "cite it: [ev:ID12#/POINTER]")


def contradicted(mine: Section, earlier: Sequence[Section], known: Known) -> Iterator[Found]:
    """Compare the hypotheses of a section with those of the sections before it, and with their experiments."""
    rows = tables(units_of(mine.body, mine.first_line))[0]
    before: dict[str, tuple[HypothesisRow, Section]] = {}
    planned: dict[str, list[str]] = {}
    for section in earlier if rows else ():
        then, experiments = _tables_of(section.body)
        before |= {row.name: (row, section) for row in then}
        planned |= {cells[0]: cells for cells in experiments.values()}
    for row in rows:
        if row.name in before:
            wrong = (*_against(row, *before[row.name], mine, known), *_undeserved(row, planned.get(row.name)))
            yield from (found(str(mine.path), "hypothesis", what, remedy, row.line) for what, remedy in wrong)


@lru_cache(maxsize=4096)
def _tables_of(body: str) -> tuple[list[HypothesisRow], dict[int, list[str]]]:
    """Return the tables of a landed section, each read once however many sections follow it."""
    return tables(units_of(body))


def _against(row: HypothesisRow, then: HypothesisRow, section: Section, mine: Section, known: Known) -> Wrong:
    at, id_ = f"§{section.number}", section.about.id
    if row.words != then.words:
        yield f"{row.name} is another hypothesis in {at}: {then.words}", "give this one an id of its own"
    elif then.state == OPEN and row.state != OPEN and not _measured_after(row, section, known.bundles):
        what = f"{row.name} is {row.state} by nothing that was measured after {at} said what would decide it"
        yield what, "run the experiment, and cite it"
    elif OPEN != then.state != row.state and id_ not in {*mine.about.refutes, *mine.about.supersedes, *known.refuted}:
        what = f"{row.name} is {row.state}; {at} says that it is {then.state}, and is not refuted"
        yield what, f"name it under refutes: {id_}"


def _undeserved(row: HypothesisRow, experiment: list[str] | None) -> Wrong:
    """Compare the first figure of a decided row with the value that its experiment named, where it named one."""
    condition = CONDITION.fullmatch(experiment[DECIDED_BY[row.state]] if experiment and row.state in DECIDED_BY else "")
    figure = next((one.text for one in citations(row.evidence) if re.fullmatch(NUMBER, one.text)), None)
    if condition and figure and not SIGNS[condition["sign"]](_number(figure), _number(condition["value"])):
        what = f"{row.name} is {row.state} by {figure}; the experiment said {condition[0]}"
        yield what, "write the state that the value gives"


def _number(text: str) -> float:
    return float(text.replace(",", "").replace("_", ""))


def _measured_after(row: HypothesisRow, section: Section, bundles: Bundles) -> bool:
    landed = moment(section.about.landing.at)
    for id_ in (one.id for one in citations(row.evidence) if one.id):
        with contextlib.suppress(WeighbridgeError):  # a bundle that cannot be read is reported where it is cited
            stated = bundles.get(id_).statement
            began = [stated.started, *(subject.started for subject in stated.subjects if subject.started)]
            if min(map(moment, began)) > landed:
                return True
    return False
