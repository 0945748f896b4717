"""Facts about a run, each with its basis and with what contradicts it. A fact that was not found is absent."""

import math
from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from weighbridge.core import Basis, Doubles, Fields, Measurement, Rows, SubjectKind, Unmeasured, dataclass, np, replace
from weighbridge.core.limits import closest
from weighbridge.quantities.base import rows_of
from weighbridge.quantities.facts import ALL, AS_LOGGED, HAS, RECORDER_FAILED, Fact, fact_of
from weighbridge.run_logs.column_statistics import dense, distinct, order
from weighbridge.run_logs.run_end import EARLY, run_end
from weighbridge.verifiers.layer_course import layers
from weighbridge.verifiers.step_series import spread, stranger
from weighbridge.verifiers.verifier import Canary, Verifier, Views
from weighbridge.views.run import IDLE, SKIPPED, STEP, RunView

QUANTITY = "facts"
FAILURE = "recorder-failure"
EXECUTABLE = "executable_sha256"
PRINTED = 1e-3  # of a whole number: the precision with which logs print, not a limit on anything promised
LAYERS = "layers"
ALIKE = 0.85  # two names, one of which is then a slip of the other
REPORTED = {  # fact: the section of run.json that has it
    **dict.fromkeys(("seq_len", "batch_size", "corpus_tokens"), "data"),
    **dict.fromkeys(("vocab", "parameters"), "model"),
    **dict.fromkeys(("started", "requested_device", "resolved_device", "pid", "host", "commit"), ""),
}


@dataclass(frozen=True, slots=True)
class Claim:
    """What one source says of a fact."""

    value: int
    basis: Basis
    how: str


def measure(views: Views, options: Fields) -> Measurement:
    """Gather the facts of a run, and those `named` that it states; of ranks those that they agree on."""
    view: RunView = views[0]
    if view.ranks:
        return _of_ranks([measure((rank,), options) for rank in view.ranks])
    found = {name: reported(view, section, name) for name, section in REPORTED.items()}
    facts = [fact_of(name, value, Basis.REPORTED) for name, value in found.items() if value is not None and value != ""]
    logged = order(dense(view, STEP))
    end = run_end(
        view.facts, view.events, logged.steps, logged.last_step, gap=logged.largest_gap, columns=view.column_names
    )
    facts += [fact_of("rows", view.rows, Basis.MEASURED), fact_of("steps", logged.steps, Basis.MEASURED)]
    if isinstance(logged.last_step, int):
        facts.append(fact_of("last_step", logged.last_step, Basis.MEASURED))
    if end.requested_steps is not None:
        facts.append(fact_of("requested_steps", end.requested_steps, Basis.REPORTED))
    facts.append(fact_of("ended", end.ended, end.basis, end.contradicted_by))
    facts += [fact_of("ended_by", end.by, Basis.REPORTED)] if end.by else []
    facts += [fact_of(name, value, Basis.MEASURED) for name, value in view.notes.items()]
    each = [event.get("costs") for event in view.events if event.get("event") == FAILURE]
    lost = {str(name) for costs in each for name in (costs if isinstance(costs, (list, tuple)) else [ALL])} - {"device"}
    lost |= {IDLE} if SKIPPED in lost else set()
    unreliable = [fact_of(RECORDER_FAILED, " ".join(sorted(lost)), Basis.REPORTED)] if lost else []
    named: Any = options.get("named", ())
    seen = [*_executable(view)] if EXECUTABLE in named else []
    noted = {*view.notes, *(one.name for one in seen)}
    stated = [fact for name in named if name not in noted for fact in _stated(view, name)] + seen
    facts += [*unreliable, *_tokens_per_step(view), *stated]
    known = {fact.name for fact in facts}
    value = Rows("name", (*facts, *(fact for name in named for fact in _there(view, name, known))))
    return Measurement(quantity=QUANTITY, value=value, by="run_facts/4", examined=view.rows, total=view.rows)


def failures(view: RunView, *needed: str) -> Iterator[Fields]:
    """Yield the failures of the recorder that cost one of these columns or events, or do not say what they cost."""
    for event in view.events:
        costs = event.get("costs")
        if event.get("event") == FAILURE and (not isinstance(costs, list) or any(one in costs for one in needed)):
            yield event


