"""Read JSON logs, strictly but for a torn last line: a row a line, a run directory with its attempts, or a report."""

import dataclasses
import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from weighbridge.core import Fields, Json, SubjectError, WeighbridgeError, exists, is_file, is_folder, quoted
from weighbridge.core.canonical import loads, sha256, unique
from weighbridge.run_logs.book import moment_of
from weighbridge.run_logs.log_file import NO_STEP, Batch, bad_line, batches, decoded, no_rows, read_whole, several_runs
from weighbridge.run_logs.log_table import EPOCH, STEP, Cells, Log, TableBuilder
from weighbridge.run_logs.run_end import run_end

SCHEMA = "weighbridge.run/v0"
HEAD, STEPS, EVENTS, LAYERS = "run.json", "steps.jsonl", "events.jsonl", "layers.jsonl"
DIAGNOSTICS = "diagnostics.jsonl"  # what was seen inside a model
RUN_FILES = HEAD, STEPS  # one of which makes a folder a run directory
RANK = re.compile(r"rank-(0|[1-9][0-9]{0,6})")
ATTEMPT = re.compile(r"attempt-([1-9][0-9]{0,5})")
OF_ONE_RUN = ("model", "data")  # what differs in no attempt that goes on with the steps of another
OF_EACH = ("attempt", "first_step", "pid", "started")  # and what does by nature
SHOWN = 64  # rank directories that a message lists
MAX_EVENTS = 1_000_000
MAX_BANNER_LINE = 4096
COUNTED = 64  # characters are counted for lines in the time that one is parsed
# What the Trainer of Transformers writes; its default puts the mean of the other losses in the place of a NaN.
TRAINER = "trainer_state.json"
REGULAR = 3  # rows: fewer, and the interval that was asked for says why
TRAINER_STATE = {"log_history", "global_step", "max_steps"}
TRAINER_FILTERED = frozenset({"loss", "train_loss"})
CONFIG, OVER_ALL_WORDS = "config.json", ("ForCausalLM", "LMHeadModel")  # whose loss is that of the next word
_SOMETHING = re.compile(r"\S")
_DECODER = json.JSONDecoder(object_pairs_hook=unique)


def decode(text: str) -> Any:
    """Parse one JSON value in which NaN and the infinities are numbers; a ValueError gives the reason why not."""
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as problem:
        raise ValueError(f"{problem.msg.lower().removesuffix(' at')} at column {problem.colno}") from None
    except RecursionError:
        raise ValueError("nested too deep") from None


def read_jsonl(path: Path, digests: dict[str, str]) -> Log:
    """Read a log of one JSON object a line; refuse with `log-syntax` and the line, or `no-rows`."""
    table, notes = TableBuilder(str(path)), dict[str, int]()
    for rows in _rows(path, digests, notes, "torn_last_line"):
        table.add_mappings(rows)
    if not table.rows:
        raise no_rows(path)
    return Log(table.rows, table.columns, notes=notes)


