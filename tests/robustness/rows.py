"""What evidence, ledger and spec must withstand: each row tries many cases and counts what became of them."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.robustness import crowds, damage, faults
from tests.robustness.apart import Tally, Told
from tests.robustness.worlds import WORLDS, World

ROOT = Path(__file__).parents[2]
Try = Callable[[Path, bool], Tally]


@dataclass(frozen=True)
class Row:
    """One row: `cases` tries them in an empty folder, all of them or, for the daily tests, a sample."""

    name: str
    says: str
    cases: Try
    mounts: bool = False


@dataclass(frozen=True)
class Elsewhere:
    """A row that other tests hold: those of these files whose names hold one of the words."""

    name: str
    says: str
    files: tuple[str, ...]
    words: str = ""

    def cases(self, folder: Path, _whole: bool) -> Tally:
        """Run the tests in a process of their own, and count them."""
        report = folder / "report.xml"
        argv = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", f"--junitxml={report}"]
        argv += ["-k", self.words] if self.words else []
        argv += [f"tests/{name}" for name in self.files]
        paths = os.pathsep.join(map(str, (ROOT, ROOT / "src")))
        try:
            subprocess.run(argv, cwd=ROOT, env=os.environ | {"PYTHONPATH": paths}, timeout=1800, check=False,
                           stdout=subprocess.DEVNULL)  # fmt: skip
        except subprocess.TimeoutExpired:
            return Tally({Told.HUNG: 1})
        return _counted(report)


def _counted(report: Path) -> Tally:
    """Count the cases of the tests in a JUnit report; of one that failed, none was held."""
    tally = Tally({Told.HELD: 0, Told.UNDETECTED: 0})
    for test in ET.parse(report).getroot().iter("testcase"):
        cases = next((int(one.get("value", 1)) for one in test.iter("property") if one.get("name") == "cases"), 1)
        failed = test.find("failure") is not None or test.find("error") is not None
        if failed or test.find("skipped") is None:
            tally[Told.UNDETECTED if failed else Told.HELD] += cases
    return tally


def _faults(number: int, every: int) -> Try:
    def cases(folder: Path, whole: bool) -> Tally:
        return _all(lambda world, at: faults.every_effect(world, at, number, 1 if whole else every), folder)

    return cases


def _all(work: Callable[[World, Path], Tally], folder: Path) -> Tally:
    return sum((work(world, folder / str(number)) for number, world in enumerate(WORLDS)), Tally())


ROWS: tuple[Row | Elsewhere, ...] = (
    Row("R1", "the process dies at each effect on the disk of sealing, appending, landing, merging",
        _faults(faults.CRASH, 83)),
    Row("R1", "the disk is full (ENOSPC) at each effect", _faults(errno.ENOSPC, 89)),
    Row("R1", "the disk fails (EIO) at each effect", _faults(errno.EIO, 97)),
    Row("R2", "a real disk with a page more room each time", mounts=True,
        cases=lambda folder, whole: _all(lambda w, at: faults.full_disks(w, at, 4 if whole else 24), folder)),
    Row("R3", "SIGKILL at any moment, each time on what the last has left",
        lambda folder, whole: _all(lambda w, at: faults.storm(w, at, 256 if whole else 4), folder)),
    Row("R4", "8 processes append to one gate",
        lambda folder, whole: crowds.appended_at_once(folder, 8, 60 if whole else 3)),
    Row("R4", "16 processes append to one gate",
        lambda folder, whole: crowds.appended_at_once(folder, 16, 8 if whole else 2)),
    Row("R5", "8 processes append to one gate without a lock",
        lambda folder, whole: crowds.appended_without_lock(folder, 8, 20 if whole else 6)),
    Elsewhere("R6", "git merges two branches, or two clones, that both appended or landed",
           ("ledger/test_store.py", "cli/test_amend.py", "cli/test_ledger.py"),
           "merge_without or merge_into or same_entry or two_branches or two_clones or two_machines or on_one_branch"),
    Row("R7", "every byte of a bundle flipped",
        lambda folder, whole: damage.flipped_bundle(folder, 1 if whole else 97)),
    Row("R7", "every byte of a packed bundle flipped",
        lambda folder, whole: damage.flipped_archive(folder, 1 if whole else 211)),
    Row("R7", "every byte of a zip and of a gzipped tar flipped: seen, or nothing changed",
        lambda folder, whole: damage.flipped_foreign_archive(folder, 1 if whole else 97)),
    Row("R7", "every byte of a signature flipped, against its signer's key",
        lambda folder, whole: damage.flipped_signature(folder, 1 if whole else 29)),
    Row("R7", "every byte of the ledger's entries flipped",
        lambda folder, whole: damage.flipped_ledger(folder, 1 if whole else 29)),
    Row("R7", "every byte of a landed section flipped",
        lambda folder, whole: damage.flipped_section(folder, 1 if whole else 11)),
    Row("R7", "pieces of files cut, doubled, swapped, shifted, zeroed",
        lambda folder, whole: damage.mangled(folder, 5_000 if whole else 60)),
    Row("R8", "each file deleted, one added beside each", lambda folder, _: damage.gone_or_added(folder)),
    Elsewhere("R8", "the newest entry deleted, or the ledger moved, against an older commit",
           ("ledger/test_store.py", "cli/test_ledger.py"),
           "taken_away_is_seen or deleted_newest or moved_to_lose or renamed_file or frozen"),
    Row("R9", "a link, pipe, socket, folder, CRLF or LFS pointer in the place of each file",
        lambda folder, _: damage.of_another_sort(folder)),
    Row("R10", "hostile zips, tars and gzips", lambda folder, _: damage.hostile_archives(folder)),
    Elsewhere("R11", "hostile YAML", ("contract/test_strict_yaml.py",)),
    Elsewhere("R12", "hostile JSON, and values of other forms", ("core/test_canonical.py", "evidence/test_codec.py")),
    Elsewhere("R13", "hostile safetensors", ("formats/test_safetensors_file.py",)),
    Elsewhere("R14", "hostile GGUF", ("formats/test_gguf_file.py",)),
    Elsewhere("R15", "hostile PyTorch files and pickles",
           ("formats/test_torch_hostile.py", "formats/test_dcp_hostile.py", "formats/test_zip_archive.py")),
    Elsewhere("R16", "hostile NumPy files", ("formats/test_npy_file.py",)),
    Elsewhere("R17", "every pattern that reads foreign text is bounded", ("evidence/test_redact.py",), "bound"),
    Elsewhere("R18", "clocks that go backwards, differ, or stand in the future",
           ("ledger", "cli/test_ledger.py", "evidence/test_review.py"),
           "clocks or the_future or moment_has or as_of_shows or began_before or keeps_the_age or its_gate"),
    Elsewhere("R19", "judged again under another locale, time zone and hash seed, in an empty environment",
           ("evidence/test_review.py", "test_wheel.py"), "hash_seed or again_elsewhere"),
    Elsewhere("R20", "judges with weakened clauses",
           ("clauses/test_weakened_clauses.py", "gates/test_weakened_judges.py")),
    Elsewhere("R21", "secrets planted in arguments, environment, logs, names, comments, metadata",
           ("evidence/test_planted_secrets.py", "evidence/test_redact.py", "evidence/test_bundle.py"),
           "planted_secret or two_secrets or holds_a_secret or secret_inside"),
    Elsewhere("R22", "a subject rewritten while it is read, or between measuring and digesting",
           ("evidence/test_disk.py", "cli/test_evidence.py", "views/test_checkpoint.py", "formats/test_gguf_file.py",
         "formats/test_pieces.py", "storage/test_remote_file.py"),
        "rewritten or grows or set_back or written_to or cut_short_while or changes_while or replaced_while"),
    Row("R24", "a read-only disk, a folder of another, the strictest umask", mounts=True,
        cases=lambda folder, _: _all(faults.unwritable, folder)),
    Elsewhere("R24", "names that are no text, print lines, or are too long",
           ("cli/test_evidence.py", "cli/test_bad_input.py", "cli/test_ledger.py"),
           "no_text or lines_of_their_own or too_long or not_unicode or encoding"),
)  # fmt: skip
