"""The page of a run that goes on, served to this machine alone, and drawn anew where its files changed."""

import contextlib
import dataclasses
import re
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingTCPServer
from typing import Any

from weighbridge.contract.load import LoadedContract
from weighbridge.core import Outcome, SubjectKind, UsageError, WeighbridgeError, exists, sha256
from weighbridge.evaluation.verification import VerifyRequest, load_all, verify
from weighbridge.page.one_file import UNDRAWN, page
from weighbridge.page.sources import Judged, Sources, sources
from weighbridge.quantities.facts import ENDED
from weighbridge.report import TOO_FEW
from weighbridge.run_logs.run_end import GOING, UNKNOWN, run_end
from weighbridge.views.run import RunView, open_run

ADDRESS = "127.0.0.1"
GAP, TIMES = 2.0, 3.0  # seconds between two drawings, and at least so many times as long as the last took
WAITING = {*TOO_FEW, "not-ended", "unknown-steps", "few-probes"}
ENOUGH = re.compile(r"has:.+:\d+")  # a condition that more rows may make true


class Drawing:
    """A run under its contracts as one page, drawn when it is asked for and the run's files are other ones."""

    def __init__(self, contracts: Sequence[str], params: Mapping[str, str], run: Path, base: Path | None) -> None:
        if not exists(run):
            open_run(run)  # which says so
        subjects = tuple(f"{name}={run}" for name in _bound(load_all(contracts, params)))
        asked: Any = {"contracts": tuple(contracts), "params": params, "subjects": subjects, "ledger": Path()}
        self._asked, self._run, self._base = asked, run, base
        self._view: RunView | None = None
        self._state: object = None
        self._not_before = 0.0
        self._lock = threading.Lock()
        self.data, self.digest = b"", ""

    def refresh(self) -> "Drawing":
        """Draw anew what changed, unless it was drawn just now."""
        with self._lock:
            began = time.monotonic()
            if began >= self._not_before and ((files := self._files()), self._ended()) != self._state:
                data = self._drawn()
                self.digest = sha256(data)
                self.data = data.replace(UNDRAWN, UNDRAWN.replace(b'""', f'"{self.digest}"'.encode()), 1)
                self._state, ended = (files, self._ended()), time.monotonic()
                self._not_before = ended + max(GAP, TIMES * (ended - began))
        return self

    def _files(self) -> tuple[tuple[int, int, int], ...]:
        found = []
        for path in (self._run, *sorted(self._run.rglob("*"))):
            with contextlib.suppress(OSError):
                state = path.stat()
                found.append((state.st_ino, state.st_size, state.st_mtime_ns))
        return tuple(found)

    def _ended(self) -> str:
        """Return how the run that was drawn has ended by now: where it is killed, no file tells."""
        return run_end(self._view.facts, self._view.events, self._view.rows).ended if self._view else ""

    def _drawn(self) -> bytes:
        given = Sources(bundles=(), judged=(), run_name=self._run.name)
        with tempfile.TemporaryDirectory() as folder:
            try:
                self._view = view = open_run(self._run)
                results = verify(VerifyRequest(**self._asked, evidence=Path(folder)), lambda _: None)
                kept = sources([one.bundle.path for one in results if one.bundle], None, self._base)
                judged = tuple(dataclasses.replace(one, waits=_waits(one)) for one in kept.judged)
                given = dataclasses.replace(kept, run=view, run_name=self._run.name, judged=judged)
                note = f"Live: drawn from {view.rows} rows. No bundle of it is kept: `weighbridge verify` seals one."
            except WeighbridgeError as problem:
                note = f"Live: nothing is known yet. {problem}"
            return page(given, note)


def _bound(loaded: Sequence[LoadedContract]) -> set[str]:
    """Return which subjects are the run: of each contract the one without a path, of several the one called `run`."""
    bound, others = set[str](), set[str]()
    for one in loaded:
        runs = {name for name, decl in one.contract.subjects.items() if decl.kind is SubjectKind.RUN}
        free = {name for name in runs if not (one.contract.subjects[name].path or one.contract.subjects[name].for_each)}
        mine = free if len(free) == 1 else free & {"run"}
        bound, others = bound | mine, others | (runs - mine)
    if not bound or bound & others:  # a run beside itself is always the same
        what = "no subject, or not one alone, of these contracts is the run"
        raise UsageError("unknown-subject", what, remedy="call it `run`, and give any other one a path")
    return bound


def _waits(one: Judged) -> bool:
    """Return whether what a gate lacks may come while its run goes on."""
    finding = one.row.finding
    ended: Any = finding.facts.get(ENDED)
    if ended is None or ended["value"] not in (GOING, UNKNOWN):
        return False
    if one.outcome is Outcome.NOT_APPLICABLE:
        return any(ENOUGH.fullmatch(name) and not fact["value"] for name, fact in dict[str, Any](finding.facts).items())
    return one.outcome is Outcome.BLOCKED and finding.verdict.code in WAITING


class _Answer(BaseHTTPRequestHandler):
    server: "_Server"
    timeout = 10

    def do_GET(self) -> None:
        found = {"/": ("text/html; charset=utf-8", "data"), "/digest": ("text/plain", "digest")}.get(self.path)
        if self.headers.get("Host") not in self.server.names:  # a name that somebody leads to this address
            self.send_error(403)
        elif found is None:
            self.send_error(404)
        else:
            value = getattr(self.server.drawing.refresh(), found[1])
            data = value.encode() if isinstance(value, str) else value
            self.send_response(200)
            headers = {"Content-Type": found[0], "Content-Length": str(len(data)), "Cache-Control": "no-store"}
            headers |= {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "frame-ancestors 'none'"}
            for name, text in headers.items():
                self.send_header(name, text)
            self.end_headers()
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Log nothing: the terminal is the person's."""


class _Server(ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True

    def __init__(self, port: int, drawing: "Drawing") -> None:
        super().__init__((ADDRESS, port), _Answer)
        self.drawing, self.port = drawing, self.server_address[1]
        self.names = {f"{name}:{self.port}" for name in (ADDRESS, "localhost")}


def serve(drawing: "Drawing", port: int, say: Callable[[str], None]) -> None:
    """Serve the page until Ctrl-C, and say where."""
    drawing.refresh()
    try:
        server = _Server(port, drawing)
    except (OSError, OverflowError) as problem:
        what, remedy = f"port {port} cannot be had: {problem}", "leave --port out, and one that is free is taken"
        raise UsageError("port", what, remedy=remedy) from None
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts what runs in the background without it
    with server:
        say(f"http://{ADDRESS}:{server.port}/")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            say("")
