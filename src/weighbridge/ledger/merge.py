"""Bring bundles and ledger entries of another machine into one folder of evidence; what is there is never replaced."""

from collections.abc import Sequence
from pathlib import Path, PurePath

from weighbridge.core import BundleError, LedgerError, dataclass, exists, is_file, is_folder, quoted
from weighbridge.evidence import manifest, signatures, statement
from weighbridge.evidence.archive import bundles_in, read_archive
from weighbridge.evidence.bundle import BUNDLES, files_of, folder_name
from weighbridge.evidence.disk import PackedFolder, disk_errors, write_folder
from weighbridge.evidence.review import Against, sound
from weighbridge.ledger.fold import LedgerStep
from weighbridge.ledger.store import NAME, Ledger

LEDGER = "ledger"


@dataclass(frozen=True, slots=True)
class Merged:
    """The new bundles of a merge, how many were there, and how many entries, and signatures of those, are new."""

    bundles: tuple[str, ...]
    present: int
    entries: int
    signatures: int


def merge(sources: Sequence[Path], into: Path, against: Against) -> Merged:
    """Copy the bundles and signatures that are missing, each bundle verified first, and the entries of their ledgers.

    Nothing is written before everything was verified: a bundle that does not hold, or an entry without, refuses all.
    """
    for path in sources:
        if not exists(path):
            raise BundleError("not-a-bundle", "is neither a folder nor an archive", where=str(path))
    known: dict[str, dict[str, bytes]] = {}
    ids: set[str] = set()
    before = (into,) if is_folder(into / BUNDLES) else ()
    for path, folder in (found for source in (*before, *sources) for found in _bundles(source)):
        opened = sound(path, against, folder)
        ids.add(opened.id)
        assert opened.statement is not None
        name = folder_name(opened.statement, opened.id)
        files, seen = files_of(opened), known.setdefault(name, {})
        if exists(into / BUNDLES / name):  # what was sealed is there; its statement stands for it
            files = {one: files[one] for one in files if one == statement.FILE or manifest.SIGNATURE.fullmatch(one)}
        for one, data in files.items():
            if data != seen.get(one, data):
                where = str(into / BUNDLES / name)
                raise BundleError("other-bytes", f"{one} is another there than in {path}", where=where)
        seen |= files
    ledger = Ledger(into / LEDGER)
    chains = (chain for source in sources for chain in Ledger(source / LEDGER).chains().values())
    entries = [entry for chain in chains for entry in chain.values()]
    for entry in entries:
        if entry.step in (LedgerStep.MOVE, LedgerStep.RENEW) and entry.cause not in ids:
            what = f"entry {entry.seq} of {entry.place} rests on the bundle {entry.cause[:12]}, which is in no source"
            raise LedgerError("no-bundle", what, remedy="merge the folder that holds it")
    new = [name for name in known if not exists(into / BUNDLES / name)]
    there = {into / BUNDLES / name: files for name, files in known.items() if name not in new}
    signed = [(at, file, data) for at, files in there.items() for file, data in files.items() if not exists(at / file)]
    with disk_errors("the bundle", into):
        for name in new:
            write_folder(into / BUNDLES, name, known[name])
    added = sum(signatures.add(*one) for one in signed)
    return Merged(tuple(new), len(known) - len(new), ledger.adopt(entries), added)


def _bundles(source: Path) -> list[tuple[Path, PackedFolder | None]]:
    inside = source / BUNDLES
    if is_folder(inside):
        return [(path, None) for path in sorted(inside.iterdir()) if not path.name.startswith(".")]
    if not is_file(source):
        return [] if is_folder(source / LEDGER) or not exists(source) else [(source, None)]
    files = read_archive(source)
    for name in files:
        if NAME.fullmatch(PurePath(name).name):
            what = f"holds an entry of a ledger, which is not read from an archive: {quoted(name)}"
            raise BundleError("archive-member", what, where=str(source), remedy="unpack it, and name the folder")
    return [(source, folder) for folder in bundles_in(files, source)]
