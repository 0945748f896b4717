"""Waivers: dated, owned exemptions of one gate from the exit code; no evidence, and printed with what they excuse."""

import datetime as dt
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

from weighbridge.contract import strict_yaml
from weighbridge.contract.checks import structural
from weighbridge.contract.document import DIALECT
from weighbridge.contract.layers import Found, Layered, raise_errors
from weighbridge.contract.load import WAIVERS
from weighbridge.core import ContractError, Doc, Outcome, is_file, is_folder, nearest, read_regular_file, schema
from weighbridge.core.frozen import dataclass, field
from weighbridge.core.limits import LimitsError, read
from weighbridge.judging.requests import DEFAULT

FORMAT: Final = "waivers/v0"
LONGEST: Final = dt.timedelta(days=90)
REMEDY: Final = "name what is there, delete it, or keep waivers of contracts elsewhere in a file for --waivers"
Key = tuple[str, str, str, str]  # contract, gate, instance, and the outcome that is covered

_DATE: Final = Doc("a day, UTC", pattern=r"[0-9]{4}-[0-9]{2}-[0-9]{2}", form="a date, such as 2026-11-22")
_SAID: Final = Doc("in words", pattern=r"\S(.*\S)?", form="a line of text")


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiver:
    """One exemption; `expires` is its last day."""

    contract: Annotated[str, Doc("id of the contract")]
    gate: Annotated[str, Doc("id of the gate")]
    instance: Annotated[str, Doc("the instance of the gate")] = DEFAULT
    covers: Annotated[str, Doc("the outcome that is excused", choices=("FAIL", "BLOCKED"))]
    reason: Annotated[str, _SAID]
    owner: Annotated[str, _SAID]
    created: Annotated[str, _DATE]
    expires: Annotated[str, _DATE]
    issue: Annotated[str, Doc("where it is followed up, as a link", pattern=r"\S+", form="a link")] = ""

    @property
    def key(self) -> Key:
        """Return what it excuses."""
        return self.contract, self.gate, self.instance, self.covers

    @property
    def place(self) -> str:
        """Return the gate and instance that it is of, as findings name them."""
        return self.gate if self.instance == DEFAULT else f"{self.gate}[{self.instance}]"

    @property
    def said(self) -> str:
        """Return it in words, as it is printed with what it excuses."""
        followed = f" ({self.issue})" if self.issue else ""
        return f"waived: {self.covers} of {self.place}, by {self.owner} until {self.expires}: {self.reason}{followed}"

    @property
    def days(self) -> tuple[dt.date, dt.date]:
        """Return its first and its last day."""
        return dt.date.fromisoformat(self.created), dt.date.fromisoformat(self.expires)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaiversDocument:
    """A file of waivers."""

    weighbridge: Annotated[str, Doc("version of this format", choices=(FORMAT,))]
    waivers: Annotated[tuple[Waiver, ...], Doc("every waiver")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Waivers:
    """The waivers of a file on one day; `given` keeps their order, in which remarks find their place."""

    given: tuple[Waiver, ...] = ()
    today: dt.date = dt.date.min
    layered: Layered | None = field(default=None, repr=False)

    @property
    def good(self) -> Mapping[Key, str]:
        """Return what is excused today, and by which waiver in words."""
        return {one.key: one.said for one in self.given if one.days[0] <= self.today <= one.days[1]}

    @property
    def expired(self) -> tuple[Waiver, ...]:
        """Return those that are over and that none replaces."""
        return tuple(one for one in self.given if one.days[1] < self.today and one.key not in self.good)

    def demand_known(self, known: Mapping[str, Mapping[str, Collection[str] | None]]) -> None:
        """Demand that each is of a contract, gate and instance among those `known`; None stands for any instance."""
        problems = []
        for index, one in enumerate(self.given):
            gates = known.get(one.contract, {})
            levels: dict[str, tuple[Collection[str] | None, str]] = {"contract": (known, "")}
            levels |= {"gate": (gates, f" in {one.contract}"), "instance": (gates.get(one.gate), f" of {one.gate}")}
            for key, (among, where) in levels.items():
                name = getattr(one, key)
                if among is not None and name not in among:
                    what = f"there is no {key} {name!r}{where}{nearest(name, among)}"
                    problems.append(self._found(index, key, "waives-nothing", what, REMEDY))
                    break
        raise_errors(problems)

    def remarks(self, judged: Mapping[tuple[str, str, str], Outcome]) -> Iterator[Found]:
        """Yield what is to be known of each: over, not begun, over soon, or not used for what was judged."""
        for index, one in enumerate(self.given):
            (begins, ends), came = one.days, judged.get(one.key[:3])
            of = f"the waiver of {one.owner} for {one.place}"
            if ends < self.today:
                what = f"{of} ended with {one.expires}, and is ignored"
                remedy = "mend the gate, or give a new reason and date"
                yield self._found(index, "expires", "waiver-expired", what, remedy)
                continue
            if begins > self.today:
                yield self._found(index, "created", "waiver-not-begun", f"{of} begins on {one.created}, and is ignored")
                continue
            if (left := (ends - self.today).days) <= 14:
                yield self._found(index, "expires", "waiver-ends-soon", f"{of} ends in {left} days, with {one.expires}")
            if came is not None and came != one.covers:
                what = f"{of} covers a {one.covers}, and the gate came to {came}"
                yield self._found(index, "covers", "waiver-unused", what, "delete it, unless the gate comes and goes")

    def _found(self, index: int, key: str, code: str, what: str, remedy: str = "") -> Found:
        assert self.layered is not None
        return self.layered.found(("waivers", index, key), code, what, remedy, warning=code != "waives-nothing")


def read_waivers(path: Path, now: dt.datetime, clock: dt.datetime | None = None) -> Waivers:
    """Read a file of waivers, or raise every problem of it; `clock` is the time where `now` is looked back at."""
    document = strict_yaml.load(read_regular_file(path, strict_yaml.MAX_BYTES, ContractError), str(path))
    layered = Layered(document.data, {(): (document, ())})
    try:
        given = read(WaiversDocument, document.data).waivers
    except LimitsError as error:
        found = sorted(structural(layered, problem) for problem in error.problems)
        raise strict_yaml.collected(tuple(problem.error for problem in found)) from None
    raise_errors(_dates(layered, given, (clock or now).astimezone(dt.UTC).date()))
    return Waivers(given=given, today=now.astimezone(dt.UTC).date(), layered=layered)


def waivers_of(path: Path | None, now: dt.datetime, folder: Path = Path(), clock: dt.datetime | None = None) -> Waivers:
    """Read the file that was named, else `waivers.yaml` in a folder, where there is one; raises as `read_waivers`."""
    here = path or folder / WAIVERS
    return read_waivers(here, now, clock) if path or is_file(here) else Waivers()


def _dates(layered: Layered, given: tuple[Waiver, ...], today: dt.date) -> Iterator[Found]:
    ahead: set[Key] = set()
    before: dict[Key, list[tuple[dt.date, dt.date]]] = {}
    for index, one in enumerate(given):
        try:
            begins, ends = one.days
        except ValueError:
            what = f"{one.created} or {one.expires} is no day of the calendar"
            yield layered.found(("waivers", index, "created"), "waiver-dates", what)
            continue
        if not begins <= ends <= begins + LONGEST:
            what = f"it lasts {(ends - begins).days} days, from {one.created} to {one.expires}"
            last = begins + LONGEST
            remedy = f"let it end between {begins} and {last}: at most {LONGEST.days} days after it was created"
            yield layered.found(("waivers", index, "expires"), "waiver-dates", what, remedy)
        if begins > today and (one.key in ahead or begins > today + LONGEST):
            what = f"it begins on {one.created}, and one renewal, of at most {LONGEST.days} days ahead, may be written"
            remedy = "write it when the one before it ends, with what is known then"
            yield layered.found(("waivers", index, "created"), "waiver-ahead", what, remedy)
        ahead |= {one.key} if begins > today else set()
        if any(begins <= other_ends and other <= ends for other, other_ends in before.get(one.key, ())):
            what = f"another waiver covers the same {one.covers} of {one.place} on some of these days"
            yield layered.found(("waivers", index), "waiver-twice", what, "keep one of the two")
        before.setdefault(one.key, []).append((begins, ends))


def waivers_schema() -> dict[str, Any]:
    """Describe a file of waivers as a JSON Schema (2020-12)."""
    return {"$schema": DIALECT, "title": "weighbridge waivers, v0", **schema(WaiversDocument)}


def demand_places(waivers: Waivers, judged: Mapping[str, Mapping[str, Sequence[str]]], folder: Path) -> None:
    """Demand that waivers are of what there is: instances in the ledger or `judged`, in other contracts here any."""
    from weighbridge.lanes.lanes import known_contracts
    from weighbridge.ledger.fold import LedgerPlace
    from weighbridge.ledger.store import Ledger

    places = {LedgerPlace(contract=one.contract, gate=one.gate, instance=one.instance) for one in waivers.given}
    recorded = {one for one in places if not one.is_of_files and is_folder(Ledger(folder).folder(one))}
    known: dict[str, dict[str, Collection[str] | None]] = {}
    for contract, gates in judged.items():
        mine = {place for place in recorded if place.contract == contract}
        known[contract] = {}
        for gate, bound in gates.items():
            known[contract][gate] = {*bound, *(one.instance for one in mine if one.gate == gate)}
    others = known_contracts() if {place.contract for place in places} - known.keys() else {}
    waivers.demand_known({name: dict.fromkeys(gate.id for gate in one.gates) for name, one in others.items()} | known)