def _rows(path: Path, digests: dict[str, str], notes: dict[str, int], torn: str) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows of a file in batches; a torn last line is noted by its number."""
    for batch in batches(path, digests):
        rows = mappings(batch, path)
        if not rows and not batch.terminated:
            notes[torn] = batch.first
        yield rows


def mappings(batch: Batch, path: Path) -> list[dict[str, Any]]:
    """Parse the lines of a batch; a last line without its end that does not parse is torn, and left off."""
    scan = _DECODER.scan_once  # type: ignore[attr-defined]  # the decoder without its Python shell: half the time
    try:
        scanned = [scan(line, 0) for line in batch.lines]
    except (StopIteration, ValueError, RecursionError):
        return list(_careful(batch, path))
    if all(type(row) is dict and end == len(line) for (row, end), line in zip(scanned, batch.lines, strict=True)):
        return [row for row, _ in scanned]
    return list(_careful(batch, path))


def _careful(batch: Batch, path: Path) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(batch.lines, batch.first):
        if not line.strip():
            continue
        try:
            row = decode(line)
        except ValueError as problem:
            if not batch.terminated:
                return
            raise bad_line(path, number, f"not a row of JSON: {problem}", line) from None
        if not isinstance(row, dict):
            raise bad_line(path, number, "not a row of JSON: a row must be an object, {…}")
        yield row


def read_run_directory(path: Path, digests: dict[str, str], *, may_be_empty: bool = False) -> Log:
    """Read a run directory (spec/run-directory.md), in which `run.json` and `events.jsonl` may be absent."""
    if not exists(path / STEPS):
        if runs := runs_inside(path):
            ranks = all(name.startswith("rank-") for name in runs)
            what = f"{f'a run of {len(runs)} ranks' if ranks else f'{len(runs)} run directories'}: {', '.join(runs)}"
            remedy = f"bind {'one rank' if ranks else 'one run'} at a time, such as {path / runs[0]}"
            if len(runs) == 1:
                what, remedy = f"a folder with one run in it, {runs[0]}", f"bind {path / runs[0]}"
            raise SubjectError("not-a-run", what, where=str(path), remedy=remedy)
        what = f"a directory without {STEPS}, trainer_state.json or metrics.csv"
        remedy = "bind a run directory that a recorder wrote, or a log file"
        raise SubjectError("not-a-run", what, where=str(path), remedy=remedy)
    if beside := [name for name in runs_inside(path) if RANK.fullmatch(name)]:
        raise several_runs(path, [STEPS, *beside], "bind one of them, or move the ranks into a folder of their own")
    head = read_head(path, digests)
    try:
        log = read_jsonl(path / STEPS, digests)
    except SubjectError as problem:
        if not may_be_empty or problem.code not in NO_STEP:
            raise
        digests[STEPS] = sha256((path / STEPS).read_bytes())
        log = Log(0, {})
    notes = dict[str, int]()
    events = _events(path / EVENTS, digests, notes) if exists(path / EVENTS) else ()
    return of_recorder(dataclasses.replace(log, notes={**log.notes, **notes}), head, events)


def of_recorder(log: Log, head: Fields, events: tuple[Fields, ...]) -> Log:
    """Return the rows of a run directory with what its run.json and its events tell."""
    heads = () if lack_of(head) else (head,)
    return dataclasses.replace(log, recorded=bool(head), heads=heads, facts=head, events=events)


def lack_of(head: Fields) -> str:
    """Return what a run.json lacks to be complete provenance, its commit being all that ran; "" where it is."""
    known = {name: isinstance(head.get(name), str) and head[name] for name in ("commit", "host", "resolved_device")}
    known |= {"schema": head.get("schema") == SCHEMA, "pid": type(pid := head.get("pid")) is int and pid > 0}
    known |= {"started": moment_of(head.get("started")) is not None, "dirty": head.get("dirty") is False}
    lack = next((name for name, there in known.items() if not there), "")
    return lack and ("the tree had changes when it began" if head.get(lack) is True else f"run.json has no {lack}")


def read_attempts(path: Path, digests: dict[str, str]) -> Log:
    """Read a run directory and its attempts: the rows of each stand for those of the earlier ones from its first on.

    Raises SubjectError where an attempt is missing, is one of another run, or goes on with another model or corpus.
    """
    folders = {int(found[1]): at for at in path.glob("attempt-*") if (found := ATTEMPT.fullmatch(at.name))}
    if not folders:
        return read_run_directory(path, digests)
    if missing := next((number for number in range(2, max(folders)) if number not in folders), 0):
        raise _not_joined(path, f"attempt-{missing} is missing, and attempt-{max(folders)} is there", "put it back")
    parts: list[Log] = []
    for at in (path, *(folders[number] for number in sorted(folders))):
        own: dict[str, str] = {}
        parts.append(read_run_directory(at, own, may_be_empty=True))
        digests.update({f"{at.name}/{name}" if at != path else name: digest for name, digest in own.items()})
        runs = [str(part.facts["run"]) for part in parts if "run" in part.facts]
        if runs and runs[-1] != runs[0]:
            what = f"{at.name} is of the run {quoted(runs[-1])}, the first attempt of {quoted(runs[0])}"
            raise _not_joined(path, what, "take it away")
    if not any(part.rows for part in parts):
        raise no_rows(path)
    return joined(parts, path)


def _not_joined(path: Path, what: str, remedy: str) -> SubjectError:
    return SubjectError("attempts", what, where=str(path), remedy=f"{remedy}, or bind one attempt by itself")


def joined(parts: Sequence[Log], path: Path) -> Log:
    """Join the attempts of a run, in their order; refuse where one goes on with another model or corpus."""
    last, before = parts[-1], math.inf
    kept: list[tuple[Log, list[int], float]] = []
    for part in reversed(parts):
        steps = part.columns.get(STEP, Cells(part.rows))
        rows = [row for row in range(part.rows) if before == math.inf or steps.values[row] < before]
        kept.insert(0, (part, rows, before))
        before = min((before, *steps.numbers()))
        other = next((name for name in OF_ONE_RUN if part.facts.get(name) != last.facts.get(name)), "")
        if rows and other:
            what = f"attempt {len(parts) + 1 - len(kept)} and the last one are joined, and their `{other}` differs"
            raise _not_joined(path, what, "record another model or corpus into another directory")
    ends = [run_end(part.facts, part.events, part.rows).ended for part in parts]
    joins = any(rows for _, rows, _ in kept[:-1])  # then the log begins before the first step of the last
    facts = {name: fact for name, fact in last.facts.items() if name != "first_step" or not joins}
    early = ((event, part, end) for part, _, end in kept[:-1] for event in part.events if event.get("event") != "end")
    kept_of = ((event, part) for event, part, end in early if isinstance(step := event.get("step"), int) and step < end)
    events = [{**event, "pid": part.facts.get("pid")} for event, part in kept_of]  # what it found was of that process
    each = [dict(stated(part.facts)) for part in parts]
    names = {name for one in each for name in one if one[name] != {} and name.rpartition(".")[2] not in OF_EACH}
    changed = sorted(name for name in names if any(one.get(name) != each[0].get(name) for one in each))
    notes = {**last.notes, "attempts": len(parts), "attempts_ended": ", ".join(ends)}
    notes |= {"changed_between_attempts": ", ".join(changed)} if changed else {}
    columns = {name: Cells() for part in parts for name in part.columns}
    for name, cells in columns.items():
        for part, rows, _ in kept:
            cells.add_rows(part.columns.get(name) or Cells(part.rows), rows)
    count, given = sum(len(rows) for _, rows, _ in kept), [part for part, rows, _ in kept if rows]
    heads = tuple(head for part in given for head in part.heads) if all(part.heads for part in given) else ()
    more: dict[str, Any] = {"facts": facts, "events": (*events, *last.events), "notes": notes, "heads": heads}
    return dataclasses.replace(last, rows=count, columns=columns, **more)


def stated(facts: Fields, within: str = "") -> Iterator[tuple[str, Json]]:
    """Yield the facts of `run.json`, those of a section with its name before theirs; an empty section is one."""
    for name, value in facts.items():
        if isinstance(value, Mapping) and value:
            yield from stated(value, f"{within}{name}.")
        else:
            yield f"{within}{name}", value


def is_run(folder: Path) -> bool:
    """Return whether a folder is a run directory."""
    return any(exists(folder / name) for name in RUN_FILES)


def runs_inside(path: Path) -> list[str]:
    """List the folders in a folder that are run directories."""
    return sorted({at.parent.name for name in RUN_FILES for at in path.glob(f"*/{name}")})[:SHOWN]


def ranks_inside(path: Path) -> list[Path]:
    """List the folders of ranks in a folder, in their order; none in one that is a run itself."""
    searched = is_folder(path) and not exists(path / STEPS)
    folders = [one for one in path.glob("rank-*") if RANK.fullmatch(one.name)] if searched else []
    return sorted(folders, key=lambda one: int(one.name[5:]))


def read_layers(path: Path, digests: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Return what is logged of tensors, one row a tensor and step; only a last line may be torn."""
    return itertools.chain.from_iterable(_rows(path, digests, {}, "torn_last_line"))


