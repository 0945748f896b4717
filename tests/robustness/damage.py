"""Damage done on purpose to what is kept: bytes flipped, files cut, swapped, gone, added, or of another sort."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import random
import shutil
import socket
import zipfile
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

from tests.evidence import drafts
from tests.evidence.test_archive import HOSTILE, hostile
from tests.ledgers import NOW
from tests.robustness.apart import Tally, Told, apart, refused
from tests.robustness.faults import made
from tests.robustness.worlds import EVIDENCE, LEDGER, SPEC, WORLDS

from weighbridge.core.errors import WeighbridgeError
from weighbridge.evidence import signatures, statement
from weighbridge.evidence.archive import pack
from weighbridge.evidence.bundle import files_of, seal, unseal, whole
from weighbridge.evidence.disk import DiskFolder, PackedFolder
from weighbridge.ledger.audit import check
from weighbridge.spec.amendments import landed

LONG = 1200.0
SEALED, APPENDED, LANDED, _ = WORLDS
Look = Callable[[], object]


def kept(folder: Path) -> Path:
    """Return a folder with evidence of one gate, its ledger, and a landed section that discharges it."""
    made(LANDED, folder)
    return folder / "once"


def a_bundle(folder: Path) -> Path:
    """Return a bundle that holds a table, a series, a log and an advisory gate."""
    measured = {drafts.PAIRS: drafts.pairs(drafts.pair("a"), drafts.pair("b")), "column.run.default": drafts.series()}
    return seal(drafts.draft(measured), folder, drafts.REDACTOR).path


def files(folder: Path) -> list[Path]:
    """Return every file of a folder, in order."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _demand_whole_ledger() -> None:
    problems = check(LEDGER, NOW + timedelta(hours=1))
    if problems:
        raise problems[0]


def _demand_sections() -> None:
    landed(SPEC / "amendments")


