"""tensor-coverage: is every tensor that the contract expects there, with values, and are tied ones really the same?

Names, numbers of names, dtypes and what the header states of the model: what one file must be, without its source.
"""

import dataclasses
import functools
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any

from weighbridge.clauses import kind
from weighbridge.clauses.clause import listed
from weighbridge.clauses.kind import Evidence, Mutated, Mutation, Need, blocked, failed, passed, rows_of, with_rows
from weighbridge.clauses.mutations import Breaks
from weighbridge.core import Doc, Fields, Offence, Outcome, SubjectKind, Verdict, dataclass, field
from weighbridge.quantities.facts import Fact
from weighbridge.quantities.tensors import TensorHealth

RANGE = re.compile(r"\{(\d{1,6})\.\.(\d{1,6})\}")
FILE = ("candidate",)
MOST = 1_000_000  # names that a contract may expect


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What must be there."""

    expected: Annotated[
        tuple[str, ...], Doc("names; {0..31} stands for every number between, both included", tight="up")
    ] = ()
    counts: Annotated[
        Mapping[str, int], Doc("glob: how many tensors it names, which are then expected, too", ge=0, le=MOST)
    ] = field(default_factory=dict)
    dtypes: Annotated[
        Mapping[str, tuple[str, ...]], Doc("glob: the dtypes that each tensor it names may have, which is one at least")
    ] = field(default_factory=dict)
    stated: Annotated[
        Mapping[str, str],
        Doc("what the file says of itself, as `inspect` shows it: architecture, model_name, format, written_by"),
    ] = field(default_factory=dict)
    tied: Annotated[
        Mapping[str, str], Doc("name: another one; it may be absent where the other is there, and must equal it")
    ] = field(default_factory=dict)
    may_be_zero: Annotated[tuple[str, ...], Doc("globs of tensors that may be all zero", tight="down")] = ()
    allow_extra: Annotated[tuple[str, ...], Doc("globs of tensors beyond those expected", tight="down")] = ()


def spelled(expected: Iterable[str]) -> Iterator[str]:
    """Yield every name that is expected, ranges written out."""
    for name in expected:
        parts, spans = _spans(name)
        for numbers in itertools.product(*spans):
            yield "".join(itertools.chain(*itertools.zip_longest(parts, map(str, numbers), fillvalue="")))


def _spans(name: str) -> tuple[list[str], list[range]]:
    """Return what stands between the ranges of a name, and the ranges."""
    parts = RANGE.split(name)
    return parts[::3], [range(int(low), int(high) + 1) for low, high in zip(parts[1::3], parts[2::3], strict=True)]


def judge(evidence: Evidence, limits: Limits) -> Verdict:
    """Return whether every expected tensor is there, with elements that are not all zero, and all is as promised."""
    rows = {row.name: row for row in rows_of(evidence, "tensors", TensorHealth)}
    counted = (name for name in rows if listed(name, limits.counts))
    names = dict.fromkeys(itertools.chain(spelled(limits.expected), counted))
    if not rows:
        return blocked("nothing-there", {"expected": len(names)})
    facts = rows_of(evidence, "facts", Fact) if "facts" in evidence else ()
    stated: dict[str, Any] = {row.name: row.value for row in facts if row.value is not None}
    offences = [*_of_names(names, rows, limits), *_of_globs(rows, limits)]
    for name, wanted in limits.stated.items():
        if stated.get(name, wanted) != wanted:
            offences.append(Offence(place=name, code="stated", figures={"found": stated[name], "wanted": wanted}))
    looked = tuple(dict.fromkeys((*names, *rows, *limits.dtypes, *limits.counts, *limits.stated)))
    if offences:
        return failed(offences, looked=looked, unit="tensors", figures={"expected": len(names)})
    silent = [name for name in limits.stated if name not in stated]
    if silent:
        return blocked("not-stated", {"facts": silent})
    absent = sum(name not in rows for name in names)
    return passed(looked=looked, of=len(names), unit="tensors", figures={"expected": len(names), "tied_absent": absent})


def _of_names(names: Mapping[str, None], rows: Mapping[str, TensorHealth], limits: Limits) -> Iterator[Offence]:
    found = {name: _code(name, rows, limits) for name in names}
    found |= {name: "extra" for name in rows if name not in names and not listed(name, limits.allow_extra)}
    for name, code in found.items():
        figures = {**_of_row(rows.get(name)), "tied_to": limits.tied.get(name, ""), "there": len(rows)}
        if code:
            yield Offence(place=name, code=code, figures=figures)


def _of_globs(rows: Mapping[str, TensorHealth], limits: Limits) -> Iterator[Offence]:
    for glob, dtypes in limits.dtypes.items():
        mine = [row for row in rows.values() if fnmatchcase(row.name, glob)]
        if not mine:
            yield Offence(place=glob, code="missing", figures={"there": len(rows)})
        wrong = (row for row in mine if row.dtype not in dtypes)
        promised: Fields = {"glob": glob, "wanted": dtypes}
        yield from (Offence(place=row.name, code="dtype", figures={**_of_row(row), **promised}) for row in wrong)
    for glob, many in limits.counts.items():
        named = sum(fnmatchcase(name, glob) for name in rows)
        if named != many:
            yield Offence(place=glob, code="count", figures={"named": named, "wanted": many})


def _of_row(row: TensorHealth | None) -> Fields:
    return {"dtype": row.dtype, "shape": row.shape, "elements": row.elements} if row else {}


def _code(name: str, rows: Mapping[str, TensorHealth], limits: Limits) -> str:
    row, other = rows.get(name), rows.get(limits.tied[name]) if name in limits.tied else None
    if row is None:
        return "" if other else "missing"
    if not row.elements or (row.all_zero and not listed(name, limits.may_be_zero)):
        return "empty"
    # `repeats` is the first tensor with the same bytes, so two that hold the same have one first.
    return "untied" if other and (row.repeats or row.name) != (other.repeats or other.name) else ""


def check(limits: Limits, _measure: object) -> list[str]:
    """Return which limits cannot be met."""
    if sum(math.prod(max(0, at.stop - at.start) for at in _spans(name)[1]) for name in limits.expected) > MOST:
        return [f"expected stands for more than {MOST} names"]
    names = set(spelled(limits.expected))
    none = [f"expected: {name!r} stands for no name" for name in limits.expected if not any(spelled((name,)))]
    nothing = [] if limits.expected or limits.counts else ["neither expected nor counts expects a tensor"]
    return nothing + none + [f"tied: {name!r} is not expected" for name in limits.tied if name not in names]


@functools.lru_cache(maxsize=1)  # asked for every row, of a list that may be long
def _expected(names: tuple[str, ...]) -> frozenset[str]:
    return frozenset(spelled(names))


def _left(evidence: Evidence, gone: Iterable[str], places: Iterable[str]) -> Mutated | str:
    taken = frozenset(gone)
    left = [row for row in rows_of(evidence, "tensors", TensorHealth) if row.name not in taken]
    places = frozenset(places)
    return Mutated(with_rows(evidence, "tensors", left), places) if places and left else "none can go"


def _dropped(evidence: Evidence, limits: Limits, places: tuple[str, ...]) -> Mutated | str:
    rows = rows_of(evidence, "tensors", TensorHealth)
    mine = _expected(limits.expected).intersection(places).difference(limits.tied)
    gone = {row.name for row in rows if row.name in mine}
    if len(gone) == len(rows):
        gone.discard(rows[0].name)
    return _left(evidence, gone, gone)


def _both_gone(evidence: Evidence, limits: Limits, places: tuple[str, ...]) -> Mutated | str:
    pairs = {name: other for name, other in limits.tied.items() if name in places}
    return _left(evidence, {*pairs, *pairs.values()}, pairs)


def _emptied(row: TensorHealth, limits: Limits) -> Fields | None:
    return {"elements": 0, "all_zero": False} if row.name in _expected(limits.expected) else None


def _zeroed(row: TensorHealth, limits: Limits) -> Fields | None:
    free = listed(row.name, limits.may_be_zero) or row.name not in _expected(limits.expected)
    return None if free else {"all_zero": True}


def _added(evidence: Evidence, limits: Limits, places: tuple[str, ...]) -> Mutated | str:
    rows, wanted = rows_of(evidence, "tensors", TensorHealth), set(places)
    kept = {row.name for row in rows} | _expected(limits.expected)
    added = {f"{row.name}~": row for row in rows if row.name in wanted}
    new = [
        dataclasses.replace(row, name=name)
        for name, row in added.items()
        if name not in kept and not any(fnmatchcase(name, glob) for glob in (*limits.allow_extra, *limits.counts))
    ]
    if not new:
        return "every name may be extra"
    return Mutated(with_rows(evidence, "tensors", (*new[:1], *rows, *new[1:])), frozenset(row.name for row in new))


def _untied(evidence: Evidence, limits: Limits, places: tuple[str, ...]) -> Mutated | str:
    rows = rows_of(evidence, "tensors", TensorHealth)
    there = {row.name for row in rows}
    pairs = {name: other for name, other in limits.tied.items() if {name, other} <= there and name in places}
    if not pairs:
        return "no tensor is there beside the one that it is tied to"
    apart = {*pairs, *pairs.values()}
    changed = [dataclasses.replace(row, repeats=None) if row.name in apart else row for row in rows]
    return Mutated(with_rows(evidence, "tensors", changed), frozenset(pairs))


def _uncounted(evidence: Evidence, limits: Limits, places: tuple[str, ...]) -> Mutated | str:
    names = [row.name for row in rows_of(evidence, "tensors", TensorHealth)]
    mine = {glob: name for glob in limits.counts if glob in places for name in names if fnmatchcase(name, glob)}
    return _left(evidence, mine.values(), mine)


def _one_more(evidence: Evidence, limits: Limits, places: tuple[str, ...]) -> Mutated | str:
    rows = rows_of(evidence, "tensors", TensorHealth)
    spellings = [f"{row.name}~" for row in rows] + [f"~{row.name}" for row in rows]
    added = {glob: name for glob in limits.counts if glob in places for name in spellings if fnmatchcase(name, glob)}
    new = [dataclasses.replace(rows[0], name=name) for name in dict.fromkeys(added.values())]
    changed = with_rows(evidence, "tensors", (*rows, *new))
    return Mutated(changed, frozenset(added)) if new else "no glob is counted that a new name would fit"


def _unnamed(evidence: Evidence, limits: Limits, places: tuple[str, ...]) -> Mutated | str:
    names = [row.name for row in rows_of(evidence, "tensors", TensorHealth)]
    mine = [glob for glob in limits.dtypes if glob in places]
    return _left(evidence, [name for name in names if listed(name, mine)], mine)


def _relabelled(row: TensorHealth, limits: Limits) -> Fields | None:
    named = any(fnmatchcase(row.name, glob) for glob in limits.dtypes)
    free = not row.elements or (row.name not in _expected(limits.expected) and not listed(row.name, limits.counts))
    return {"dtype": "another dtype"} if named and not free else None


def _stating(value: str | None) -> Callable[[Evidence, Limits, tuple[str, ...]], Mutated | str]:
    """Return the damage that makes the file state this of each fact that is asked for."""

    def damage(evidence: Evidence, limits: Limits, places: tuple[str, ...]) -> Mutated | str:
        mine = limits.stated.keys() & set(places)
        if not mine or "facts" not in evidence:
            return "no fact is asked for"
        rows = rows_of(evidence, "facts", Fact)
        changed = [dataclasses.replace(row, value=value) if row.name in mine else row for row in rows]
        return Mutated(with_rows(evidence, "facts", changed), frozenset(mine))

    return damage


_in_tensors = Breaks(need="tensors", row=TensorHealth)

KIND = kind.Kind(
    name="tensor-coverage", version=4, roles={"candidate": SubjectKind.CHECKPOINT},
    needs={"tensors": Need("tensor_health", of=FILE), "facts": Need("facts", of=FILE, optional=True)}, limits=Limits,
    codes=kind.codes("missing", "empty", "untied", "extra", "dtype", "count", "stated",
                     blocked=("nothing-there", "not-stated")),
    judge=judge,
    mutations=(
        Mutation("dropped", "missing", _dropped),
        Mutation("dropped with what it is tied to", "missing", _both_gone),
        _in_tensors("without elements", "empty", _emptied, "none that is there is expected"),
        _in_tensors("all zero", "empty", _zeroed, "everything that is there may be zero"),
        Mutation("added", "extra", _added),
        Mutation("tied, and of other bytes", "untied", _untied),
        _in_tensors("another dtype", "dtype", _relabelled, "no dtype is given"),
        Mutation("nothing that a dtype is given for", "missing", _unnamed),
        Mutation("one fewer than are counted", "count", _uncounted),
        Mutation("one more than are counted", "count", _one_more),
        Mutation("something else stated", "stated", _stating("~")),
        Mutation("nothing stated", "not-stated", _stating(None), Outcome.BLOCKED),
        Mutation("everything taken away", "nothing-there",
                 lambda evidence, *_: Mutated(with_rows(evidence, "tensors", ())), Outcome.BLOCKED),
    ),
    check=check,
)  # fmt: skip