def _of_ranks(each: Sequence[Measurement]) -> Measurement:
    """Return the facts of the last rank that states each, contradicted by the others that state it otherwise."""
    facts: dict[str, Fact] = {}
    for rank, one in enumerate(each):
        for fact in rows_of(one, Fact):
            old = facts.get(fact.name, fact)
            other = () if old.value == fact.value else (f"rank {rank - 1} has {old.value}",)
            by = dict.fromkeys((*fact.contradicted_by, *old.contradicted_by, *other))
            facts[fact.name] = replace(fact, contradicted_by=tuple(by))
    examined = sum(one.examined for one in each)
    return replace(each[-1], value=Rows("name", (*facts.values(),)), examined=examined, total=examined)


def _stated(view: RunView, name: str) -> Iterator[Fact]:
    sections = [view.facts, *(part for part in view.facts.values() if isinstance(part, Mapping))]
    values = [part[name] for part in sections if isinstance(part.get(name), (str, int, float))]
    said = [value for value in values if not isinstance(value, float) or math.isfinite(value)]
    others = [value for value in said[1:] if (type(value), value) != (type(said[0]), said[0])]
    if said:
        yield fact_of(name, said[0], Basis.REPORTED, tuple(f"it is {value} in another section" for value in others))


def _executable(view: RunView) -> Iterator[Fact]:
    """Yield the digest of the program that a witness saw start last; another that ran or is stated contradicts it."""
    if not view.book or view.witness is None:
        return
    *before, last = (one.begin.executable.sha256 for one in view.witness.segments)
    others = dict.fromkeys(one for one in (*before, view.facts.get(EXECUTABLE, last)) if one != last)
    if last:
        yield fact_of(EXECUTABLE, last, Basis.MEASURED, tuple(f"it is {other} in another place" for other in others))


def _there(view: RunView, name: str, known: Collection[str]) -> Iterator[Fact]:
    """Yield whether the run has the column or fact of `has:NAME`, or so many numbers in it as `has:NAME:COUNT` says.

    `has:layers:COUNT` is of what was looked at of tensors; of names that number no layer nothing is known.
    """
    what = name.removeprefix(HAS)
    column, _, count = what.rpartition(":")
    if name == AS_LOGGED:
        yield fact_of(name, True, Basis.MEASURED)
    elif what != name and column == LAYERS and count.isdecimal():
        if found := layers(view):
            yield fact_of(name, found >= int(count), Basis.MEASURED)
    elif what != name and count.isdecimal() and column:
        yield fact_of(name, len(numbers(view, view.named(column) or column)) >= int(count), Basis.MEASURED)
    elif what != name:
        there = what in known or bool(view.named(what) or [*_stated(view, what)])
        names = () if there else (*view.cells, *view.logged_as.values())  # a slip would switch the gate off
        slip = column if view.named(column) else "".join(closest(what, names, ALIKE))
        near = (f"a name so near it, {slip}",) if slip and not there else ()
        yield fact_of(name, there, Basis.MEASURED, near)


def reported(view: RunView, section: str, key: str) -> str | int | float | None:
    """Return what run.json says, in a section or at the top, where that is a text or a number."""
    inside = view.facts.get(section) if section else view.facts
    value = inside.get(key) if isinstance(inside, Mapping) else None
    value = view.facts.get(key) if value is None else value
    return value if isinstance(value, (str, int, float)) and not isinstance(value, bool) else None


def _tokens_per_step(view: RunView) -> Iterator[Fact]:
    """Yield the tokens of a step from the first source that knows, contradicted by every other that disagrees."""
    claims, counted = list(token_claims(view)), numbers(view, "tokens")
    others = [other.how for other in claims[1:] if other.value != claims[0].value]
    if counted and min(counted) != max(counted):
        others.append(f"the tokens column varies from {min(counted):g} to {max(counted):g}")
    if claims or others:
        value, basis = (claims[0].value, claims[0].basis) if claims else (None, Basis.MEASURED)
        yield fact_of("tokens_per_step", value, basis, tuple(others))


def token_claims(view: RunView) -> Iterator[Claim]:
    """Yield what each source says of the tokens of a step: what was declared, counted, and follows from the rate."""
    if (declared := declared_tokens(view)) is not None:
        yield Claim(declared, Basis.REPORTED, f"seq_len × batch_size is {declared}")
    counted = numbers(view, "tokens")
    if counted and min(counted) == max(counted) and counted[0].is_integer():
        yield Claim(int(counted[0]), Basis.REPORTED, f"the tokens column is {int(counted[0])} on {len(counted)} rows")
    if (derived := _from_rate(view)) is not None:
        yield derived


