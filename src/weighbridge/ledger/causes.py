"""What an entry names as its cause: looked up, judged again, and compared, so that no status can be typed."""

import contextlib
import posixpath
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

from weighbridge.contract.resolved import contract_from_json, digests
from weighbridge.core import BundleError, LedgerError, WeighbridgeError, dumps, is_folder, loads, model, plain
from weighbridge.core.frozen import dataclass, field, replace
from weighbridge.evidence import manifest
from weighbridge.evidence.bundle import BUNDLES, FOLDER, ID_SHOWN, Bundle, decode, open_bundle, read_statement
from weighbridge.evidence.disk import STAGE, DiskFolder
from weighbridge.evidence.review import Answer, State, other_versions, rederivation_once
from weighbridge.evidence.statement import CLOCK_SKEW_S, BoundSubject, Predicate, moment, utc
from weighbridge.judging.requests import DEFAULT, facts_of
from weighbridge.ledger import fold
from weighbridge.ledger.fold import BundleEvidence, Chains, Entries, LedgerEntry, LedgerPlace, LedgerStep, Standing
from weighbridge.ledger.sections import LANDED, Amendment, Section, section_of
from weighbridge.ledger.store import DIGEST, Ledger

FILES, UNRECORDED = (model.SubjectKind.CHECKPOINT, model.SubjectKind.MODEL, model.SubjectKind.TRACE), "unrecorded-fail"
LeftOut: TypeAlias = tuple[LedgerPlace, str, BundleError]  # the place, and the bundle that says more than the ledger
RESTORE = "restore it from the history of the repository"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What a bundle shows: `versions` of kinds that are not here, and the false fact of what is NOT_APPLICABLE."""

    id: str
    contract: model.Contract
    evidence: Mapping[LedgerPlace, BundleEvidence]
    versions: tuple[str, ...]
    facts: Mapping[LedgerPlace, Mapping[str, object]]
    unmeant: Mapping[LedgerPlace, model.Fields]

    def known_as(self, place: LedgerPlace) -> LedgerPlace:
        """Return the place that it shows for one; `default` was, in older entries, whatever files were bound."""
        of = (one for one in self.evidence if (one.contract, one.gate) == (place.contract, place.gate))
        old = place.instance == DEFAULT and place not in self.evidence
        return next((one for one in of if one.is_of_files), place) if old else place


def shown_by(bundle: Bundle) -> Shown:
    """Return what a bundle shows of each place that it judged."""
    found = {place_of(bundle, finding): finding for finding in bundle.findings}
    evidence = {place: bundle_evidence(bundle, finding) for place, finding in found.items()}
    gates = {gate.id: gate for gate in bundle.contract.gates if gate.stale_on}
    dated = ((place, gates[place.gate], one.instance) for place, one in found.items() if place.gate in gates)
    known = {place: facts_of(gate, instance, bundle.measured) for place, gate, instance in dated}
    facts = {place: {name: fact.value for name, fact in of.items()} for place, of in known.items()}
    verdicts = ((place, finding.verdict) for place, finding in found.items())
    unmeant = {place: one.figures for place, one in verdicts if one.outcome is model.Outcome.NOT_APPLICABLE}
    contract, versions = bundle.contract, other_versions(bundle)
    return Shown(id=bundle.id, contract=contract, evidence=evidence, versions=versions, facts=facts, unmeant=unmeant)


def demand_rederivable(bundle: Bundle, judged: MutableMapping[str, Answer]) -> None:
    """Judge again before believing a verdict, or raise `not-rederivable`: sealed is not the same as true.

    `judged` has what judging again came to, by the ids of whole bundles.
    """
    if other_versions(bundle):
        raise LedgerError("not-rederivable", f"bundle {bundle.id[:12]} was judged by other versions of its gate kinds")
    if rederivation_once(bundle, judged).state is not State.HOLDS:
        raise LedgerError("not-rederivable", f"the verdicts of bundle {bundle.id[:12]} do not follow from it")


def place_of(bundle: Bundle, finding: model.Finding) -> LedgerPlace:
    """Return the place that a finding is about."""
    return _place(bundle.contract, bundle.contract.gate(finding.gate), finding.instance, bundle.statement.subjects)


def _place(contract: model.Contract, gate: model.GateDecl, instance: str, bound: Sequence[BoundSubject]) -> LedgerPlace:
    """Return a gate's place on an instance: one without a name is the files that were bound, where all of them were."""
    if instance == DEFAULT:
        # By their roles, so that sides are not swapped.
        names = [name for _, name in sorted(gate.subjects.items()) if name in contract.subjects]
        files = _subjects([name for name in names if contract.subjects[name].kind in FILES], instance, bound)
        paths = [posixpath.normpath(one.path) for one in files if one is not None]
        named = (f"./{path}" if fold.NAMED.fullmatch(path) else path for path in paths)
        instance = ("+".join(named) or DEFAULT) if all(files) else DEFAULT
    return LedgerPlace(contract=contract.id, gate=gate.id, instance=instance)