def flips(path: Path, look: Look, every: int) -> Iterator[Told]:
    """Flip one bit of every byte of a file in its turn; `look` must refuse each."""
    data = path.read_bytes()
    with path.open("r+b", buffering=0) as file:
        for at in range(0, len(data), every):
            os.pwrite(file.fileno(), bytes([data[at] ^ (1 << at // every % 8)]), at)
            yield refused(look, WeighbridgeError)
            os.pwrite(file.fileno(), data[at : at + 1], at)
    look()


def flipped_bundle(folder: Path, every: int) -> Tally:
    """Flip every byte of every file of a bundle."""
    bundle = a_bundle(folder)
    cases = (printed for path in files(bundle) for printed in flips(path, lambda: unseal(bundle), every))
    return apart(lambda: cases, folder, LONG)


def flipped_signature(folder: Path, every: int) -> Tally:
    """Flip every byte of a signature, which is held against its signer's key."""
    bundle = a_bundle(folder)
    signatures.new_key(folder / "ada")
    stated, keys = (bundle / statement.FILE).read_bytes(), {"ada": signatures.public_key(folder / "ada.pub")}
    name, envelope = signatures.sign(stated, signatures.private_key(folder / "ada"))
    signatures.add(bundle, name, envelope)

    def look() -> None:
        signatures.check(signatures.signatures_in(DiskFolder(bundle), stated), stated, keys)

    return apart(lambda: flips(bundle / name, look, every), folder, LONG)


def flipped_archive(folder: Path, every: int) -> Tally:
    """Flip every byte of a packed bundle; its folder's name inside it anchors the id."""
    bundle, archive = a_bundle(folder), folder / "a.tar"
    archive.write_bytes(pack(PackedFolder(bundle.name, files_of(whole(bundle)))))
    return apart(lambda: flips(archive, lambda: unseal(archive, bundle.name[-12:]), every), folder, LONG)


def flipped_foreign_archive(folder: Path, every: int) -> Tally:
    """Flip every byte of a zip and of a gzipped tar: seen, or the bundle read from it is the same."""
    bundle, archive = a_bundle(folder), folder / "a"
    right, zipped = files_of(whole(bundle)), io.BytesIO()
    with zipfile.ZipFile(zipped, "w", zipfile.ZIP_DEFLATED) as file:
        for path in files(bundle):
            file.write(path, path.relative_to(folder))

    def look() -> None:
        if files_of(whole(archive, bundle.name[-12:])) == right:
            raise WeighbridgeError("same", "nothing of it changed")

    def cases() -> Iterator[Told]:
        for data in (zipped.getvalue(), gzip.compress(pack(PackedFolder(bundle.name, right)))):
            archive.write_bytes(data)
            with contextlib.suppress(WeighbridgeError):
                yield from flips(archive, look, every)

    return apart(cases, folder, LONG)


def flipped_ledger(folder: Path, every: int) -> Tally:
    """Flip every byte of every entry of a ledger."""
    entries = files(kept(folder) / LEDGER.root)

    def look() -> None:
        problems = LEDGER.problems()
        if problems:
            raise problems[0]

    cases = (printed for path in entries if path.suffix == ".json" for printed in flips(path, look, every))
    return apart(lambda: cases, kept(folder), LONG)


def flipped_section(folder: Path, every: int) -> Tally:
    """Flip every byte of a landed section."""
    (section,) = (kept(folder) / SPEC / "amendments").glob("0*.md")
    return apart(lambda: flips(section, _demand_sections, every), kept(folder), LONG)


def mangled(folder: Path, count: int) -> Tally:
    """Cut, grow, swap, double or shift a piece of a file of a bundle, of a ledger or of a landed section."""
    base, chance = kept(folder), random.Random(7)
    looks: dict[Path, Look] = {EVIDENCE: _demand_whole_ledger, SPEC / "amendments": _demand_sections}

    def cases() -> Iterator[Told]:
        places = [(path, look) for top, look in looks.items() for path in files(top) if not path.name.startswith(".")]
        for _ in range(count):
            path, look = chance.choice(places)
            data = path.read_bytes()
            low, high = sorted(chance.choices(range(len(data) + 1), k=2))
            other = chance.choice((
                data[:low], data[:low] + data[high:], data + data[low:high], data[low:] + data[:low], b"",
                data[:low] + data[low:high] * 2 + data[high:], data[:low] + bytes(high - low) + data[high:],
            ))  # fmt: skip
            if other != data:
                path.write_bytes(other)
                yield refused(look, WeighbridgeError)
                path.write_bytes(data)
        for look in looks.values():
            look()

    return apart(cases, base, LONG)


def gone_or_added(folder: Path) -> Tally:
    """Take away each file of what is kept but the newest entry, and add one beside each."""
    base = kept(folder)

    def cases() -> Iterator[Told]:
        newest = max(LEDGER.root.rglob("0*.json"))
        for path in files(EVIDENCE / "bundles") + files(LEDGER.root):
            hidden = path.name.startswith(".")
            data = path.read_bytes()
            if path != newest and not hidden:
                path.unlink()
                yield refused(_demand_whole_ledger, WeighbridgeError)
                path.write_bytes(data)
            if not hidden:
                stranger = path.with_name(f"{path.stem}x{path.suffix}")
                stranger.write_bytes(data)
                yield refused(_demand_whole_ledger, WeighbridgeError)
                stranger.unlink()
        (section,) = (SPEC / "amendments").glob("0*.md")
        data = section.read_bytes()
        section.unlink()
        yield refused(_demand_whole_ledger, WeighbridgeError)
        section.write_bytes(data)
        for name in ("0002-more.md", f"0002{section.name[4:-5]}0.md"):
            (section.parent / name).write_bytes(data)
            yield refused(_demand_sections, WeighbridgeError)
            (section.parent / name).unlink()
        for bundle in (EVIDENCE / "bundles").iterdir():
            moved = bundle.rename("elsewhere")
            yield refused(_demand_whole_ledger, WeighbridgeError)
            moved.rename(bundle)
        _demand_whole_ledger()
        _demand_sections()

    return apart(cases, base, LONG)


def of_another_sort(folder: Path) -> Tally:
    """Put a link, a pipe, a socket, a folder, a CRLF copy or an LFS pointer in the place of every file."""
    base = kept(folder)

    def cases() -> Iterator[Told]:
        for path in (*files(EVIDENCE), *(SPEC / "amendments").glob("0*.md")):
            if path.name.startswith("."):
                continue
            look = _demand_sections if path.suffix == ".md" else _demand_whole_ledger
            aside = path.rename("aside")
            for sort in SORTS:
                sort(aside.absolute(), path)
                yield refused(look, WeighbridgeError)
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
            aside.rename(path)
            look()

    return apart(cases, base, LONG)


def _socket(_aside: Path, path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made_one, contextlib.chdir(path.parent):
        made_one.bind("s")
        Path("s").rename(path.name)


def _crlf(aside: Path, path: Path) -> None:
    path.write_bytes(aside.read_bytes().replace(b"\n", b"\r\n"))


def _pointer(_aside: Path, path: Path) -> None:
    path.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n")


SORTS: tuple[Callable[[Path, Path], object], ...] = (
    lambda aside, path: path.symlink_to(aside),
    lambda _aside, path: path.symlink_to("nowhere"),
    lambda _aside, path: os.mkfifo(path),
    lambda _aside, path: path.mkdir(),
    _socket,
    _crlf,
    _pointer,
)


def hostile_archives(folder: Path) -> Tally:
    """Read each hostile archive in a process of its own, within seconds, and write nothing beside it."""
    tally = Tally()
    for number, name in enumerate(HOSTILE):
        path = folder / f"{number}" / "a.tar"
        path.parent.mkdir()
        path.write_bytes(hostile(name)[0])

        def cases(path: Path = path) -> Iterator[Told]:
            printed = refused(lambda: unseal(path), WeighbridgeError)
            yield printed if [one.name for one in path.parent.iterdir()] == ["a.tar"] else Told.CORRUPTED

        tally += apart(cases, path.parent)
    return tally
