"""Which facts several runs state alike in run.json: two runs, or the ranks of one. No judgement."""

from __future__ import annotations

import dataclasses
import datetime as dt
import math
from collections.abc import Iterator, Mapping

from weighbridge.core import Basis, Fields, Json, Measurement, SubjectKind, Unmeasured, dumps
from weighbridge.quantities.agreement import FactAgreement
from weighbridge.run_logs.json_log import STEPS
from weighbridge.verifiers.column_agreement import NO_RANKS, runs_of
from weighbridge.verifiers.run_facts import numbers
from weighbridge.verifiers.verifier import Canary, Verifier, Views, rows_by_name, table
from weighbridge.views.run import RunView

QUANTITY = "fact_agreement"
TIME = "time"
LOG, BEGAN, ENDED = "log_sha256", "began_s", "last_row_s"  # of the rows; seconds since the first start


def measure(views: Views, _options: Fields) -> Measurement | Unmeasured:
    """List every fact that one of the runs states, with what each states."""
    runs = runs_of(views)
    if not runs:
        return NO_RANKS
    starts = [_seconds(run.facts.get("started")) for run in runs]
    first = min((start for start in starts if start is not None), default=0.0)
    stated: list[dict[str, Json]] = []
    for run, start in zip(runs, starts, strict=True):
        last = max((time for time in numbers(run, TIME) if math.isfinite(time)), default=None)
        spans = {BEGAN: start, ENDED: last}
        since: dict[str, Json] = {name: None if at is None else at - first for name, at in spans.items()}
        stated.append({**dict(_stated(run.facts)), LOG: _log(run), **since})
    names = dict.fromkeys(name for one in stated for name in one)
    rows = [FactAgreement(fact=name, values=tuple(one.get(name) for one in stated)) for name in names]
    found, seen = table(QUANTITY, rows, basis=Basis.REPORTED), sum(map(len, stated))
    return dataclasses.replace(found, examined=seen, total=seen)


def _stated(facts: Fields, within: str = "") -> Iterator[tuple[str, Json]]:
    for name, value in facts.items():
        if isinstance(value, Mapping) and value:
            yield from _stated(value, f"{within}{name}.")
        else:
            plain = value is None or isinstance(value, (str, int, float))
            yield f"{within}{name}", value if plain else dumps(value).decode().strip()


def _seconds(started: object) -> float | None:
    try:
        moment = dt.datetime.fromisoformat(str(started))
    except ValueError:
        return None
    return None if moment.utcoffset() is None else moment.timestamp()


def _log(run: RunView) -> str:
    digests = run.digest()
    return digests.get(STEPS, "") or next(iter(digests.values()), "")


def extent(views: Views, _options: Fields) -> int:
    """Count what the runs state, their logs, and when they began and ended."""

    def count(facts: object) -> int:
        return sum(map(count, facts.values())) if isinstance(facts, Mapping) and facts else 1

    return sum((count(run.facts) if run.facts else 0) + 3 for run in runs_of(views))


def canary(views: Views, _options: Fields, _measured: Measurement) -> Canary:
    """Lay a fact into a section that no run has, as the last run's."""
    *others, last = runs_of(views)
    damaged = (*others, dataclasses.replace(last, facts={**last.facts, "canary": {"seen": len(others)}}))

    def seen(again: Measurement | Unmeasured) -> bool:
        row: FactAgreement = rows_by_name(again)["canary.seen"]
        return row.values == (*(None for _ in others), len(others))

    given = damaged if len(views) > 1 else (dataclasses.replace(views[0], ranks=damaged),)
    return Canary(name="a fact of the last run alone", place="canary.seen", views=given, seen=seen)


VERIFIER = Verifier(
    quantity=QUANTITY, kinds=(SubjectKind.RUN, SubjectKind.RUN), measure=measure, extent=extent, canary=canary
)