def declared_tokens(view: RunView) -> int | None:
    """Multiply the reported sequence length and batch size, where both are whole numbers."""
    length, batch = reported(view, "data", "seq_len"), reported(view, "data", "batch_size")
    if isinstance(length, int) and isinstance(batch, int) and length > 0 and batch > 0:
        return length * batch
    return None


def _from_rate(view: RunView) -> Claim | None:
    formed = products(view)
    whole = round(float(formed[0])) if len(formed) else 0
    how = f"tokens_per_sec × wall_ms is {whole} tokens on {len(formed)} of {view.rows} rows"
    throughout = whole >= 1 and bool((abs(formed - whole) <= PRINTED * whole).all())
    return Claim(whole, Basis.DERIVED, how) if throughout else None


def products(view: RunView) -> Doubles:
    """Multiply tokens_per_sec and wall_ms / 1000 `[rows with both]`."""
    if not {"tokens_per_sec", "wall_ms"} <= view.cells.keys():
        return np.zeros(0)
    rate, wall = dense(view, "tokens_per_sec"), dense(view, "wall_ms")
    both = rate.known & wall.known & (rate.values > 0) & (wall.values > 0)
    with np.errstate(over="ignore"):
        formed: Doubles = rate.values[both] * wall.values[both] / 1000
    return formed


def numbers(view: RunView, name: str) -> "array[float]":
    """Return a column's numbers `[samples]`, or none where there is no such column."""
    return array("d", view.dense(name).numbers() if name in view.cells else ())


def extent(views: Views, _options: Fields) -> int:
    """Count the rows that there are."""
    view: RunView = views[0]
    return view.rows


def canary(views: Views, _options: Fields, _measured: Measurement) -> Canary:
    """Overlay the last of a few rows with another step, and another number where tokens come from; add notes."""
    view: RunView = views[0]
    if view.ranks:  # the last of them is damaged
        found = canary(view.ranks[-1:], _options, _measured)
        others = (one.cut(spread(one.rows)) for one in view.ranks[:-1])
        return replace(found, views=(replace(view, ranks=(*others, *found.views)),))
    few = view.cut([*spread(view.rows), view.rows - 1])  # the last row twice: one step fewer than rows
    last = few.rows - 1
    source = "tokens" if "tokens" in few.cells else ""  # the column that alone changes the tokens of a step
    if not source and declared_tokens(few) is None and _from_rate(few) is not None:
        source = "wall_ms"
    noted = {**few.notes, "canary": 1, "another canary": 2}
    steps, before = distinct(dense(few, STEP)), list(_tokens_per_step(few))
    events: list[Fields] = [{"event": FAILURE, "costs": costs} for costs in (["other"], ["device", "canary"])]
    damaged = few.overlaid(last, STEP, stranger(few, STEP)).with_events([*events, {"event": "end", "steps": steps + 1}])
    damaged = replace(damaged, facts={**few.facts, "requested_steps": steps + 2}, notes=noted)
    if source:
        damaged = damaged.overlaid(last, source, stranger(few, source))
    counted = numbers(damaged, "tokens")
    varying = f"from {min(counted):g} to {max(counted):g}" if len(counted) > 1 else ""

    def seen(again: Measurement | Unmeasured) -> bool:
        facts = {fact.name: fact for fact in rows_of(again, Fact)}
        tokens = [fact for name, fact in facts.items() if name == "tokens_per_step"]
        otherwise = not source or (tokens != before and varying in str(tokens))
        early = (facts["ended"].value, facts["ended"].basis) == (EARLY, Basis.DERIVED)
        wanted = {**noted, RECORDER_FAILED: "canary other", "rows": few.rows, "steps": steps + 1}
        return early and otherwise and all(facts[name].value == value for name, value in wanted.items())

    return Canary(name="another step in the last row", place="step, last row", views=(damaged,), seen=seen)


VERIFIER = Verifier(quantity=QUANTITY, kinds=(SubjectKind.RUN,), measure=measure, extent=extent, canary=canary)