def read_head(folder: Path, digests: dict[str, str]) -> Fields:
    """Read the run.json of a run directory; one without it tells nothing."""
    if not exists(path := folder / HEAD):
        return {}
    try:
        head = loads(read_whole(path, digests, 1 << 20), where=str(path))
    except SubjectError:
        raise
    except WeighbridgeError as problem:
        raise SubjectError("log-syntax", problem.what, where=str(path), remedy="write run.json again") from None
    if not isinstance(head, Mapping):
        raise SubjectError("log-syntax", "run.json must be an object, {…}", where=str(path))
    if head.get("schema") != SCHEMA:
        what = f"schema {str(head.get('schema'))[:60]!r} is not known"
        raise SubjectError("run-schema", what, where=str(path), remedy=f"this version reads {SCHEMA}")
    return head


def _events(path: Path, digests: dict[str, str], notes: dict[str, int]) -> tuple[Fields, ...]:
    """Return the events of a log, a torn last one being noted; an empty log holds none."""
    try:
        events = tuple(itertools.chain.from_iterable(_rows(path, digests, notes, "torn_last_event")))
    except SubjectError as problem:
        if problem.code != "empty-file":
            raise
        return ()
    if len(events) > MAX_EVENTS:
        raise SubjectError("too-large", f"more than {MAX_EVENTS} events", where=str(path))
    return events


