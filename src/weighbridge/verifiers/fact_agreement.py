"""Which facts several runs state alike in run.json: two runs, or the ranks of one. No judgement."""

import datetime as dt
import math
from collections.abc import Mapping
from contextlib import suppress

from weighbridge.core import Basis, Fields, Json, Measurement, SubjectKind, Unmeasured, dumps, replace
from weighbridge.quantities.facts import FactAgreement
from weighbridge.run_logs.json_log import STEPS, stated
from weighbridge.verifiers.column_agreement import NO_RANKS, runs_of, with_last
from weighbridge.verifiers.run_facts import numbers
from weighbridge.verifiers.verifier import Canary, Verifier, Views, rows_by_name, table
from weighbridge.views.run import RunView

QUANTITY = "fact_agreement"


def measure(views: Views, _options: Fields) -> Measurement | Unmeasured:
    """List every fact that one of the runs states, with what each states."""
    runs = runs_of(views)
    if not runs:
        return NO_RANKS
    each = [{name: _plain(one) for name, one in stated(run.facts)} | _of_log(run) for run in runs]
    names = sorted({name for one in each for name in one})
    rows = [FactAgreement(fact=name, values=tuple(one.get(name) for one in each)) for name in names]
    found, seen = table(QUANTITY, rows, basis=Basis.REPORTED), sum(map(len, each))
    return replace(found, examined=seen, total=seen)


def _plain(value: Json) -> Json:
    return value if value is None or isinstance(value, (str, int, float)) else dumps(value).decode().strip()


def _of_log(run: RunView) -> dict[str, Json]:
    digests, began = run.digest(), None
    with suppress(ValueError):
        moment = dt.datetime.fromisoformat(str(run.facts.get("started")))
        began = None if moment.utcoffset() is None else moment.timestamp()  # seconds since 1970, as the last time is
    last = max(filter(math.isfinite, numbers(run, "time")), default=None)
    return {"log_sha256": digests.get(STEPS) or next(iter(digests.values()), ""), "began_s": began, "last_row_s": last}


def extent(views: Views, _options: Fields) -> int:
    """Count what the runs state, and three facts of each log."""
    return sum(sum(1 for _ in stated(run.facts)) + 3 for run in runs_of(views))


def canary(views: Views, _options: Fields, _measured: Measurement) -> Canary:
    """Lay facts that no run has before and behind those of the last run."""
    *others, last = runs_of(views)
    strange: dict[str, Json] = {"!": {"canary": len(others)}, "~": True}

    def seen(again: Measurement | Unmeasured) -> bool:
        found: Mapping[str, FactAgreement] = rows_by_name(again)
        lacking = (None,) * len(others)
        return found["!.canary"].values == (*lacking, len(others)) and found["~"].values == (*lacking, True)

    damaged = with_last(views, [*others, replace(last, facts={**last.facts, **strange})])
    return Canary(name="facts of the last run alone", place="run.json", views=damaged, seen=seen)


OF_RANKS = Verifier(quantity=QUANTITY, kinds=(SubjectKind.RUN,), measure=measure, extent=extent, canary=canary)
VERIFIER = replace(OF_RANKS, kinds=(SubjectKind.RUN, SubjectKind.RUN))
