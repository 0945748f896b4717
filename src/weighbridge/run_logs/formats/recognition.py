"""Find out what a run was logged to, by its bytes where its name does not say it, and read it."""

import dataclasses
import re
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TypeAlias

from weighbridge.core import FAULTS, SubjectError, WeighbridgeError, exists, is_file, is_folder
from weighbridge.core.plugins import Brought
from weighbridge.run_logs.formats import console, trackio_database
from weighbridge.run_logs.formats.csv_log import read_csv
from weighbridge.run_logs.formats.epoch_folder import PATTERN as EPOCHS
from weighbridge.run_logs.formats.epoch_folder import read_epochs
from weighbridge.run_logs.formats.framework_folder import log_in, version_in
from weighbridge.run_logs.formats.mlflow_run import read_mlflow, runs_in
from weighbridge.run_logs.formats.mllog import MARK, read_mllog
from weighbridge.run_logs.formats.record_files import SIGN, event_files, is_events, read_events, read_wandb
from weighbridge.run_logs.json_log import HEAD, STEPS, is_run, read_attempts, read_jsonl, read_report, runs_inside
from weighbridge.run_logs.log_file import GZIP, UTF_16, bad_line, batches, open_regular, several_runs, suffix
from weighbridge.run_logs.log_table import NUMBER, Log, LogFormat
from weighbridge.storage.mapped_file import is_open_folder

Read: TypeAlias = Callable[[Path, dict[str, str]], Log]
SUFFIXES: Mapping[str, Read] = {".csv": read_csv, ".tsv": read_csv, ".jsonl": read_jsonl, ".ndjson": read_jsonl}
BROUGHT: Brought[LogFormat] = Brought("reader of run logs", [*(ending[1:] for ending in SUFFIXES), "json"])
EVERY_STEP = "train with log_every_n_steps=1 (it is 50 by default), and self.log the loss"
TELL = "tell whoever wrote that reader"
LOOKED_AT = 1 << 16
TEXTS = (*SUFFIXES, ".log")  # that a log may lie in, whatever its name
WEIGHTS = (".safetensors", ".gguf", ".ckpt", ".pt", ".pth", ".bin", ".onnx", ".npz", ".distcp", ".h5", ".apr")
ELSEWHERE = dict.fromkeys(WEIGHTS, "bind a checkpoint as one, or look at it with weighbridge inspect")
ELSEWHERE |= dict.fromkeys((".yaml", ".yml"), "check a contract with weighbridge lint; verify takes it first")
HISTORY = "wandb-history.jsonl"
NOT_THIS = ("log-syntax", "column-name", "not-utf8", "no-rows", "line-too-long")
SOURCE = re.compile(r"[=;{}\"']|^\s*(?:#|@|import |from |def |class |if |for |while |return |print)|[:(]\s*$")
FORMATS = (
    "a recorder's run directory, JSONL (.jsonl, .ndjson), CSV (.csv, .tsv; nvidia-smi's too), a JSON report (.json; "
    "trainer_state.json and Keras's history too), TensorBoard event files, MLflow's folder of a run, a W&B run or "
    "wandb-history.jsonl, trackio's database, a folder of *.metadata.json, MLPerf's :::MLLOG lines, the console of {}; "
    "and any text, by the subject's `lines:`"
)


def read_log(path: Path, digests: dict[str, str], lines: str = "") -> Log:
    """Read a log of any format; `lines` is the pattern of a text's rows. Refuse with `unknown-format`."""
    if lines:
        return console.read_lines(path, digests, lines)
    if is_open_folder(path):
        of_folder, at = reader_inside(path) or reader_of_rest(path) or (read_attempts, path)
        return of_folder(at, digests)
    read = SUFFIXES.get(suffix(path))
    brought = BROUGHT.get(path.suffix[1:]) if read is None and path.suffix not in ("", ".json", ".gz") else None
    if brought is not None:
        read = partial(_read_brought, brought.read)
    return (read or _by_content)(path, digests)


def reader_inside(path: Path) -> tuple[Read, Path] | None:
    """Return what reads a folder that is no recorder's, by what lies in it, and the one file to read, or the folder."""
    if exists(path / STEPS) or exists(path / HEAD):
        if not exists(path / HEAD) and (beside := log_in(path)):  # no recorder's, so that either may be meant
            raise several_runs(path, [STEPS, str(beside.relative_to(path))])
        return None
    wandb = [*path.glob("*.wandb"), *path.glob("*run-*-*/*.wandb")]
    if len(wandb) > 1:
        raise several_runs(path, [file.name for file in wandb])
    if wandb or (wandb := [*path.glob(HISTORY), *path.glob(f"files/{HISTORY}")]):
        return read_jsonl if wandb[0].name == HISTORY else read_wandb, wandb[0]
    if runs_in(path):
        return read_mlflow, path
    if (log := log_in(path)) is not None:
        return partial(_read_inside, path), log
    if event_files(path):
        return read_events, path
    return (read_epochs, path) if next(path.glob(EPOCHS), None) else None


