"""`weighbridge report --live`: the page of a run that goes on, for this machine alone, and drawn anew as rows come."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest
from tests.cli.conftest import Cli, cli

from weighbridge.core.pseudonym import key_file, pseudonym
from weighbridge.page import live
from weighbridge.page.live import Drawing

__all__ = ["cli"]  # a fixture
CONTRACT = """
weighbridge: contract/v0
id: a-run
version: 1.0.0
title: A run
owner: us
subjects:
  run: {kind: run}
gates:
  - {id: GATE-METRICS, title: Every step has a loss, kind: step-metrics, subjects: {run: run}, with: {required: [loss]}}
  - {id: GATE-LEARNT, title: The loss fell, kind: learning-progress, subjects: {run: run}, when: {"has:loss:20": true}}
  - {id: GATE-LOW, title: No loss is above 9, kind: series-bound, subjects: {run: run}, with: {at_most: 9}}
"""


class Growing:
    """A run directory that a process of this host goes on writing."""

    def __init__(self, folder: Path, pid: int) -> None:
        self.folder, self.steps, self.drawn = folder, 0, random.Random(1)
        folder.mkdir()
        key = key_file(os.environ)
        assert key is not None
        facts = {"schema": "weighbridge.run/v0", "pid": pid, "host": pseudonym("host", socket.gethostname(), key)}
        (folder / "run.json").write_text(json.dumps(facts))

    def grow(self, rows: int, **cells: float) -> None:
        with (self.folder / "steps.jsonl").open("a") as file:
            for step in range(self.steps, self.steps + rows):
                loss = 2 / (1 + step / 30) + self.drawn.gauss(0, 0.02)
                file.write(json.dumps({"step": step, "loss": loss, **cells}) + "\n")
        self.steps += rows

    def end(self) -> None:
        (self.folder / "events.jsonl").write_text(json.dumps({"event": "end", "steps": self.steps, "by": ""}) + "\n")


@pytest.fixture
def run(tmp_path: Path) -> Growing:
    (tmp_path / "a-run.yaml").write_text(CONTRACT)
    return Growing(tmp_path / "a", os.getpid())


@pytest.fixture
def drawing(run: Growing, monkeypatch: pytest.MonkeyPatch) -> Drawing:
    monkeypatch.setattr(live, "GAP", 0.0)
    monkeypatch.setattr(live, "TIMES", 0.0)
    return drawing_of(run)


def drawing_of(run: Growing) -> Drawing:
    contract = str(run.folder.parent / "a-run.yaml")
    return Drawing((contract,), {}, run.folder, None)


def text(drawing: Drawing) -> str:
    return drawing.refresh().data.decode()


def word(page: str, gate: str) -> str:
    found = re.search(rf'<span aria-hidden="true">.</span> ([A-Z ]+)</span> <a href="#finding-\d+">{gate}<', page)
    assert found, gate
    return found[1]


def test_what_may_yet_come_is_not_judged_yet_and_what_failed_failed(run: Growing, drawing: Drawing) -> None:
    run.grow(10)
    page = text(drawing)
    assert "Live: drawn from 10 rows." in page
    assert {word(page, gate) for gate in ("GATE-METRICS", "GATE-LEARNT", "GATE-LOW")} == {"NOT JUDGED YET"}
    assert "Not known yet. Of 3 gates: 3 not judged yet." in page
    run.grow(1, loss=11.0)
    page = text(drawing)
    assert (word(page, "GATE-LOW"), word(page, "GATE-LEARNT")) == ("FAIL", "NOT JUDGED YET")
    assert "No. Of 3 gates: 1 failed, 2 not judged yet." in page


def test_passes_beside_what_is_not_judged_yet_are_no_yes(run: Growing, drawing: Drawing) -> None:
    contract = run.folder.parent / "a-run.yaml"
    window = "with: {at_most: 9, steps: [0, 9], min_samples: 10}"
    kept = [line for line in CONTRACT.splitlines() if "GATE-METRICS" not in line]
    contract.write_text("\n".join(kept).replace("with: {at_most: 9}", window))
    run.grow(15)
    page = text(drawing)
    found = {gate: word(page, gate) for gate in ("GATE-LOW", "GATE-LEARNT")}
    assert found == {"GATE-LOW": "PASS", "GATE-LEARNT": "NOT JUDGED YET"}
    assert "Not known yet. Of 2 gates: 1 passed, 1 not judged yet." in page
    assert "<title>…" in page


def test_a_run_that_ended_is_judged_and_one_whose_process_is_gone_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "a-run.yaml").write_text(CONTRACT)
    ends = Growing(tmp_path / "a", os.getpid())
    ends.grow(120)
    ends.end()
    page = text(drawing_of(ends))
    assert {word(page, gate) for gate in ("GATE-METRICS", "GATE-LEARNT", "GATE-LOW")} == {"PASS"}
    assert "NOT JUDGED YET" not in page
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        killed = Growing(tmp_path / "b", child.pid)
    killed.grow(120)
    page = text(drawing_of(killed))
    assert word(page, "GATE-LEARNT") == "BLOCKED"
    assert "NOT JUDGED YET" not in page


def test_it_is_drawn_anew_where_files_changed_or_the_process_went_and_else_stays(
    run: Growing, drawing: Drawing, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.grow(10)
    first, data = drawing.refresh().digest, drawing.data
    assert drawing.refresh().data is data
    assert f'data-digest="{first}"' in text(drawing)
    assert hashlib.sha256(data.replace(first.encode(), b"", 1)).hexdigest() == first
    run.grow(1)
    assert "drawn from 11 rows" in text(drawing)
    second = drawing.digest
    assert second != first
    monkeypatch.setattr("weighbridge.run_logs.run_end._process", lambda *_: "killed")
    assert drawing.refresh().digest != second
    assert "NOT JUDGED YET" not in drawing.data.decode()


def test_between_two_drawings_lie_two_seconds(run: Growing, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("weighbridge.page.live.time.monotonic", lambda: now[0])
    run.grow(10)
    drawing = drawing_of(run)
    first = drawing.refresh().digest
    run.grow(1)
    now[0] = 101.9
    assert drawing.refresh().digest == first
    now[0] = 102.0
    assert drawing.refresh().digest != first


def test_a_run_without_rows_yet_and_one_that_is_torn_are_said_and_drawn_once_they_can_be(
    run: Growing, drawing: Drawing
) -> None:
    page = text(drawing)
    assert ("Live: nothing is known yet." in page, "Not known." in page) == (True, True)
    assert "badge" not in page.partition("<main>")[2]
    run.grow(10)
    assert "drawn from 10 rows" in text(drawing)
    steps = run.folder / "steps.jsonl"
    whole = steps.read_text()
    steps.write_text(whole.replace('{"step": 5', '{"step" 5'))
    page = text(drawing)
    assert ("Live: nothing is known yet." in page, "log-syntax" in page, "NOT JUDGED YET" in page) == (
        True,
        True,
        False,
    )
    steps.write_text(whole + '{"step": 10, "lo')  # the line that is being written
    assert "drawn from 10 rows" in text(drawing)
    steps.unlink()
    (run.folder / "run.json").unlink()
    assert "Live: nothing is known yet." in text(drawing)


def test_a_name_cannot_stand_where_the_digest_goes(tmp_path: Path) -> None:
    (tmp_path / "a-run.yaml").write_text(CONTRACT.replace("title: A run", "title: 'data-digest=\"\"'"))
    run = Growing(tmp_path / 'data-digest=""', os.getpid())
    run.grow(10)
    drawing = drawing_of(run)
    assert text(drawing).count(f'id="live" role="status" data-digest="{drawing.digest}"') == 1


def test_the_policy_allows_both_scripts_and_asking_the_own_server_alone(run: Growing, drawing: Drawing) -> None:
    run.grow(10)
    page = text(drawing)
    found = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert found
    rules = dict(rule.split(" ", 1) for rule in found[1].replace("&#39;", "'").split("; "))
    scripts = [one.encode() for one in re.findall("<script>(.*?)</script>", page, re.DOTALL)]
    digests = [f"'sha256-{base64.b64encode(hashlib.sha256(one).digest()).decode()}'" for one in scripts]
    assert (rules["default-src"], rules["connect-src"], rules["img-src"]) == ("'none'", "'self'", "data:")
    assert rules["script-src"].split() == digests
    assert len(digests) == 2


def test_a_saved_page_asks_nobody(run: Growing, cli: Cli) -> None:
    run.grow(10)
    cli("verify", run.folder.parent / "a-run.yaml", "--subject", f"run={run.folder}", "--evidence", "kept")
    (bundle,) = Path("kept/bundles").iterdir()
    assert cli("report", bundle).code == 0
    saved = Path("report.html").read_text(encoding="utf-8")
    assert not re.search(r"connect-src|fetch\(|id=\"live\"|NOT JUDGED YET", saved)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--live",), 2, "live-of"),
        (("--live", "--run", "a", "-o", "x.html"), 2, "live-of"),
        (("--run", "a", "--port", "8000"), 2, "live-of"),
        (("--run", "a", "--contract", "a-run.yaml"), 2, "live-of"),
        (("--run", "a"), 2, "missing-argument"),
        (("--live", "--run", "nowhere"), 4, "not-found"),
        (("--live", "--run", "a", "--contract", "builtin:checkpoint-import"), 2, "unknown-subject"),
        (("--live", "--run", "a", "--contract", "nowhere.yaml"), 2, "nowhere.yaml"),
        (("--live", "--run", "a", "--port", "70000"), 2, "70000"),
    ],
)
def test_what_cannot_be_served_is_refused(run: Growing, cli: Cli, words: tuple[str, ...], code: int, said: str) -> None:
    run.grow(1)
    ended = cli("report", *words)
    assert (ended.code, said in ended.err) == (code, True), ended.err
    assert not Path("x.html").exists()


def test_a_run_is_bound_to_itself_by_no_contract(run: Growing, cli: Cli) -> None:
    run.grow(40)
    two = """
  other: {kind: run}
