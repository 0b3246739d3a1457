"""The parent's side of the parser children: starts them, gives them files, ends those that take too long."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec
import structlog

import bot
from bot.ci.collect.parse.child import CPU, LENGTH, TOO_MUCH_MEMORY
from bot.ci.collect.parse.contract import Reply, Request
from bot.ci.collect.parser_turns import Turns

WALL = 180.0  # seconds for one file
LEAST_CPU = 0.25  # of that time: a child that got less processor time did not fail because of its file
NICE = 19  # whatever else wants the processor comes first
ERRORS_KEPT = 4096  # bytes kept of what a child wrote before it ended
START = (
    "import sys, json; sys.path[:0] = json.loads(sys.argv[1]); "
    "from bot.ci.collect.parse.child import main; main(int(sys.argv[2]))"
)
KILLED = {  # by signal
    signal.SIGKILL: "the system ended the parser, most likely for want of memory",
    signal.SIGXCPU: f"reading it took too long: over {CPU} s of processor time",
}

log = structlog.get_logger("bot.ci.collect")


@dataclass(kw_only=True)
class _Child:
    process: asyncio.subprocess.Process
    errors: asyncio.Task[str]


class ParserPool:
    """A few parser children, started when needed."""

    def __init__(self, workers: int, *, wall: float = WALL, least_cpu: float = LEAST_CPU) -> None:
        self._turns = Turns(workers)
        self._idle: list[_Child] = []
        self._wall = wall
        self._least_cpu = least_cpu * wall
        self._closed = False

    async def parse(self, request: Request, owner: str = "") -> Reply:
        """Have a file parsed when it is its owner's turn. A child that fails, or is left in the middle, is replaced."""
        async with self._turns.take(owner):
            began = time.monotonic()
            reply = await self._parse(request)
            reply.seconds = time.monotonic() - began
        return reply

    async def _parse(self, request: Request) -> Reply:
        child, before = self._idle.pop() if self._idle else None, 0.0
        kept: _Child | None = None
        try:
            if child is None or child.process.returncode is not None:
                child = await _started()
            before = _cpu(child)
            async with asyncio.timeout(self._wall):
                reply = await _ask(child, request)
            if not reply.ends and not self._closed:
                kept = child
        except TimeoutError:
            reply = self._too_long(before, _cpu(child))
        finally:
            if kept is not None:
                self._idle.append(kept)
            elif child is not None:
                await asyncio.shield(_end(child))
        return reply

    def _too_long(self, before: float, after: float) -> Reply:
        """Return the reply for a file that takes too long, by the child's processor time before and after."""
        if after - before < self._least_cpu:
            return Reply(state="unable", reason="the machine is too busy to read it")
        return Reply(state="broken", reason=f"reading it took too long: over {self._wall:.0f} s")

    async def close(self) -> None:
        """End the children that wait for work; those at work end with what they are at."""
        self._closed = True
        while self._idle:
            await _end(self._idle.pop())


async def _started() -> _Child:
    """Start a child; one that comes up after its caller was cancelled is ended."""
    starting = asyncio.create_task(_start())
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        await asyncio.shield(_end(await starting))
        raise


async def _start() -> _Child:
    paths = [str(Path(bot.__file__).parent.parent), *(path for path in sys.path if path)]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        "-c",
        START,
        json.dumps(list(dict.fromkeys(paths))),
        str(NICE),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={},
        cwd="/",
    )
    return _Child(process=process, errors=asyncio.create_task(_end_of_errors(process)))


async def _ask(child: _Child, request: Request) -> Reply:
    """Return the child's reply; where it ended instead, say how."""
    stdin, stdout = child.process.stdin, child.process.stdout
    assert stdin
    assert stdout
    encoded = msgspec.msgpack.encode(request)
    try:
        stdin.write(LENGTH.pack(len(encoded)) + encoded)
        await stdin.drain()
        head = await stdout.readexactly(LENGTH.size)
        return msgspec.msgpack.decode(await stdout.readexactly(LENGTH.unpack(head)[0]), type=Reply)
    except (asyncio.IncompleteReadError, ConnectionError):
        code = await child.process.wait()
        words = await child.errors
        log.warning("a parser child ended", code=code, words=words[-500:])
        return Reply(state="broken", reason=_why(code, words), ends=True)


def _why(code: int, words: str) -> str:
    """Return for people why a child ended: its exit code, or the signal that ended it, and what it wrote last."""
    if "bad_alloc" in words:
        return TOO_MUCH_MEMORY
    if code < 0:
        return (
            KILLED.get(signal.Signals(-code)) or f"reading it crashed the parser: {signal.strsignal(-code)}"
        )
    error = words.strip().rpartition("\n")[2]
    return f"the parser failed: {error}"[:300] if error else f"the parser ended with exit code {code}"


async def _end_of_errors(process: asyncio.subprocess.Process) -> str:
    """Return the end of what a child writes to standard error."""
    assert process.stderr
    kept = b""
    while piece := await process.stderr.read(ERRORS_KEPT):
        kept = (kept + piece)[-ERRORS_KEPT:]
    return kept.decode("utf-8", "replace")


def _cpu(child: _Child | None) -> float:
    """Return the processor time of a child in seconds; where the system does not say, as if it had been all of it."""
    try:
        stat = Path(f"/proc/{child.process.pid}/stat").read_text() if child else ""
    except OSError:
        return time.monotonic()
    user, system = stat.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


async def _end(child: _Child) -> None:
    with contextlib.suppress(ProcessLookupError):
        child.process.kill()
    await child.process.wait()
    await child.errors
    if child.process.stdin:
        child.process.stdin.close()