def bundle_evidence(bundle: Bundle, finding: model.Finding) -> BundleEvidence:
    """Return what a bundle shows that matters to one gate's status."""
    gate = bundle.contract.gate(finding.gate)
    mine = _subjects(gate.subjects.values(), finding.instance, bundle.statement.subjects)
    began = [moment(one.started) for one in mine if one is not None and one.started]  # the oldest recorded run counts
    return BundleEvidence(
        bundle=bundle.id,
        outcome=finding.verdict.outcome,
        live=least(one.counts_as if one else None for one in mine) is model.Origin.LIVE,
        reported=least(one.counts_as if one else None for one in mine) is model.Origin.REPORTED,
        live_then=least(one.as_sealed if one else None for one in mine) is model.Origin.LIVE,
        trials=finding.trials,
        at=min([*began, moment(bundle.statement.finished)]),
        contract_digest=bundle.statement.contract.whole,
        kind_version=finding.kind_version,
        dirty=bundle.statement.tool.dirty,
        overridden=bundle.statement.overridden,
        max_age_days=gate.max_age_days,
        stale_on=gate.stale_on,
    )


def _subjects(names: Iterable[str], instance: str, subjects: Sequence[BoundSubject]) -> list[BoundSubject | None]:
    known = {(subject.name, subject.instance): subject for subject in subjects}
    return [known.get((name, instance), known.get((name, DEFAULT))) for name in names]


def _earned(entry: LedgerEntry, before: Standing, seen: BundleEvidence) -> tuple[LedgerStep, model.Status]:
    """Return what evidence earns an entry; what it earned when its bundle was sealed stays earned."""
    at, digest = moment(entry.recorded_at), entry.contract_digest
    with contextlib.suppress(LedgerError):
        then = fold.advance(before, seen.as_sealed, now=at, contract_digest=digest)
        if then == (entry.step, entry.after):
            return then
    return fold.advance(before, seen, now=at, contract_digest=digest)


def least(origins: Iterable[model.Origin | None]) -> model.Origin:
    """Return what several subjects count as together: a gate without any, or with one that is unknown, is FIXTURE."""
    order = (None, model.Origin.FIXTURE, model.Origin.SYNTHETIC, model.Origin.REPORTED, model.Origin.LIVE)
    return min(origins, key=order.index, default=None) or model.Origin.FIXTURE


