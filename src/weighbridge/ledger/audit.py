"""Whether a ledger is whole: its entries among each other, against their causes, and against an older commit."""

import re
import subprocess
from collections.abc import Iterator, MutableMapping
from datetime import datetime
from pathlib import Path

from weighbridge.core import BundleError, UsageError, WeighbridgeError, sha256
from weighbridge.core.git import ask
from weighbridge.evidence.bundle import BUNDLES, FOLDER, ID_SHOWN
from weighbridge.evidence.review import Answer
from weighbridge.ledger.causes import UNRECORDED, Causes, Shown
from weighbridge.ledger.store import NAME, Ledger, file_name

OTHER_VERSION = "other-version"
AMENDMENT = re.compile(r"(.*/)?spec/amendments/\d{4}-[^/]+\.md")
WORDS = {"M": "was changed", "D": "was deleted", "T": "became something else", "R": "was renamed"}


def check(
    ledger: Ledger, now: datetime, base: str | None = None, judged: MutableMapping[str, Answer] | None = None
) -> tuple[BundleError, ...]:
    """List what is wrong in the ledger and, with a base, since; `other-version` is neither wrong nor shown.

    `judged` has what judging a whole bundle again came to, by its id, and is added to.
    """
    changed = () if base is None else tuple(changes(ledger.root, base))
    return (*changed, *(ledger.problems() or _against_causes(ledger, now, {} if judged is None else judged)))


def _against_causes(ledger: Ledger, now: datetime, judged: MutableMapping[str, Answer]) -> Iterator[BundleError]:
    if not (chains := ledger.chains()):
        remedy = "the first `weighbridge verify --record` makes an entry"
        yield BundleError("empty-ledger", "has no entry: nothing was recorded, or all of it is gone", remedy=remedy)
    causes = Causes(ledger=ledger, chains=chains, judged=judged)
    for place, entries in chains.items():
        for digest, refused in causes.refuted(entries, sorted(entries), now):
            where = (ledger.folder(place) / file_name(entries[digest].seq, digest)).relative_to(ledger.root)
            yield BundleError(refused.code, refused.what, where=where.as_posix(), remedy=refused.remedy)
    ids = {known[:ID_SHOWN]: known for known in causes.stated}
    named = {entry.cause[:ID_SHOWN] for entries in chains.values() for entry in entries.values()}
    for name, refused in causes.unread.items():
        if not FOLDER.fullmatch(name):
            yield BundleError(refused.code, refused.what, where=f"{BUNDLES}/{name}".rstrip("/"), remedy=refused.remedy)
    for short, folder in causes.folders.items():
        if short not in named:
            try:
                causes.shown(ids.get(short, short))
            except WeighbridgeError as refused:
                yield BundleError(refused.code, refused.what, where=f"{BUNDLES}/{folder.name}", remedy=refused.remedy)
    left_out = {place: why for place, _, why in causes.left_out(now) if why.code == UNRECORDED}
    for place, why in left_out.items():  # what cannot be read was listed above
        yield BundleError(why.code, f"{place}: {why.what}", where=why.where, remedy=why.remedy)
    for known, shown in causes.read.items():
        if isinstance(shown, Shown) and shown.versions:
            what = f"was judged by {', '.join(shown.versions)}, which this version does not have"
            yield BundleError(OTHER_VERSION, what, where=f"{BUNDLES}/{causes.folders[known[:12]].name}")


def changes(root: Path, base: str) -> Iterator[BundleError]:
    """Find what was done since a commit to a ledger anywhere, its bundles and landed amendments, but for adding."""
    top = Path(_git(root, "rev-parse", "--show-toplevel").rstrip("\n"))
    since = _git(top, "merge-base", base, "HEAD").strip()
    words = _git(top, "diff", "--no-renames", "--name-status", "-z", since).split("\0")
    here = root.absolute()
    above = next((folder for folder in here.parents if folder.resolve() == top), None)
    if above is None:
        what = f"{here} is behind a link: its files are in the repository {top}"
        raise UsageError("base", what, remedy="name the ledger's folder there with --ledger")
    folders = (here, here.parent / BUNDLES, here.parent / "frozen")
    ours = [folder.relative_to(above) for folder in folders]  # as written, for behind a link git sees other names
    for link in sorted({one for folder in ours for one in (folder, *folder.parents) if (above / one).is_symlink()}):
        yield BundleError("linked", f"is a link, and nothing behind it is compared with {base}", where=link.as_posix())
    for status, path in zip(words[::2], words[1::2], strict=False):
        inside = any(Path(path).is_relative_to(folder) for folder in ours)
        ours_by_name = NAME.fullmatch(Path(path).name) or (AMENDMENT.fullmatch(path) and not _renumbered(top / path))
        if status != "A" and (inside or ours_by_name):
            what = WORDS.get(status[:1], f"has the status {status}")
            yield BundleError("not-added", f"{what} since {base}: evidence is only ever added", where=path)


def _renumbered(section: Path) -> bool:
    """Return whether a landed section stands under another number: after a merge two may have taken the same."""
    digest = section.stem[-12:]
    others = (path for path in section.parent.glob(f"*-{digest}.md") if path != section and AMENDMENT.search(str(path)))
    return not section.exists() and any(sha256(path.read_bytes()).startswith(digest) for path in others)


def _git(folder: Path, *argv: str) -> str:
    try:
        printed = ask(folder, *argv, seconds=60)
    except (OSError, subprocess.TimeoutExpired):
        raise UsageError("base", "git cannot be run here", remedy="leave out --base, or install git") from None
    if printed is None:
        raise UsageError("base", f"git does not know it: git {argv[0]} {argv[1]}", remedy="fetch it, or name another")
    return printed
