"""Serve bytes over HTTP on this machine, well or badly, as servers do."""

from __future__ import annotations

import http.server
import re
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Site:
    """What a server serves and how: `files` by path without query; `asked` is every request, with its range."""

    files: dict[str, bytes] = field(default_factory=dict)
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    ranges: bool = True
    tags: bool = True
    status: dict[str, int] = field(default_factory=dict)
    breaks: int = 0  # how many answers end in the middle
    hangs: threading.Event | None = None  # answers to GET wait for it
    password: str = ""
    withheld: int = 0  # bytes left out at the end of each range
    claims: int | None = None  # the size told to HEAD, whatever it is
    endless: str = ""  # how much more than was asked for comes: `chunked`, `until closed`, `told` or `gzip`
    sent: int = 0  # bytes of endless answers that somebody took
    before: Callable[[str, str], None] = lambda _method, _path: None
    url: str = ""

    def gets(self, path: str) -> list[str]:
        return [asked for method, where, asked in self.asked if (method, where.partition("?")[0]) == ("GET", path)]


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    site: Site

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the name is the base class's
        pass

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def answer(self) -> None:
        site, path = self.site, self.path.partition("?")[0]
        asked = self.headers.get("Range", "")
        site.asked.append((self.command, self.path, asked))
        site.before(self.command, path)
        status = site.status.get(path, 200 if path in site.files else 404)
        if site.password and site.password not in (self.headers.get("Authorization") or self.path):
            status = 403
        if status != 200:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if self.command == "GET" and site.hangs is not None:
            site.hangs.wait(20)
        self.send(site.files[path], asked)

    def send(self, data: bytes, asked: str) -> None:
        site = self.site
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", asked) if site.ranges else None
        body = data[int(match[1]) : int(match[2]) + 1 - site.withheld] if match else data
        self.send_response(206 if match else 200)
        if match:
            self.send_header("Content-Range", f"bytes {match[1]}-{int(match[1]) + len(body) - 1}/{len(data)}")
        if site.endless and self.command == "GET":
            self.go_on(site.endless)
            return
        stated = len(body) if self.command == "GET" or site.claims is None else site.claims
        self.send_header("Content-Length", str(stated))
        if site.tags:
            self.send_header("ETag", f'"{hash(data):x}"')
        self.end_headers()
        if self.command == "HEAD":
            return
        if site.breaks:
            site.breaks -= 1
            self.wfile.write(body[: len(body) // 2])
            self.close_connection = True
            self.connection.close()
            return
        self.wfile.write(body)

    def go_on(self, how: str) -> None:
        """Send until nobody takes it any more, or 1 GiB."""
        block, most = bytes(1 << 20), 1 << 30
        if how == "gzip":
            self.send_header("Content-Encoding", "gzip")
            packer = zlib.compressobj(9, zlib.DEFLATED, 31)
            block = b"".join((*(packer.compress(block) for _ in range(256)), packer.flush()))
        long = {"told": most, "gzip": len(block)}.get(how)
        length = (
            ("Transfer-Encoding", "chunked") if how == "chunked" else ("Content-Length", str(long)) if long else None
        )
        self.send_header(*(length or ("Connection", "close")))
        self.end_headers()
        self.close_connection = True
        while self.site.sent < (long or most):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(block), block) if how == "chunked" else block)
            self.site.sent += len(block)


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a client that left, or of a connection broken on purpose."""


@contextmanager
def serving(**files: bytes) -> Iterator[Site]:
    """Serve `files` under `/m/`; more may be added while it runs."""
    site = Site(files={f"/m/{name}": data for name, data in files.items()})
    server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"site": site}))
    site.url = f"http://127.0.0.1:{server.server_address[1]}/m"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield site
    finally:
        if site.hangs is not None:
            site.hangs.set()
        server.shutdown()
        server.server_close()
        thread.join()