def read_report(path: Path, digests: dict[str, str]) -> Log:
    """Read a report whose rows are the longest list of objects with numbers; lines before the JSON are a banner."""
    text = decoded(read_whole(path, digests), path, 1)
    start, document = _document(text, path)
    at, found = _longest(document)
    trainer = isinstance(document, dict) and document.keys() >= TRAINER_STATE
    rows = [row for row in found if not trainer or STEP in row or "loss" in row]  # predictions are of no step
    left_out = len(found) - len(rows)
    if not rows:
        at, rows = _curves(document)
    if not rows:
        what = "nowhere in the JSON is there a list of rows with numbers"
        remedy = "bind a report with a list of one object a step, or a JSONL or CSV log"
        if trainer:
            what = f"no step was logged: logging_steps is {document.get('logging_steps')!r:.20}"
            remedy = "train with logging_steps=1"
        raise SubjectError("no-rows", what, where=str(path), remedy=remedy)
    table = TableBuilder(str(path))
    table.add_mappings(rows)
    counted = {"banner_lines": text.count("\n", 0, start), "predictions_left_out": left_out}
    if trainer and len(rows) < REGULAR and isinstance(every := document.get("logging_steps"), int):
        counted["logging_steps"] = every
    notes: Fields = {"rows_at": at, **{name: count for name, count in counted.items() if count}}
    top = document.items() if isinstance(document, dict) else ()
    facts = {key: item for key, item in top if isinstance(item, (str, int, float, bool))}
    facts |= _vocabulary(path.parent / CONFIG, digests) if trainer and is_file(path.parent / CONFIG) else {}
    losses = [table.columns[name] for name in TRAINER_FILTERED & table.columns.keys()]
    shown = not all(math.isfinite(loss) for cells in losses for loss in cells.numbers())  # then nothing was filtered
    filtered = TRAINER_FILTERED if trainer and not shown else frozenset()
    return Log(table.rows, table.columns, facts=facts, notes=notes, nan_filtered=filtered)


def _vocabulary(config: Path, digests: dict[str, str]) -> dict[str, int]:
    """Return the vocabulary of the model that a Trainer saved beside its state, where its loss is over all of it."""
    try:
        stated = loads(read_whole(config, digests).decode())
    except (ValueError, WeighbridgeError):  # what is wrong with it is said where the model is looked at
        return {}
    words, named = (stated.get("vocab_size"), stated.get("architectures")) if isinstance(stated, dict) else (None, None)
    over_words = isinstance(named, list) and named and str(named[0]).endswith(OVER_ALL_WORDS)
    return {"vocab": words} if isinstance(words, int) and over_words else {}


