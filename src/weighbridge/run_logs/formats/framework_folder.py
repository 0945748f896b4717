"""Find the log in a folder of a framework: a Trainer's out/, or Lightning's version_N/ and those above it."""

import re
from pathlib import Path

from weighbridge.core import SubjectError, exists, is_file
from weighbridge.run_logs.json_log import TRAINER, read_report
from weighbridge.run_logs.log_file import several_runs

LIGHTNING, SETTINGS, SAVED = "metrics.csv", "hparams.yaml", "checkpoints/*.ckpt"
VERSION = re.compile(r"version_\d+")
CHECKPOINT = re.compile(r"checkpoint-(0|[1-9][0-9]{0,11})")


def checkpoints_in(path: Path) -> list[Path]:
    """List a Trainer's checkpoint-N in a folder, in the order of their steps."""
    return sorted((one for one in path.glob("checkpoint-*") if CHECKPOINT.fullmatch(one.name)), key=_step)


def _step(checkpoint: Path) -> int:
    return int(checkpoint.name.partition("-")[2])


def log_in(path: Path) -> Path | None:
    """Return the log of a folder's one run: a Trainer's newest state, or Lightning's metrics; None where neither is.

    Refuse with `several-runs` what may be two: versions of Lightning, and a state that ends before a checkpoint's.
    """
    own, saved = path / TRAINER, [one / TRAINER for one in checkpoints_in(path) if is_file(one / TRAINER)]
    if is_file(own) and saved and _step(saved[-1].parent) > _ends(own):
        names = [str(one.relative_to(path)) for one in (own, saved[-1])]
        raise several_runs(path, names, "the first ends before the second was saved: bind the one that is meant")
    if is_file(own) or saved:
        return own if is_file(own) else saved[-1]
    versions = sorted([*path.glob(f"version_*/{LIGHTNING}"), *path.glob(f"*/version_*/{LIGHTNING}")])
    if len(versions) > 1:
        raise several_runs(path, [str(one.relative_to(path)) for one in versions])
    return next(filter(is_file, [path / LIGHTNING, *versions]), None)


def version_in(path: Path) -> Path | None:
    """Return the one version of Lightning's that a folder is or holds, whatever it logged to; refuse two."""
    versions = [one for one in (path, *path.glob("version_*"), *path.glob("*/version_*")) if _is_version(one)]
    if len(versions) > 1:
        raise several_runs(path, [str(one.relative_to(path)) for one in versions])
    return next(iter(versions), None)


def _is_version(folder: Path) -> bool:
    name = VERSION.fullmatch(folder.absolute().name)
    return sum(map(bool, (name, exists(folder / SETTINGS), next(folder.glob(SAVED), None)))) > 1  # one may be chance


def _ends(state: Path) -> int:
    try:
        step = read_report(state, {}).facts.get("global_step")
    except SubjectError:  # whoever reads it says what is wrong with it
        step = None
    return step if isinstance(step, int) else 1 << 62
