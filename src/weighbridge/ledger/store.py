"""The ledger on disk: one immutable file a move, under `CONTRACT/GATE/INSTANCE/SEQ-DIGEST.json`.

Each entry names its parents by digest, which shows every edit and hole but the loss of the newest entry.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path

from weighbridge.core import BundleError, LedgerError, Outcome, WeighbridgeError, build, dumps, loads, plain, sha256
from weighbridge.core.frozen import dataclass
from weighbridge.evidence.disk import LINK, disk_errors, link_new, make_folders, read_regular, sweep
from weighbridge.evidence.statement import CLOCK_SKEW_S, moment
from weighbridge.ledger import fold
from weighbridge.ledger.fold import Entries, LedgerEntry, LedgerPlace, LedgerStep, Standing

LOCK = ".lock"  # stays in the ledger's folder: removing a file that others wait for would let two in at once
SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
DIGEST = re.compile(r"[0-9a-f]{64}")
NAME = re.compile(r"(?P<seq>\d{6,})-(?P<digest>[0-9a-f]{64})\.json")
SHORTEST_REASON = 20


@dataclass(frozen=True, slots=True)
class Ledger:
    """A ledger's folder, `evidence/ledger`."""

    root: Path

    def folder(self, place: LedgerPlace) -> Path:
        """Return the folder of a place's entries."""
        return self.root / segment(place.contract) / segment(place.gate) / segment(place.instance)

    def chains(self) -> dict[LedgerPlace, dict[str, LedgerEntry]]:
        """Read the entries of every place, or raise the first thing wrong: a status left out would be made up."""
        _refuse(tuple(self._strangers()))
        found: dict[LedgerPlace, dict[str, LedgerEntry]] = {}
        for folder in self._folders():
            entries, problems = self._load(folder)
            _refuse(problems)
            found |= {entry.place: entries for entry in entries.values()}
        return dict(sorted(found.items()))

    def places(self) -> tuple[LedgerPlace, ...]:
        """List every place that has entries; raises as `chains` does."""
        return tuple(self.chains())

    def read(self, place: LedgerPlace) -> dict[str, LedgerEntry]:
        """Read the entries of a place, by digest, or raise the first that is not whole or not legal."""
        entries, problems = self._load(self.folder(place))
        _refuse(problems)
        return entries

    def problems(self) -> tuple[BundleError, ...]:
        """List everything wrong with the ledger: files, names, parents, numbers, and moves that the table refuses."""
        return (*self._strangers(), *(problem for folder in self._folders() for problem in self._load(folder)[1]))

    def causes(self) -> frozenset[str]:
        """List every bundle, amendment and contract that an entry names; raises as `chains` does."""
        return frozenset(entry.cause for entries in self.chains().values() for entry in entries.values())

    def append(self, place: LedgerPlace, decide: Callable[[Entries], Sequence[LedgerEntry]]) -> tuple[str, ...]:
        """Append what `decide` makes of the entries under the lock; give the digests of the new ones."""
        from filelock import FileLock  # it loads asyncio: 90 ms that only who writes has to wait

        folder = self.folder(place)
        with disk_errors("the ledger entry", folder):
            make_folders(folder)
            with FileLock(self.root / LOCK):
                sweep(folder)
                written = {digest_of(entry): entry for entry in decide(self.read(place))}
                for digest, entry in written.items():
                    link_new(folder / file_name(entry.seq, digest), dumps(plain(entry)))
                return tuple(written)

    def adopt(self, entries: Iterable[LedgerEntry]) -> int:
        """Link entries of another ledger that are not here yet, parents before children; return how many are new."""
        new = 0
        for entry in sorted(entries, key=lambda one: one.seq):

            def decide(known: Entries, entry: LedgerEntry = entry) -> Sequence[LedgerEntry]:
                return () if digest_of(entry) in known else (entry,)

            new += len(self.append(entry.place, decide))
        return new

    def _strangers(self) -> Iterator[BundleError]:
        """Find whatever stands above the entries and is no folder; a hidden file, as `.gitkeep`, is nobody's entry."""
        for path in sorted(path for depth in ("*", "*/*", "*/*/*") for path in self.root.glob(depth)):
            if (path.is_symlink() or not path.is_dir()) and not path.name.startswith("."):
                where = path.relative_to(self.root).as_posix()
                yield BundleError("extra-file", "is no folder of a ledger", where=where)

    def _folders(self) -> Iterator[Path]:
        yield from sorted(path for path in self.root.glob("*/*/*") if path.is_dir() and not path.is_symlink())

    def _load(self, folder: Path) -> tuple[dict[str, LedgerEntry], tuple[BundleError, ...]]:
        entries: dict[str, LedgerEntry] = {}
        problems: list[BundleError] = []
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            if path.name.startswith(LINK):
                continue  # a writer died before it linked this: it never became an entry
            shown = path.relative_to(self.root).as_posix()
            try:
                digest, entry = _read(path, shown)
            except WeighbridgeError as problem:
                problems.append(BundleError(problem.code, problem.what, where=shown))
                continue
            if self.folder(entry.place) != folder:
                problems.append(BundleError("misplaced", f"is of {entry.place}", where=shown))
            entries[digest] = entry
        after = fold.history(entries)
        for digest, entry in entries.items():
            if (refused := illegal(entry, entries, fold.stood(entry, after))) is not None:
                at = (folder / file_name(entry.seq, digest)).relative_to(self.root).as_posix()
                problems.append(BundleError(refused.code, refused.what, where=at))
        return entries, tuple(problems)


