"""Children that parse, whose turn it is to use them, and the folder for files in between."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import secrets
import shutil
import signal
import sys
import threading
import time
from collections import OrderedDict, deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import structlog

import bot
from bot.context import Resource
from bot.core.errors import NotYet
from bot.evidence.collect.parse.child import CPU, LENGTH, TOO_MUCH_MEMORY
from bot.evidence.collect.parse.contract import Reply, Request
from bot.github.download import Downloads
from bot.jobs.settings import CollectSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from bot.context import Context
    from bot.core.clock import Clock

LOCK = "lock"  # the file in a process's folder that is locked
NEW = "new-"  # begins the name of a folder that has no lock yet
STALE = 3600  # seconds after which a folder without a lock is left from a crash
SHARE_BURST = 600.0  # seconds of parsing that a repository may use at once
SHARE = 0.5  # of the children's time, after that
FILE_SECONDS = 2.0  # seconds that a file is expected to take
OWNERS_MOST = 10_000
WALL = 180.0  # seconds for one file
LEAST_CPU = 0.25  # of that time: a child that got less processor time did not fail because of its file
NICE = 19  # whatever else wants the processor comes first
ERRORS_KEPT = 4096  # bytes kept of what a child wrote before it ended
START = (
    "import sys, json; sys.path[:0] = json.loads(sys.argv[1]); "
    "from bot.evidence.collect.parse.child import main; main(int(sys.argv[2]))"
)
KILLED = {  # by signal
    signal.SIGKILL: "the system ended the parser, most likely for want of memory",
    signal.SIGXCPU: f"reading it took too long: over {CPU} s of processor time",
}

log = structlog.get_logger("bot.evidence.collect")
LEAST_FREE = 2 * 1024 * 1024 * 1024  # bytes on DATA_DIR's disk: below, deliveries need what is left


@dataclass(kw_only=True)
class _OwnerTime:
    left: float  # seconds
    at: float  # seconds, when that was computed
    next_at: float = 0.0  # when the next task that was put off comes again


@dataclass(kw_only=True)
class _Child:
    process: asyncio.subprocess.Process
    errors: asyncio.Task[str]


class ProcessFolder:
    """A folder for this process, beside those of other processes."""

    def __init__(self, parent: Path) -> None:
        self._parent = parent
        self._making = threading.Lock()
        self._own: Path | None = None
        self._lock: int | None = None  # a descriptor

    def make(self) -> Path:
        """Return a new folder of ours."""
        with self._making:
            own = self._own or self._make_own()
        made = own / secrets.token_hex(8)
        made.mkdir(mode=0o700)
        return made

    def delete_left(self) -> None:
        """Delete the folders of processes that are gone."""
        for path in self._others():
            if _is_left(path):
                shutil.rmtree(path, ignore_errors=True)

    def close(self) -> None:
        """Delete our folder."""
        if self._own is not None and self._lock is not None:
            shutil.rmtree(self._own, ignore_errors=True)
            os.close(self._lock)
            self._own = self._lock = None

    def _make_own(self) -> Path:
        name = secrets.token_hex(8)
        made = self._parent / f"{NEW}{name}"
        made.mkdir(parents=True, mode=0o700)
        self._lock = os.open(made / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with contextlib.suppress(OSError):  # of a file system without locks: what is left there stays
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._own = made.rename(self._parent / name)
        self.delete_left()
        return self._own

    def _others(self) -> Iterator[Path]:
        with contextlib.suppress(OSError):
            yield from (path for path in self._parent.iterdir() if path != self._own)


class Turns:
    """Gives out turns: waiting owners take turns, however many files each of them has."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @contextlib.asynccontextmanager
    async def take(self, owner: str) -> AsyncIterator[None]:
        """Wait for a turn, and have it until the end."""
        if self._free:
            self._free -= 1
        else:
            await self._wait(owner)
        try:
            yield
        finally:
            self._free += 1
            self._pass_on()

    async def _wait(self, owner: str) -> None:
        granted = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append(granted)
        try:
            await granted
        except asyncio.CancelledError:
            if not granted.cancelled():  # it was granted in the same moment
                self._free += 1
                self._pass_on()
            elif granted in (waiting := self._waiting.get(owner, deque())):
                waiting.remove(granted)
                if not waiting:
                    del self._waiting[owner]
            raise

    def _pass_on(self) -> None:
        while self._free and self._waiting:
            owner, waiting = self._waiting.popitem(last=False)
            granted = waiting.popleft()
            if waiting:
                self._waiting[owner] = waiting  # behind the others
            self._free -= 1
            granted.set_result(None)


