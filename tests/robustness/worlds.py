"""What is written to a disk, each as a world: what is there before, the act, and what may be there after it."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from tests.evidence import drafts
from tests.ledgers import NOW, PLACE, recorded, sealed

from weighbridge.core.errors import AmendmentError
from weighbridge.evidence.bundle import seal, unseal
from weighbridge.evidence.review import Against
from weighbridge.ledger.audit import check
from weighbridge.ledger.fold import ACTIVE, DISCHARGED, fold
from weighbridge.ledger.merge import merge
from weighbridge.ledger.store import Ledger
from weighbridge.spec.amendments import landed
from weighbridge.spec.drafting import AuthorNotes, draft
from weighbridge.spec.landing import Here, check_spec, land
from weighbridge.spec.tally import history

EVIDENCE, SPEC = Path("evidence"), Path("spec")
LEDGER = Ledger(EVIDENCE / "ledger")
DRAFT = SPEC / "amendments" / "drafts" / "holds.md"


@dataclass(frozen=True)
class World:
    """Everything works in the folder in which it is called.

    `whole` tells whether the state is the old one or the new one, `done` whether it is the new one, nothing left over.
    """

    name: str
    make: Callable[[], object]
    act: Callable[[], object]
    whole: Callable[[], bool]
    done: Callable[[], bool]


def bundles() -> list[Path]:
    """Return the folders of bundles that can be seen, each of them unsealed."""
    folder = EVIDENCE / "bundles"
    found = [path for path in folder.iterdir() if not path.name.startswith(".")] if folder.is_dir() else []
    return [unseal(path).path for path in found]


def leftovers() -> list[Path]:
    """Return what writers that died have left, once somebody writes to the ledger again."""
    if LEDGER.folder(PLACE).is_dir() and os.access(LEDGER.root, os.W_OK):
        LEDGER.append(PLACE, lambda _: ())
    return [path for start in (".stage-*", ".tmp-*") for path in Path().rglob(start)]


def _seal() -> None:
    seal(drafts.draft(), EVIDENCE / "bundles", drafts.REDACTOR)


def _record() -> None:
    (path,) = bundles()
    recorded(LEDGER, unseal(path))


def _whole_ledger() -> bool:
    return LEDGER.problems() == ()


def _landable() -> None:
    bundle = sealed(EVIDENCE)
    recorded(LEDGER, bundle)
    DRAFT.parent.mkdir(parents=True)
    notes = AuthorNotes(at=NOW, title="It holds", author="Ada")
    text = draft([bundle], [PLACE.gate], notes, history(LEDGER.chains()), frozenset({PLACE}))
    # Its premises name a contract that is not written here.
    DRAFT.write_text(re.sub(r"^premises:\n(?:- .*\n)+|^<!-- author:.*\n", "", text, flags=re.MULTILINE))


def _here() -> Here:
    return Here(spec=SPEC, ledger=LEDGER, now=NOW + timedelta(hours=1))


def _land() -> None:
    """Land the draft, or land again what has landed, as `amend check` says after a crash."""
    left = sorted((SPEC / "amendments").glob("0*.md"))
    section, problems = land(_here(), left[0] if left else DRAFT)
    if section is None:
        raise AmendmentError("refused", str(problems[0]))
    DRAFT.unlink(missing_ok=True)


def _whole_spec() -> bool:
    sections = landed(SPEC / "amendments")
    page = SPEC / "SPEC.md"
    shown = page.read_text().count("# §") if page.exists() else 0
    return len(sections) <= 1 and shown <= len(sections) and _whole_ledger()


def _mergeable() -> None:
    for name, hours in (("there", 1), ("evidence", 0)):
        folder = Path(name)
        recorded(Ledger(folder / "ledger"), sealed(folder, bad=hours == 0))
        recorded(Ledger(folder / "ledger"), sealed(folder, hours=2 + hours))
    shutil.rmtree(EVIDENCE / "bundles")
    shutil.rmtree(EVIDENCE / "ledger")


def _merge() -> None:
    merge([Path("there")], EVIDENCE, Against(now=NOW))


WORLDS = (
    World("sealing a bundle", lambda: None, _seal, lambda: len(bundles()) <= 1, lambda: len(bundles()) == 1),
    World(
        "appending to the ledger", lambda: sealed(EVIDENCE), _record, _whole_ledger,
        lambda: fold(LEDGER.read(PLACE)).status is ACTIVE and check(LEDGER, NOW) == (),
    ),
    World(
        "landing a section", _landable, _land, _whole_spec,
        lambda: fold(LEDGER.read(PLACE)).status is DISCHARGED and check_spec(_here()).problems == ()
        and check(LEDGER, NOW + timedelta(hours=1)) == () and not DRAFT.exists(),
    ),
    World(
        "merging evidence", _mergeable, _merge, lambda: _whole_ledger() and len(bundles()) <= 2,
        lambda: len(bundles()) == 2 and check(LEDGER, NOW) == (),
    ),
)  # fmt: skip