gates:
  - {id: GATE-SAME, title: A replay is the same, kind: replay-determinism, subjects: {run: run, replay: other}}
"""
    path = run.folder.parent / "two.yaml"
    path.write_text(CONTRACT.partition("\ngates:")[0] + two)
    page = Drawing((str(path),), {}, run.folder, None)
    assert "GATE-SAME" in text(page)
    assert "badge PASS" not in text(page).partition("<main>")[2]
    path.write_text(path.read_text().replace("run: run,", "run: first,").replace("  run: {", "  first: {"))
    ended = cli("report", "--live", "--run", run.folder, "--contract", path)
    assert (ended.code, "unknown-subject" in ended.err) == (2, True), ended.err


def test_a_port_that_is_taken_is_said(run: Growing, cli: Cli) -> None:
    run.grow(1)
    with socket.create_server(("127.0.0.1", 0)) as other:
        ended = cli("report", "--live", "--run", run.folder, "--port", other.getsockname()[1])
    assert (ended.code, "cannot be had" in ended.err) == (2, True), ended.err


@pytest.fixture
def served(run: Growing) -> Iterator[tuple[subprocess.Popen[str], int]]:
    run.grow(10)
    contract = str(run.folder.parent / "a-run.yaml")
    command = [
        sys.executable,
        "-m",
        "weighbridge",
        "report",
        "--live",
        "--run",
        str(run.folder),
        "--contract",
        contract,
    ]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/", child.stdout.readline().strip())
        assert found
        yield child, int(found[1])
    finally:
        child.kill()
        child.communicate()


def asked(port: int, path: str, method: str = "GET", **headers: str) -> tuple[int, str, str]:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read().decode(), answer.headers.get("Cache-Control", "")


def test_a_browser_gets_the_page_its_digest_and_news_and_nobody_else_anything(
    run: Growing, served: tuple[subprocess.Popen[str], int]
) -> None:
    child, port = served
    status, page, cached = asked(port, "/")
    _, digest, _ = asked(port, "/digest")
    assert (status, cached, f'data-digest="{digest}"' in page) == (200, "no-store", True)
    assert asked(port, "/", Host=f"localhost:{port}")[0] == 200
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", f"127.0.0.1.evil.example:{port}", ""):
        assert asked(port, "/", Host=host)[0] == 403, host
        assert asked(port, "/digest", Host=host)[0] == 403, host
    for path in ("/index.html", "/digest/", "/?a", "/../a/run.json", "/run.json"):
        assert asked(port, path)[0] == 404, path
    for method in ("POST", "HEAD", "PUT", "OPTIONS"):
        assert asked(port, "/", method)[0] == 501, method
    with socket.socket() as other:  # another address of this machine
        assert other.connect_ex(("127.0.0.2", port))
    idle = socket.create_connection(("127.0.0.1", port))  # as browsers open one ahead
    run.grow(5)
    run.end()
    while asked(port, "/digest")[1] == digest:
        time.sleep(0.2)
    page = asked(port, "/")[1]
    assert ("drawn from 15 rows" in page, word(page, "GATE-LOW")) == (True, "PASS")
    child.send_signal(signal.SIGINT)
    assert child.wait() == 0
    idle.close()