def _refuse(problems: Sequence[BundleError]) -> None:
    if problems:
        first = problems[0]
        raise BundleError(first.code, first.what, where=first.where, remedy="run: weighbridge ledger check")


def segment(name: str) -> str:
    """Return a name as a folder's name; one that is no safe name becomes its digest."""
    return name if SAFE.fullmatch(name) else f"_{sha256(name.encode())[:16]}"


def file_name(seq: int, digest: str) -> str:
    """Return the file of an entry."""
    return f"{seq:06d}-{digest}.json"


def digest_of(entry: LedgerEntry) -> str:
    """Digest an entry as it is written."""
    return sha256(dumps(plain(entry)))


def illegal(entry: LedgerEntry, entries: Entries, before: Standing) -> LedgerError | None:
    """Return why an entry may not stand among the others, after `before`, or None where it may."""
    if missing := [parent for parent in entry.parents if parent not in entries]:
        return LedgerError("missing-parent", f"names the parent {missing[0][:12]}, which is not there")
    if entry.seq != 1 + before.seq:
        return LedgerError("seq", f"has the number {entry.seq}, its parents call for another")
    count = len(entry.parents)
    if len(set(entry.parents)) != count or (count > 1) != (entry.step is LedgerStep.RECONCILE):
        return LedgerError("parents", f"is a {entry.step} with {count} parents")
    if entry.before is not before.status or (before.status, entry.after) not in fold.EDGES[entry.step]:
        came = f"{entry.step} from {before.status or 'nothing'} (it says {entry.before or 'nothing'})"
        return LedgerError("illegal-edge", f"no {came} leads to {entry.after}")
    return _unearned(entry, before)


def _unearned(entry: LedgerEntry, before: Standing) -> LedgerError | None:
    earned = Outcome.FAIL if entry.after is fold.REGRESSED else Outcome.PASS
    wanted = earned if entry.step in (LedgerStep.MOVE, LedgerStep.RENEW, LedgerStep.DISCHARGE) else None
    if entry.outcome is not wanted or (wanted is not None) != bool(entry.evidence_at):
        return LedgerError("unearned", f"a {entry.step} to {entry.after} on {entry.outcome or 'no verdict'}")
    if wanted and moment(entry.evidence_at) > moment(entry.recorded_at) + timedelta(seconds=CLOCK_SKEW_S):
        return LedgerError("future", "its evidence is from after it was recorded")
    if entry.step in (LedgerStep.RETIRE, LedgerStep.RECONCILE) and len(entry.reason.strip()) < SHORTEST_REASON:
        return LedgerError("no-reason", f"a {entry.step} with no reason of at least {SHORTEST_REASON} letters")
    causes = {
        LedgerStep.DECLARE: entry.cause == entry.contract_digest,
        LedgerStep.RECONCILE: entry.cause == "+".join(parent[:12] for parent in entry.parents),
        LedgerStep.RETIRE: entry.cause != "",
    }
    if not DIGEST.fullmatch(entry.contract_digest) or not causes.get(entry.step, DIGEST.fullmatch(entry.cause)):
        return LedgerError("no-cause", f"a {entry.step} that names no contract or no cause by its digest")
    heals = entry.before is fold.REGRESSED and entry.after is fold.ACTIVE
    if heals and before.failed_at is not None and moment(entry.evidence_at) <= before.failed_at:
        return LedgerError("older-than-fail", "a PASS that is not later than the last FAIL")
    return None


def _read(path: Path, shown: str) -> tuple[str, LedgerEntry]:
    if (named := NAME.fullmatch(path.name)) is None:
        raise BundleError("extra-file", "is no entry of a ledger", where=shown)
    data = read_regular(path, shown, 64 << 10)
    if (digest := sha256(data)) != named["digest"]:
        raise BundleError("altered", f"has sha256 {digest[:12]}…, its name says {named['digest'][:12]}…", where=shown)
    entry = build(LedgerEntry, loads(data, where=shown))
    if entry.schema != fold.SCHEMA or dumps(plain(entry)) != data or path.name != file_name(entry.seq, digest):
        raise BundleError("not-canonical", f"is not {fold.SCHEMA} in its one form", where=shown)
    for text in filter(None, (entry.evidence_at, entry.recorded_at)):
        moment(text)
    return digest, entry