def _curves(document: Any) -> tuple[str, list[dict[str, Any]]]:
    """Return the epochs of what Keras keeps, a list of numbers for each metric, all of one length."""
    inside = document.get("history") if isinstance(document, dict) else None
    at, curves = ("history", inside) if isinstance(inside, dict) else ("", document)
    lists = [one for one in curves.values() if isinstance(one, list)] if isinstance(curves, dict) else []
    even = lists and len(lists) == len(curves) and len(set(map(len, lists))) == 1
    if not even or not all(type(cell) in (int, float) for one in lists for cell in one):
        return "", []
    epochs = enumerate(zip(*lists, strict=True))
    return at, [{EPOCH: epoch, **dict(zip(curves, cells, strict=True))} for epoch, cells in epochs]


def _document(text: str, path: Path) -> tuple[int, Any]:
    """Find the first line from which all that follows is one JSON value, in time linear in the text."""
    spent, furthest = 0, (-1, "")
    for start in _candidates(text):
        if (broken := _breaks_in_its_line(text, start)) is not None:
            furthest = max(furthest, broken)
            continue
        try:
            document, end = _DECODER.raw_decode(text, start)
            if _SOMETHING.search(text, end) is None:
                return start, document
            problem, reached = "text after the end of the JSON", end
        except json.JSONDecodeError as error:
            problem, reached = error.msg.lower().removesuffix(" at"), error.pos
            spent += reached // COUNTED  # the error counted the lines from the start of the text
        except (ValueError, RecursionError) as error:
            problem, reached = "nested too deep" if isinstance(error, RecursionError) else str(error), len(text)
        furthest = max(furthest, (reached, problem))
        spent += reached - start
        if spent > 2 * len(text):
            break
    at, why = furthest
    if at < 0:
        raise SubjectError("log-syntax", "no line begins a JSON value", where=str(path), remedy="bind a log")
    cut_off = not text[at:].strip(", \t\r\n") or (why.startswith("unterminated") and "\n" not in text[at:].rstrip())
    said = ("one JSON document, cut off here", "write or fetch it whole") if cut_off else (f"not a row of JSON: {why}",)
    raise bad_line(path, text.count("\n", 0, at) + 1, said[0], "", *said[1:])


def _breaks_in_its_line(text: str, start: int) -> tuple[int, str] | None:
    """Return where a line that begins like JSON stops being it, whatever follows; most lines of a banner do."""
    end = text.find("\n", start, start + MAX_BANNER_LINE)
    line = text[start : end if end >= 0 else start + MAX_BANNER_LINE].rstrip()
    try:
        _DECODER.raw_decode(line)
    except json.JSONDecodeError as error:
        torn = error.pos >= len(line) or len(line) >= MAX_BANNER_LINE - 1
        return None if torn else (start + error.pos, error.msg.lower())
    except (ValueError, RecursionError):
        pass
    return None


def _candidates(text: str) -> Iterator[int]:
    start = 0
    while start < len(text):
        if text[start] in "{[":
            yield start
        elif text[start] in " \t\r":
            start += 1
            continue
        start = text.find("\n", start) + 1 or len(text)


def _longest(document: Any) -> tuple[str, list[dict[str, Any]]]:
    """Find the longest list of objects with a number in them, and its path."""
    best: tuple[str, list[dict[str, Any]]] = ("", [])
    waiting: list[tuple[str, Any]] = [("", document)]
    while waiting:
        at, value = waiting.pop()
        longer = isinstance(value, list) and len(value) > len(best[1]) and all(isinstance(row, dict) for row in value)
        if longer and any(type(cell) in (int, float) for row in value for cell in row.values()):
            best = (at, value)
        items: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        inside = [(f"{at}.{key}".lstrip("."), item) for key, item in items if isinstance(item, (dict, list))]
        waiting.extend(reversed(inside))
    return best