@dataclass(kw_only=True)
class Causes:
    """The bundles and amendments beside a ledger, each read once, and the entries that name them."""

    ledger: Ledger
    chains: Chains
    read: dict[str, Shown | WeighbridgeError] = field(default_factory=dict)
    judged: MutableMapping[str, Answer] = field(default_factory=dict)  # again, as `demand_rederivable` takes it
    contracts: dict[str, model.Contract | None] = field(default_factory=dict)

    @cached_property
    def folders(self) -> dict[str, Path]:
        """Return the folder of each bundle, by the first digits of its id."""
        bundles = self.ledger.root.absolute().parent / BUNDLES
        named = ((FOLDER.fullmatch(path.name), path) for path in bundles.glob("*-*"))
        return {match["id"]: path for match, path in named if match}

    @cached_property
    def stated(self) -> dict[str, Predicate]:
        """Return what every bundle states, by its id, oldest first; what states nothing is in `unread`."""
        return dict(sorted(self._beside[0].items(), key=lambda item: item[1].finished))

    @property
    def unread(self) -> Mapping[str, WeighbridgeError]:
        """Return the folders and links that state nothing, by name: any of them may be a FAIL, of whatever gate."""
        return self._beside[1]

    @cached_property
    def _beside(self) -> tuple[dict[str, Predicate], dict[str, WeighbridgeError]]:
        bundles = self.ledger.root.absolute().parent / BUNDLES
        stated: dict[str, Predicate] = {}
        unread: dict[str, WeighbridgeError] = {}
        if bundles.is_symlink():
            unread[""] = BundleError("linked", "is a link", remedy="put the folder itself there")
        for path in sorted(bundles.iterdir()) if is_folder(bundles) else ():
            if path.name.startswith(STAGE) or not (path.is_dir() or path.is_symlink()):
                continue  # what a writer has not finished yet, and files, which hold no bundle
            try:
                stated |= [read_statement(path)]
            except WeighbridgeError as refused:
                unread[path.name] = refused
        return stated, unread

    def sealed(self, bundle: str, name: str) -> bytes:
        """Return one file of a bundle that states something, as it was sealed, or raise what was done to it."""
        return manifest.read_file(DiskFolder(self.folders[bundle[:ID_SHOWN]]), self.stated[bundle].manifest, name)

    @cached_property
    def landed(self) -> dict[str, Section]:
        """Return every landed amendment that is as it landed, by its digest; `amend check` tells of others."""
        folder, found = self.ledger.root.absolute().parent.parent / "spec" / "amendments", dict[str, Section]()
        for path in (path for path in folder.glob("*.md") if LANDED.fullmatch(path.name)):
            with contextlib.suppress(WeighbridgeError):
                section = section_of(path)
                found[section.digest] = section
        return found

    def discharging(self, entry: LedgerEntry) -> Amendment:
        """Return what landed and says, of itself, that it discharges an entry's place, as it can do once."""
        if (section := self.landed.get(entry.cause)) is None:
            what = f"no amendment in spec/amendments has the digest {entry.cause[:12]}"
            raise LedgerError("no-amendment", what, remedy=RESTORE)
        about, place = section.about, entry.place
        if place.gate not in about.gates or str(place) not in about.landing.discharges:
            raise LedgerError("unearned", f"the amendment {entry.cause[:12]} does not discharge {place}")
        earlier = (one for one in self.chains.get(place, {}).values() if one.seq < entry.seq)
        if any((one.step, one.cause) == (entry.step, entry.cause) for one in earlier):
            raise LedgerError("unearned", f"the amendment {entry.cause[:12]} has discharged {place} before")
        return about

    def shown(self, bundle: str) -> Shown:
        """Return what a bundle shows, by 12 digits of its id or more; raise `no-bundle` or `not-rederivable`."""
        if (short := bundle[:ID_SHOWN]) not in self.read:
            try:
                self.read[short] = shown_by(self.open(short))
            except WeighbridgeError as problem:
                self.read[short] = problem
        found = self.read[short]
        if isinstance(found, WeighbridgeError):
            raise found
        if not found.id.startswith(bundle):
            raise LedgerError("no-bundle", f"bundle {short} has another id than {bundle}", remedy=RESTORE)
        return found

    def open(self, short: str) -> Bundle:
        """Return a whole bundle by the first 12 digits of its id, judged again where its kinds are here."""
        if (path := self.folders.get(short)) is None:
            raise LedgerError("no-bundle", f"bundle {short} is not in {BUNDLES}/ beside the ledger", remedy=RESTORE)
        opened = open_bundle(path)
        for problem in (*filter(None, [self.unread.get(path.name)]), *opened.problems):
            what = f"bundle {short} is not whole: {problem.where or 'it'} {problem.what}"
            raise LedgerError("no-bundle", what, remedy=RESTORE)
        bundle = decode(opened)
        stated = bundle.statement.contract, bundle.statement.overridden
        if stated != (digests(bundle.contract), bundle.contract.overridden):
            raise LedgerError("no-bundle", f"bundle {short} states another contract than it holds", remedy=RESTORE)
        if not other_versions(bundle):
            demand_rederivable(bundle, self.judged)
        return bundle

    def stated_by(self, bundle: str) -> tuple[BoundSubject, ...]:
        """Return the subjects that one bundle states, none where it cannot be read."""
        with contextlib.suppress(WeighbridgeError, KeyError):
            return read_statement(self.folders[bundle[:ID_SHOWN]])[1].subjects
        return ()

    def newest(self, place: LedgerPlace, now: datetime) -> Shown | None:
        """Return what the newest bundle shows that judged a place by now, whatever it came to; raises as `shown`."""
        newest = self._judged_last(place, now)
        return None if newest is None else self.shown(newest)

    def _judged_last(self, place: LedgerPlace, now: datetime) -> str | None:
        past = (bundle for bundle, one in reversed(self.stated.items()) if moment(one.finished) <= now)
        return next((bundle for bundle in past if self._judged_in(bundle, place)), None)

    def _judged_in(self, bundle: str, place: LedgerPlace) -> bool:
        one = self.stated[bundle]
        names = one.instances.get(place.gate, ()) if one.contract.id == place.contract else ()
        if DEFAULT not in names or not (place.is_of_files or place.instance == DEFAULT):
            return place.instance in names
        if bundle in self.named.get(place, ()):
            return True
        if bundle not in self.contracts:
            self.contracts[bundle] = None
            with contextlib.suppress(WeighbridgeError):
                data = self.sealed(bundle, manifest.CONTRACT_JSON)
                self.contracts[bundle] = contract_from_json(loads(data, where=manifest.CONTRACT_JSON))
        if (contract := self.contracts[bundle]) is None:  # then it may have judged this place
            return True
        mine = (gate for gate in contract.gates if gate.id == place.gate)
        return place in (_place(contract, gate, DEFAULT, one.subjects) for gate in mine)

    @cached_property
    def named(self) -> dict[LedgerPlace, frozenset[str]]:
        """Return what the entries of each place name as their causes."""
        return {place: fold.fold(entries).causes for place, entries in self.chains.items()}

    def unmeant(self, place: LedgerPlace, gate: model.GateDecl, now: datetime) -> model.Fields | None:
        """Return the false fact, where the newest bundle of a place, fresh and of this gate, found it not to apply."""
        if (newest := self._judged_last(place, now)) is None:
            return None
        with contextlib.suppress(WeighbridgeError):  # one that is damaged is reported by `ledger check`
            shown = self.shown(newest) if b'"NOT_APPLICABLE"' in self.sealed(newest, manifest.VERDICTS) else None
            judged = next((one for one in shown.contract.gates if one.id == gate.id), None) if shown else None
            at = shown.known_as(place) if shown else place
            if shown and judged and dumps(plain(judged)) == dumps(plain(gate)) and shown.evidence[at].fresh(now):
                return shown.unmeant.get(at)
        return None

    def left_out(self, now: datetime) -> Iterator[LeftOut]:
        """Yield what no entry says of a place: a FAIL that would move it, or that a bundle cannot be read."""
        named = frozenset().union(*self.named.values())
        for bundle in (one for one in self.stated if one not in named):
            where = f"{BUNDLES}/{self.folders[bundle[:ID_SHOWN]].name}"
            try:  # what says of no failure is not judged again
                evidence = self.shown(bundle).evidence if b'"FAIL"' in self.sealed(bundle, manifest.VERDICTS) else {}
            except WeighbridgeError as refused:
                what = f"{where} cannot be read: {refused.where} {refused.what}".replace(":  ", ": ")
                damaged = BundleError(refused.code, what, remedy=RESTORE)
                yield from ((place, bundle, damaged) for place in self.chains if self._judged_in(bundle, place))
                continue
            remedy = f"weighbridge ledger record {bundle[:ID_SHOWN]}"
            for place, seen in evidence.items():
                standing = fold.fold(self.chains.get(place, {}))
                old = fold.fold(self.chains.get(replace(place, instance=DEFAULT), {}))  # entries that named no files
                late = all(one.failed_at is None or seen.at > one.failed_at for one in (standing, old))
                if late and seen.outcome is model.Outcome.FAIL:
                    with contextlib.suppress(LedgerError):
                        fold.advance(standing, seen, now=now, contract_digest=seen.contract_digest)
                        what = f"a {'live' if seen.live else 'reported'} FAIL is not recorded"
                        yield place, bundle, BundleError(UNRECORDED, what, where=where, remedy=remedy)

    def refuted(self, entries: Entries, asked: Iterable[str], now: datetime) -> Iterator[tuple[str, WeighbridgeError]]:
        """Yield every entry, of those asked for, that does not follow from its cause, by digest, and why."""
        after = fold.history(entries)
        for digest in asked:
            entry = entries[digest]
            try:
                if moment(entry.recorded_at) > now + timedelta(seconds=CLOCK_SKEW_S):
                    raise LedgerError("future", f"was recorded {entry.recorded_at}, which is in the future")
                self._demand(entry, fold.stood(entry, after))
            except WeighbridgeError as refused:
                yield digest, refused

    def _demand(self, entry: LedgerEntry, before: Standing) -> None:
        if entry.step in (LedgerStep.MOVE, LedgerStep.RENEW):
            self._demand_move(entry, before)
        elif entry.step is LedgerStep.DECLARE:
            if all(one.contract.whole != entry.cause for one in self.stated.values()):
                what = f"no bundle beside the ledger was judged under the contract {entry.cause[:12]}"
                raise LedgerError("no-bundle", what, remedy=RESTORE)
        elif entry.step is LedgerStep.DISCHARGE:
            about = self.discharging(entry)
            shown, landed = [self.shown(found) for found in about.evidence], moment(about.landing.at)
            mine = [found for one in shown if (found := one.evidence.get(one.known_as(entry.place)))]
            earned = (utc(one.at) for one in mine if one.as_sealed.discharges(before, landed))
            if entry.evidence_at not in earned:
                what = f"the amendment has no evidence of {entry.evidence_at} that discharges it"
                raise LedgerError("unearned", what)
        elif entry.step is LedgerStep.RETIRE:
            self.demand_successor_or_bundle(entry.place, entry.cause, moment(entry.recorded_at))

    def _demand_move(self, entry: LedgerEntry, before: Standing) -> None:
        shown = self.shown(entry.cause)
        at, name = shown.known_as(entry.place), f"bundle {entry.cause[:12]}"
        if (seen := shown.evidence.get(at)) is None:
            raise LedgerError("unearned", f"{name} did not judge it")
        if (entry.outcome, entry.evidence_at) != (seen.outcome, utc(seen.at)):
            what = f"says {entry.outcome} of {entry.evidence_at}; {name} came to {seen.outcome} of {utc(seen.at)}"
            raise LedgerError("unearned", what)
        if (entry.contract_digest, entry.kind_version) != (seen.contract_digest, seen.kind_version):
            raise LedgerError("unearned", f"{name} was judged under another contract or kind version")
        step, after = _earned(entry, before, seen)
        if (step, after) != (entry.step, entry.after):
            raise LedgerError("unearned", f"{name} earns a {step} to {after}")
        if before.status is fold.REGRESSED and after is fold.ACTIVE and at != entry.place:
            failed = self.shown(before.bundle).known_as(entry.place)
            if failed != at:
                raise LedgerError("unearned", f"{name} passed on {at.instance}, what failed was {failed.instance}")

    def demand_successor_or_bundle(self, place: LedgerPlace, cause: str, at: datetime) -> None:
        """Demand what retires a gate at a time: a FAIL of it, or a live gate of the same promise; else `no-cause`."""
        if DIGEST.fullmatch(cause):
            shown = self.shown(cause)
            seen = shown.evidence.get(shown.known_as(place))
            if seen is None or seen.outcome is not model.Outcome.FAIL or seen.overridden:
                came = "did not judge it" if seen is None else f"came to {seen.outcome} of it"
                what = f"bundle {cause[:12]} {came}{', under other parameters' if seen and seen.overridden else ''}"
                raise LedgerError("no-cause", what, remedy="counter-evidence is a FAIL of the contract as written")
            return
        for other in (one for one in self.chains if cause in one.names and one != place):
            standing = fold.fold({key: one for key, one in self.chains[other].items() if moment(one.recorded_at) <= at})
            live = standing.status in (fold.ACTIVE, fold.DISCHARGED) and not standing.diverged
            if live and self._promise(other) == self._promise(place):
                return
        what = "neither a bundle beside the ledger nor another gate in it, live, of this kind and subjects"
        remedy = "name a FAIL of it by its bundle's id, or the successor"
        raise LedgerError("no-cause", f"{cause!r} is {what}", remedy=remedy)

    def _promise(self, place: LedgerPlace) -> tuple[str, Mapping[str, str], str]:
        """Return the kind of a place's gate, its subjects by role, and its files or instance, as judged last."""
        standing = fold.fold(self.chains.get(place, {}))
        of = (known for known, one in self.stated.items() if one.contract.whole == standing.contract_digest)
        shown = self.shown(standing.bundle or next(of, ""))
        gate = next(one for one in shown.contract.gates if one.id == place.gate)
        return gate.kind, gate.subjects, shown.known_as(place).instance
