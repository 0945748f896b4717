"""A run is live where a witness's book stands for the very files that were read, and reported everywhere else."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.books import HEAD, kept, typed, watched
from tests.cases import each

from weighbridge.core.canonical import dumps
from weighbridge.core.model import Origin
from weighbridge.core.pseudonym import key_file, seal_of
from weighbridge.evidence.redact import own_key
from weighbridge.quantities.book_lines import BOOK, SCHEMA, SEAL, Line, Release, Sample, Stop
from weighbridge.run_logs.book import read_book, utc
from weighbridge.views.run import open_rank, open_ranks, open_run

STOP = Stop(gate="GATE-LEARNED", instance="default", code="not-finite", step=59, confirmed=True)
OTHER = Sample(processes=2, cpu_s=0.0, rss_kib=1, device_memory_mib={}, device_files={"4712": ("/dev/nvidia0",)})
UNSURE = Stop(gate="GATE-LEARNED", instance="default", code="not-finite", confirmed=False)
Damage = Callable[[Path], object]


def test_a_run_that_a_witness_saw_is_live_and_names_its_book(tmp_path: Path) -> None:
    view = open_run(watched(typed(tmp_path / "a")))
    assert (view.origin, view.unwitnessed, len(view.book)) == (Origin.LIVE, "", 64)
    assert view.started == HEAD["started"]


@each(
    "first, second, why",
    [
        ("2026-04-26T12:00:00.200Z", "2026-04-26T12:00:00.300Z", ""),
        ("2026-04-26T11:40:00.000Z", "2026-04-26T12:00:00.300Z", "a row is of 2026-04-26T11:40:00.000Z, when the "),
        ("2026-04-26T12:00:00.200Z", "2026-04-28T12:00:00.000Z", "a row is of 2026-04-28T12:00:00.000Z, when the "),
    ],
)
def test_rows_of_a_time_at_which_the_witness_watched_nothing_are_reported(
    first: str, second: str, why: str, tmp_path: Path
) -> None:
    steps = typed(tmp_path / "a") / "steps.jsonl"
    times = [dt.datetime.fromisoformat(one).timestamp() for one in (first, second)]
    steps.write_text("".join(f'{{"step": {n}, "time": {at}}}\n' for n, at in enumerate(times)))
    view = open_run(watched(tmp_path / "a"))
    assert view.unwitnessed == (why and f"{why}witness watched no run")
    assert view.origin is (Origin.REPORTED if why else Origin.LIVE)


@pytest.mark.parametrize(("seconds", "said"), [(0.5, "1970-01-01T00:00:00.500Z"), (1e300, "1e+300 s")])
def test_a_time_that_no_calendar_holds_is_said_in_seconds(seconds: float, said: str) -> None:
    assert utc(seconds) == said


def test_a_typed_run_is_reported_and_says_what_would_make_it_live(tmp_path: Path) -> None:
    view = open_run(typed(tmp_path / "a"))
    assert (view.origin, view.book) == (Origin.REPORTED, "")
    assert view.unwitnessed == f"no book of a witness: start it with `weighbridge watch {tmp_path}/a -- CMD`"
    assert view.started == HEAD["started"]  # or its FAIL would seem as late as its verify


def edited(name: str, more: str = '{"step": 60, "loss": 1.0}\n') -> Damage:
    def edit(run: Path) -> None:
        with (run / name).open("a") as file:
            file.write(more)

    return edit


def cut(name: str, keep: Callable[[bytes], bytes]) -> Damage:
    return lambda run: (kept(run) / name).write_bytes(keep((kept(run) / name).read_bytes()))


def resealed(run: Path, data: bytes) -> None:
    (kept(run) / BOOK).write_bytes(data)
    (kept(run) / SEAL).write_text(seal_of(data, SCHEMA, own_key()))


def linked(run: Path) -> None:
    moved = kept(run).rename(run.with_name("elsewhere"))
    kept(run).symlink_to(moved)


def linked_file(run: Path) -> None:
    book = kept(run) / BOOK
    book.rename(run.with_name("book"))
    book.symlink_to(run.with_name("book"))


def a_file_for_the_folder(run: Path) -> None:
    shutil.rmtree(kept(run))
    kept(run).write_text("a book")


def a_folder_for_the_book(run: Path) -> None:
    (kept(run) / BOOK).unlink()
    (kept(run) / BOOK).mkdir()


def of_another(run: Path) -> None:
    shutil.rmtree(kept(run))
    shutil.copytree(kept(watched(typed(run.with_name("other"), pid=4712), {"pids": (4712,)})), kept(run))


def layered(run: Path) -> None:
    (run / "attempt-2").mkdir()
    for file in ("run.json", "steps.jsonl"):
        shutil.copy(run / file, run / "attempt-2")


DAMAGES: list[tuple[str, Damage, str]] = [
    ("a row after the end", edited("steps.jsonl"), "steps.jsonl is no longer as what the witness saw"),
    ("an event after the end", edited("events.jsonl", '{"event": "wrap"}\n'), "events.jsonl is no longer"),
    ("an attempt that came later", layered, "attempt-2/run.json is not what the witness saw"),
    ("one bit of the book", cut(BOOK, lambda data: data.replace(b'"cpu_s":8', b'"cpu_s":9')), "its seal is of another"),
    ("one byte that breaks a line", cut(BOOK, lambda data: b"x" + data[1:]), "line 1 is none of a book"),
    ("a torn book", cut(BOOK, lambda data: data[:-9]), "its last line is torn"),
    ("no end", cut(BOOK, lambda data: data[: data.rindex(b"\n", 0, -1) + 1]), "it has no end of segment 1"),
    ("an empty book", cut(BOOK, lambda _: b""), "its last line is torn"),
    ("no seal", lambda run: (kept(run) / SEAL).unlink(), "seal no such file"),
    ("an empty seal", cut(SEAL, lambda _: b""), "its seal is of another key"),
    ("no book in the folder", lambda run: (kept(run) / BOOK).unlink(), "book.jsonl no such file"),
    ("a folder for the book", a_folder_for_the_book, "a directory"),
    ("a file for the folder", a_file_for_the_folder, "a link, or no folder"),
    ("a link for the folder", linked, "a link, or no folder"),
    ("a link for the book", linked_file, "a link, or no folder"),
    ("the book of another run", of_another, "run.json is no longer as what the witness saw"),
    ("lines twice over", lambda run: resealed(run, 2 * (kept(run) / BOOK).read_bytes()), "segment 1 does not follow"),
    ("nested without end", lambda run: resealed(run, b"[" * 10**6 + b"\n"), "nested too deep"),
    ("a line that is no mapping", lambda run: resealed(run, b"[1]\n"), "line 1 is none of a book"),
    ("of another version", lambda run: resealed(run, (kept(run) / BOOK).read_bytes().replace(b"/v0", b"/v9")), "/v9"),
]


@pytest.mark.parametrize(("damage", "why"), [one[1:] for one in DAMAGES], ids=[one[0] for one in DAMAGES])
def test_a_book_that_does_not_stand_for_these_files_leaves_the_run_reported(
    damage: Damage, why: str, tmp_path: Path
) -> None:
    run = watched(typed(tmp_path / "a"))
    damage(run)
    view = open_run(run)
    assert (view.origin, view.book) == (Origin.REPORTED, "")
    assert why in view.unwitnessed


SEEN: list[tuple[str, dict[str, Any], str]] = [
    ("another process recorded", {"pids": (4712,)}, "the witness saw no process 4711"),
    ("it began before the witness", {"times": {"begin": "2026-04-26T12:00:00.001Z"}}, "saw no process 4711"),
    ("it began after the witness", {"times": {"end": "2026-04-26T11:59:59.999Z"}}, "saw no process 4711"),
    ("the command failed", {"code": 1}, "ended with code 1"),
    ("the command was killed", {"code": None, "signal": 9}, "ended with signal 9"),
    ("on CUDA where no device was open", {"cuda": False}, "run.json says cuda:0, and the witness saw no process of it"),
    ("on CUDA by another process", {"pids": (4711, 4712), "cuda": False, "more": [OTHER]}, "hold an accelerator open"),
    ("the tree had changes", {"dirty": True}, "the tree had changes"),
    ("no repository", {"dirty": None}, "the tree is not known"),
    ("another commit", {"commit": "decade0"}, "run.json says commit c0ffee0, the witness saw decade0"),
    ("a stop that was not confirmed", {"code": None, "signal": 15, "more": [UNSURE]}, "ended with signal 15"),
]  # fmt: skip


@pytest.mark.parametrize(("seen", "why"), [one[1:] for one in SEEN], ids=[one[0] for one in SEEN])
def test_what_a_witness_saw_otherwise_leaves_the_run_reported(seen: dict[str, Any], why: str, tmp_path: Path) -> None:
    view = open_run(watched(typed(tmp_path / "a"), seen))
    assert view.origin is Origin.REPORTED
    assert why in view.unwitnessed


def test_a_run_on_the_cpu_needs_no_accelerator(tmp_path: Path) -> None:
    run = typed(tmp_path / "a", requested_device="cpu", resolved_device="cpu")
    assert open_run(watched(run, {"cuda": False})).origin is Origin.LIVE


def test_a_run_that_its_witness_stopped_was_seen_to_its_end(tmp_path: Path) -> None:
    assert open_run(watched(typed(tmp_path / "a"), {"code": None, "signal": 15, "more": [STOP]})).origin is Origin.LIVE


def test_a_seal_of_another_key_or_without_one_here_does_not_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "its seal is of another key" in open_run(watched(typed(tmp_path / "a"), key=b"k" * 32)).unwitnessed
    run = watched(typed(tmp_path / "b"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert "your own key is not on this machine" in open_run(run).unwitnessed
    assert not (tmp_path / "state").exists()  # reading makes no key
    key = key_file({"XDG_STATE_HOME": str(tmp_path / "state")})
    assert key is not None
    key.parent.mkdir(parents=True)
    key.write_text("no key")
    assert "your own key is not on this machine" in open_run(run).unwitnessed


def test_a_run_without_provenance_stays_a_fixture_whatever_book_lies_beside_it(tmp_path: Path) -> None:
    assert open_run(watched(typed(tmp_path / "a", host=""))).origin is Origin.FIXTURE


def test_a_resumed_run_is_live_where_every_segment_has_an_end_and_one_without_makes_the_whole_reported(
    tmp_path: Path,
) -> None:
    run = typed(tmp_path / "a")
    (run / "attempt-2").mkdir()
    head = HEAD | {"pid": 5000, "started": "2026-04-26T13:00:00.000Z"}
    (run / "attempt-2" / "run.json").write_text(json.dumps(head))
    (run / "attempt-2" / "steps.jsonl").write_text('{"step": 60, "loss": 2.0}\n')
    again = {"pids": (5000,), "times": {"begin": "2026-04-26T12:59:59.000Z", "end": "2026-04-26T13:00:09.000Z"}}
    watched(run, {"code": 1}, again)
    assert open_run(run).origin is Origin.LIVE
    assert open_run(run / "attempt-2").origin is Origin.LIVE  # by the book of the whole
    book = (kept(run) / BOOK).read_bytes()
    resealed(run, book[: book.rindex(b"\n", 0, -1) + 1])
    assert "it has no end of segment 2" in open_run(run).unwitnessed
    resealed(run, book[: book.index(b"\n", book.index(b'"kind":"end"')) + 1])
    assert "ended with code 1" in open_run(run).unwitnessed  # the second segment was cut off, and the book sealed again


def test_a_release_behind_the_end_leaves_the_run_witnessed(tmp_path: Path) -> None:
    run = watched(typed(tmp_path / "a"), {"code": None, "signal": 15, "more": [STOP]})
    line = Line(time="2026-04-26T12:09:00.000Z", monotonic_s=99.0, segment=1, body=Release(reason="known", stop={}))
    resealed(run, (kept(run) / BOOK).read_bytes() + dumps(line.plain()))
    assert open_run(run).origin is Origin.LIVE


def ranked(folder: Path) -> list[Path]:
    return [typed(folder / f"rank-{rank}", pid=4711 + rank) for rank in range(2)]


def test_ranks_are_live_where_one_witness_saw_all_of_their_processes(tmp_path: Path) -> None:
    ranks = ranked(tmp_path / "a")
    assert open_ranks(ranks).origin is Origin.REPORTED
    assert f"weighbridge watch {tmp_path}/a --" in open_ranks(ranks).unwitnessed
    watched(tmp_path / "a", {"pids": (4711, 4712)})
    assert [open_ranks(ranks).origin, open_rank(ranks[1]).origin] == [Origin.LIVE] * 2
    shutil.rmtree(kept(tmp_path / "a"))
    watched(tmp_path / "a", {"pids": (4711,)})  # rank 1 was not in the tree
    whole = open_ranks(ranks)
    assert (whole.origin, whole.book) == (Origin.REPORTED, "")
    assert "the witness saw no process 4712" in whole.unwitnessed


def test_ranks_with_books_of_their_own_were_seen_as_a_whole_by_none(tmp_path: Path) -> None:
    ranks = [watched(rank, {"pids": (4711 + at,)}) for at, rank in enumerate(ranked(tmp_path / "a"))]
    assert open_rank(ranks[1]).origin is Origin.LIVE
    assert open_ranks(ranks).unwitnessed == "no one witness saw all of its ranks"


def test_layers_that_were_edited_after_the_end_are_seen_when_they_are_read(tmp_path: Path) -> None:
    run = typed(tmp_path / "a")
    (run / "layers.jsonl").write_text('{"step": 0, "name": "w", "grad_norm": 1.0}\n')
    watched(run)
    edited("layers.jsonl")(run)
    view = open_run(run)
    view.digests["layers.jsonl"] = "0" * 64  # type: ignore[index] # as a verifier that reads them notes it
    assert view.origin is Origin.REPORTED


def test_a_link_to_a_run_of_ranks_leads_to_the_book_of_all(tmp_path: Path) -> None:
    ranked(tmp_path / "a")
    watched(tmp_path / "a", {"pids": (4711, 4712)})
    (tmp_path / "latest").symlink_to(tmp_path / "a")
    assert open_ranks([tmp_path / "latest" / f"rank-{rank}" for rank in range(2)]).origin is Origin.LIVE


def test_a_link_to_a_run_leads_to_the_book_of_that_run(tmp_path: Path) -> None:
    run = watched(typed(tmp_path / "a"))
    (tmp_path / "latest").symlink_to(run)
    assert open_run(tmp_path / "latest").origin is Origin.LIVE
    typed(tmp_path / "b")
    shutil.copytree(kept(run), kept(tmp_path / "b"))
    (tmp_path / "newest").symlink_to(tmp_path / "b")
    assert open_run(tmp_path / "newest").origin is Origin.LIVE  # the same bytes are the same run, wherever they lie


def test_a_run_is_bound_from_inside_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(watched(typed(tmp_path / "a")))
    assert open_run(".").origin is Origin.LIVE
    assert read_book(Path()).why == ""
