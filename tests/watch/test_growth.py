"""How a witness sees logs grow, and what is done to them besides."""

from __future__ import annotations

import hashlib
from pathlib import Path

from weighbridge.watch.following import Growth


def counted(growth: Growth) -> dict[str, tuple[int, str]]:
    return {one.file: (one.rows, one.sha256) for one in growth.counts()}


def test_rows_are_counted_once_and_anew_in_a_file_that_took_the_place_of_another(tmp_path: Path) -> None:
    growth, log = Growth(run=tmp_path / "run"), tmp_path / "run" / "rank-0" / "steps.jsonl"
    assert list(growth.look(0.0)) == []
    log.parent.mkdir(parents=True)
    log.write_bytes(b"{}\n{}\n")
    assert list(growth.look(1.0)) == []
    assert counted(growth)["rank-0/steps.jsonl"] == (2, hashlib.sha256(b"{}\n{}\n").hexdigest())
    assert list(growth.look(1.1)) == []
    assert counted(growth) == {}
    other = tmp_path / "other"
    other.write_bytes(b"[]\n[]\n[]\n")
    other.rename(log)
    (note,) = growth.look(2.0)
    assert (note.what, note.why.startswith("was replaced")) == ("rank-0/steps.jsonl", True)
    assert counted(growth)["rank-0/steps.jsonl"] == (3, hashlib.sha256(b"[]\n[]\n[]\n").hexdigest())
    log.unlink()
    assert next(growth.look(3.0)).why.startswith("was taken away")


def test_events_and_facts_are_no_rows_of_steps(tmp_path: Path) -> None:
    for name in ("steps.jsonl", "events.jsonl", "run.json"):
        (tmp_path / name).write_text("{}\n{}\n")
    growth = Growth(run=tmp_path)
    assert list(growth.look(0.0)) == []
    assert growth.begun
    assert growth.rows() == {tmp_path / "steps.jsonl": 2}