def reader_of_rest(path: Path) -> tuple[Read, Path] | None:
    """Return what reads the one text in a folder that is no run by its form; refuse several, or Lightning's of none."""
    if is_run(path) or runs_inside(path):
        return None
    texts = sorted(one for one in path.iterdir() if suffix(one) in TEXTS and is_file(one))
    if len(texts) > 1:
        raise several_runs(path, [one.name for one in texts])
    if not texts and (version := version_in(path)) is not None:
        what = "no step was logged: Lightning wrote no metrics.csv"
        raise SubjectError("no-rows", what, where=str(version), remedy=EVERY_STEP)
    return (partial(_read_inside, path), texts[0]) if texts else None


def _read_inside(folder: Path, log: Path, digests: dict[str, str]) -> Log:
    """Read the log in a folder, and note which file it is."""
    own: dict[str, str] = {}
    found = read_log(log, own)
    name = log.relative_to(folder).as_posix()
    digests[name] = own[log.name]
    return dataclasses.replace(found, notes={**found.notes, "log": name})


def is_log(path: Path) -> bool:
    """Return whether a folder, or a file that is no text, is what one run or more were logged to, and no checkpoint."""
    if is_folder(path):
        weights = any(one.name.endswith(WEIGHTS) for one in path.iterdir())
        try:
            return not weights and (reader_inside(path) or reader_of_rest(path)) is not None
        except SubjectError:  # several, or none that has a step: whoever reads it says so
            return True
    with open_regular(path) as file:
        head = file.read(LOOKED_AT)
    if head.startswith(GZIP):
        try:
            inside = zlib.decompressobj(31).decompress(head, LOOKED_AT)
        except zlib.error:
            return False
        return b"\0" not in inside or inside.startswith(UTF_16)
    return binary_reader(head) is not None or head.startswith(UTF_16)


def binary_reader(head: bytes) -> Read | None:
    """Return what reads a file of these first bytes; None where it is a text."""
    signs = ((SIGN, read_wandb), (trackio_database.SIGN, trackio_database.read_trackio))
    known = next((read for sign, read in signs if head.startswith(sign)), None)
    return known or (read_events if is_events(head) else None)


def _read_brought(read: Read, path: Path, digests: dict[str, str]) -> Log:
    try:
        log = read(path, digests)
    except WeighbridgeError:
        raise
    except FAULTS as error:  # somebody else's code may raise anything
        what = f"the reader of {path.suffix} logs raised {type(error).__name__}: {error}"
        raise SubjectError("reader-raised", what, where=str(path), remedy=TELL) from None
    if type(log) is not Log or path.name not in digests:
        what = f"the reader of {path.suffix} logs returned no Log, or did not digest what it read"
        raise SubjectError("reader-raised", what, where=str(path), remedy=TELL)
    return log


def _by_content(path: Path, digests: dict[str, str]) -> Log:
    """Read a log whose name does not say what it is; refuse with `unknown-format` where it is none that is read."""
    with open_regular(path) as file:
        binary = binary_reader(file.read(LOOKED_AT))
    if binary is not None:
        return binary(path, digests)
    # A text is looked at in its first block; a console is known by its first row, which may stand behind much else.
    try:
        first = next(iter(batches(path, {}))).lines
    except SubjectError as problem:
        raise (problem if problem.code not in NOT_THIS else _unknown(path, problem.what)) from None
    text = [line.rstrip() for line in first if line.strip()]
    if len(text) > 1 and text[1].startswith("{") and text[0].startswith("{") and text[0].endswith("}"):
        return read_jsonl(path, digests)
    if suffix(path) == ".json":
        return read_report(path, digests)
    if any(line.lstrip().startswith(("{", "[")) for line in text):
        try:
            return read_report(path, digests)
        except SubjectError as problem:
            if problem.code not in (*NOT_THIS, "too-large"):
                raise
    try:
        return _text(path, digests)
    except SubjectError as problem:
        errors = (bad_line(path, at, "", line) for at, line in enumerate(first, 1) if problem.code == "unknown-format")
        raise next((error for error in errors if error.what), problem) from None


def _text(path: Path, digests: dict[str, str]) -> Log:
    """Read MLPerf's lines, a console, or a table; refuse with `unknown-format` what has no row of any."""
    try:
        everything = chain.from_iterable(batch.lines for batch in batches(path, {}))
        readers = (read_mllog if MARK in line else console.reader_of(line) for line in everything)
        read = next(filter(None, readers), None)
        log = Log(0, {}) if read else read_csv(path, digests)
    except SubjectError as problem:
        if problem.code not in NOT_THIS:
            raise
        why = "its first line is no header" if problem.code == "column-name" else f"{problem.what} at {problem.where}"
        raise _unknown(path, why) from None
    if read:
        return read(path, digests)
    if not any(NUMBER in cells.state for cells in log.columns.values()):
        raise _unknown(path, "no column of it holds a number")
    if log.rows < 2 or any(SOURCE.search(name) for name in log.columns):
        raise _unknown(path, "no row of training stands in it")
    return log


def _unknown(path: Path, why: str) -> SubjectError:
    what, known = f"this is no log of a format that is read ({why})", ", ".join(one.name for one in console.programs())
    remedy = ELSEWHERE.get(path.suffix, f"bind one of these: {FORMATS.format(known)}")
    return SubjectError("unknown-format", what, where=str(path), remedy=remedy)