class TimeShares:
    """How much of the children's time each repository has left; a hostile file may take two minutes."""

    def __init__(self, clock: Clock, workers: int) -> None:
        self._clock = clock
        self._rate = SHARE * workers
        self._accounts: OrderedDict[str, _OwnerTime] = OrderedDict()

    def check(self, owner: str) -> None:
        """Raise NotYet where a repository has used up its share: its tasks are retried one after the other."""
        account, now = self._account(owner), self._clock.now() / 1000
        if account.left > 0:
            return
        soonest = now + (FILE_SECONDS - account.left) / self._rate
        account.next_at = max(account.next_at + FILE_SECONDS / self._rate, soonest)
        raise NotYet("others' files are read first: its own took long", after=account.next_at - now)

    def spend(self, owner: str, seconds: float) -> None:
        """Count the time that reading a file took."""
        self._account(owner).left -= seconds

    def _account(self, owner: str) -> _OwnerTime:
        now = self._clock.now() / 1000
        account = self._accounts.setdefault(owner, _OwnerTime(left=SHARE_BURST, at=now))
        account.left = min(account.left + max(now - account.at, 0) * self._rate, SHARE_BURST)
        account.at = now
        self._accounts.move_to_end(owner)
        if len(self._accounts) > OWNERS_MOST:
            self._accounts.popitem(last=False)
        return account


class ParserPool:
    """A few parser children, started when needed."""

    def __init__(self, workers: int, *, wall: float = WALL, least_cpu: float = LEAST_CPU) -> None:
        self._turns = Turns(workers)
        self._idle: list[_Child] = []
        self._wall = wall
        self._least_cpu = least_cpu * wall
        self._closed = False

    async def parse(self, request: Request, owner: str = "") -> Reply:
        """Parse a file when it is its owner's turn. A child that fails, or is abandoned midway, is replaced."""
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
                reply = await _ask_child(child, request)
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
        """End the idle children; busy ones end with their present file."""
        self._closed = True
        while self._idle:
            await _end(self._idle.pop())


class Workspace:
    """Downloads and parser children of one process, and its temporary files."""

    def __init__(self, context: Context) -> None:
        settings = context.settings
        self.downloads = Downloads(
            api_url=settings.github_api_url, own_port=settings.port, proxy=settings.proxy
        )
        workers = settings.of(CollectSettings).ci_workers
        self.parsers = ParserPool(workers)
        self.shares = TimeShares(context.clock, workers)  # of the parsers' time, by repository
        self._folders = ProcessFolder(settings.data_dir / "tmp")
        self._data_dir = settings.data_dir

    @contextlib.asynccontextmanager
    async def folder(self) -> AsyncIterator[Path]:
        """Yield an empty folder that is deleted afterwards."""
        made = await asyncio.to_thread(self._folders.make)
        try:
            yield made
        finally:
            await asyncio.to_thread(shutil.rmtree, made, ignore_errors=True)

    async def delete_left_folders(self) -> None:
        """Delete the temporary files of processes that were killed."""
        await asyncio.to_thread(self._folders.delete_left)

    def disk_full(self) -> bool:
        """Whether there is too little disk space to collect anything."""
        try:
            return shutil.disk_usage(self._data_dir).free < LEAST_FREE
        except OSError:
            return True

    async def close(self) -> None:
        """End the children, close the connections and delete the temporary files."""
        await self.parsers.close()
        await self.downloads.close()
        await asyncio.to_thread(self._folders.close)


WORKSPACE: Resource[Workspace] = Resource("workspace", Workspace)


def _is_left(path: Path) -> bool:
    """Whether no process holds the folder any more."""
    try:
        if path.name.startswith(NEW) or not (path / LOCK).exists():
            return path.stat().st_mtime < time.time() - STALE
        with (path / LOCK).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # it is held, or was deleted meanwhile
        return False
    return True


async def _started() -> _Child:
    """Start a child; end one that comes up after its caller was cancelled."""
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


async def _ask_child(child: _Child, request: Request) -> Reply:
    """Return the child's reply; if it ended instead, say how."""
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
        return Reply(state="broken", reason=_why_ended(code, words), ends=True)


def _why_ended(code: int, words: str) -> str:
    """Explain why a child ended: its exit code or the signal, and what it wrote last."""
    if "bad_alloc" in words:
        return TOO_MUCH_MEMORY
    if code < 0:
        return (
            KILLED.get(signal.Signals(-code)) or f"reading it crashed the parser: {signal.strsignal(-code)}"
        )
    error = words.strip().rpartition("\n")[2]
    return f"the parser failed: {error}"[:300] if error else f"the parser ended with exit code {code}"


async def _end_of_errors(process: asyncio.subprocess.Process) -> str:
    """Read the end of what a child writes to standard error."""
    assert process.stderr
    kept = b""
    while piece := await process.stderr.read(ERRORS_KEPT):
        kept = (kept + piece)[-ERRORS_KEPT:]
    return kept.decode("utf-8", "replace")


def _cpu(child: _Child | None) -> float:
    """Return the processor time of a child in seconds; where the system does not say, more than it can have used."""
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
