"""Load on a server from a program that is not Python: load.c, compiled when it is first needed.

Without a C compiler, or elsewhere than on Linux, the generator in load.py does the same, as well as Python can.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.support import load
from benchmarks.support.load import signature_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT = Path(__file__).parent.parent.parent
SOURCE = Path(__file__).with_name("load.c")
IN_PYTHON = (sys.executable, "-m", "benchmarks.support.generator")
WEBHOOKS = "/api/github/webhooks"
NO_ID = "00000000-0000-4000-8000-000000000000"  # replaced by one of its own in each request that is sent
CONNECTIONS = 32
PATIENCE = 60.0  # seconds it may take longer than it was told to


def webhook(event: str, body: bytes) -> bytes:
    """Return the request of a delivery, signed."""
    return posted(
        WEBHOOKS,
        body,
        {
            "User-Agent": "GitHub-Hookshot/bench",
            "X-GitHub-Event": event,
            "X-GitHub-Delivery": NO_ID,
            "X-Hub-Signature-256": f"sha256={signature_of(body)}",
        },
    )


def posted(path: str, body: bytes, headers: dict[str, str]) -> bytes:
    """Return a request with a JSON body."""
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body


def viewed(path: str) -> bytes:
    """Return the request of a page."""
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: identity\r\n\r\n".encode()


class Running:
    """A load that was started on 127.0.0.1: so many seconds of requests, at most `count` of them where it is not 0.

    Connections are kept busy; with a `rate` so many requests a second are due instead, spread evenly, and an answer's
    time counts from when its request was due. Requests are sent in their order; after the last comes the first again.
    """

    def __init__(
        self,
        port: int,
        requests: Iterable[bytes],
        *,
        seconds: float,
        rate: float = 0.0,
        count: int = 0,
        connections: int = CONNECTIONS,
        core: int | None = None,
    ) -> None:
        self._seconds = seconds
        pinned = ["taskset", "-c", str(core)] if core is not None and shutil.which("taskset") else []
        with contextlib.ExitStack() as files:
            if hasattr(os, "memfd_create"):  # no disk is kept busy with it
                file = files.enter_context(os.fdopen(os.memfd_create("requests"), "wb"))
                passed, name = (file.fileno(),), f"/proc/self/fd/{file.fileno()}"
            else:
                file = files.enter_context(tempfile.NamedTemporaryFile())
                passed, name = (), file.name
            for request in requests:
                file.write(struct.pack("<I", len(request)) + request)
            file.flush()
            words = [name, str(port), str(connections), str(seconds), str(count), str(rate)]
            self._process = subprocess.Popen(
                [*pinned, *program(), *words], stdout=subprocess.PIPE, text=True, cwd=ROOT, pass_fds=passed
            )
            self._files = files.pop_all()

    def result(self) -> dict:
        """Wait for the end; returns answers, per_second, statuses, errors and times in milliseconds."""
        with self._files, self._process:
            try:
                out, _ = self._process.communicate(timeout=self._seconds + PATIENCE)
            except subprocess.TimeoutExpired:
                self._process.kill()
                raise
        if self._process.returncode:
            raise RuntimeError("the load generator failed: see above")
        return json.loads(out)


def run(port: int, requests: Iterable[bytes], **options) -> dict:
    """Return what a load came to; raises SystemExit where the server did not take all of it."""
    return complete(Running(port, requests, **options).result())


def complete(found: dict) -> dict:
    if found["errors"] or set(found["statuses"]) - {"200", "202"}:
        raise SystemExit(f"the server did not take everything: {found}")
    return found


@functools.cache
def program() -> tuple[str, ...]:
    """Return the command of the generator: compiled, or in Python where that is not possible."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    why = "no C compiler: install one, for example with `apt-get install gcc`"
    if sys.platform != "linux":
        why = "load.c needs Linux"
    elif compiler:
        compiled = Path(tempfile.mkdtemp(prefix="ootbot-load-")) / "load"
        done = subprocess.run(
            [compiler, "-std=c11", "-O2", "-o", str(compiled), str(SOURCE)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if not done.returncode:
            return (str(compiled),)
        why = f"{compiler} cannot compile load.c: {done.stderr.strip()[:500]}"
    print(f"warning: {why}. A generator in Python takes its place, and may be the limit", file=sys.stderr)
    return IN_PYTHON


def _requests(path: str) -> Iterator[bytes]:
    data, at = Path(path).read_bytes(), 0
    while at < len(data):
        (length,) = struct.unpack_from("<I", data, at)
        yield data[at + 4 : at + 4 + length]
        at += 4 + length


class Prepared:
    """The requests of a file, over and over, as load.c sends them."""

    def __init__(self, path: str, count: int) -> None:
        self._requests = itertools.cycle(list(_requests(path)))
        self._left = count or None
        self._prefix = os.urandom(4).hex()
        self._made = 0

    def next(self) -> bytes | None:
        if self._left == self._made:
            return None
        self._made += 1
        fresh = f"{self._prefix}-0000-4000-8000-{self._made:012x}"
        return next(self._requests).replace(NO_ID.encode(), fresh.encode(), 1)


def main(words: list[str]) -> None:
    """Do as load.c does, with the same arguments."""
    path, port, connections, seconds, count, rate = words
    requests = Prepared(path, int(count))
    going = load.Load(
        requests, connections=int(connections), seconds=float(seconds), rate=float(rate) or None
    )
    print(json.dumps(asyncio.run(going.run("127.0.0.1", int(port)))))


if __name__ == "__main__":
    main(sys.argv[1:])
