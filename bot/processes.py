"""The processes of one installation: how they are started and get their settings, what one serves, who supervises them.

The first ones are forked from a process that has read the program and not begun anything: what it has read they share.
Later there are threads, which a fork would not survive: the successor of a dead process is started as a program.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import os
import pickle
import signal
import socket
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

import structlog

from bot.web import handover
from bot.web.handover import CONNECTION, LOCK, READY, WAKE, WORKER, Channel

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping

    from bot.core.settings import Settings
    from bot.web.connections import ConnectionFactory
    from bot.web.handover import Router

    Become = Callable[[str, socket.socket, IO[bytes]], None]

PROCESS_NAMES = ("worker", "pages")  # of the processes besides the one that listens
ROOT = Path(__file__).parent.parent  # where this program was read from
PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15  # of sys/prctl.h
NICE = 5  # where processors are short, the process that listens comes first: GitHub waits 10 s and does not try again
ORPHANED = 1  # exit code
RESTART_WAITS = (0.1, 30.0)  # seconds until a process is started again: first and longest
LASTED = 60.0  # seconds after which its end is no longer one of a row
ENDS_WITHIN = 12.0  # seconds: longer than a worker's tasks may take
ANSWER_WITHIN = 2.0  # seconds for an answer of another process

log = structlog.get_logger("bot.processes")


@dataclass(frozen=True, kw_only=True)
class Child:
    """A process that waits for its settings, and our end of the socket to it."""

    process: subprocess.Popen[bytes] | Forked
    end: socket.socket

    def give(self, settings: bytes) -> None:
        """Write its settings; raises OSError where it has ended."""
        assert self.process.stdin is not None
        with self.process.stdin as written:
            written.write(settings)

    def close(self) -> None:
        """Close our ends: it ends, unless another process has them too."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.end.close()


class Forked:
    """A forked process, as `subprocess.Popen` shows one that it started."""

    def __init__(self, pid: int, stdin: IO[bytes]) -> None:
        self.pid, self.stdin = pid, stdin
        self._ended = False

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has been waited for: its number may be another's by now."""
        if not self._ended:
            os.kill(self.pid, number)

    def wait(self) -> int:
        """Wait for its end; returns its exit code, or the number of the signal that ended it as a negative number."""
        _, status = os.waitpid(self.pid, 0)
        self._ended = True
        return os.waitstatus_to_exitcode(status)


def fork_processes(names: Iterable[str], become: Become) -> dict[str, Child]:
    """Fork processes: each calls `become` with its end of the socket and what its settings are read from, and ends.

    To be called before there are threads. Raises OSError where the system cannot hold all of them.
    """
    gc.freeze()  # or a collection would write to every page that the processes share
    made: dict[str, Child] = {}
    try:
        for name in names:
            made[name] = _fork_process(name, become, made.values())
    except OSError:
        for child in made.values():
            child.close()  # which ends it
        raise
    return made


def start_process(name: str) -> Child:
    """Start a process as a program of its own; raises OSError where the system cannot hold one more."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    inherited = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([str(ROOT), *([inherited] if inherited else [])])
    try:
        process = subprocess.Popen(  # noqa: S603 - ourselves
            [sys.executable, "-m", "bot.console.member", name, str(theirs.fileno()), str(os.getpid())],
            stdin=subprocess.PIPE,
            pass_fds=(theirs.fileno(),),
            env=os.environ | {"PYTHONPATH": path},
        )
    except OSError:
        ours.close()
        raise
    finally:
        theirs.close()
    return Child(process=process, end=ours)


def belong_to_parent(parent: int, name: str) -> None:
    """Yield to the parent's priority; on Linux, also end with it, even while stopped or hanging, and show a name."""
    with contextlib.suppress(OSError):  # of a system that does not allow it
        os.nice(NICE)
    if sys.platform == "linux":
        system = ctypes.CDLL(None)
        system.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        system.prctl(PR_SET_NAME, f"ootbot-{name}".encode())
        if os.getppid() != parent:  # it was over before
            sys.exit(1)


@contextlib.asynccontextmanager
async def taking_connections(
    channel: Channel, factory: ConnectionFactory, work_waiting: asyncio.Event
) -> AsyncIterator[None]:
    """Take connections from the process that listens; once it is gone, end at once, as if killed together with it.

    The lock on the database comes as a message too: its descriptor stays open for as long as this process lives.
    """
    loop = asyncio.get_running_loop()
    adopting: set[asyncio.Task[None]] = set()

    def read() -> None:
        try:
            for message in channel.received():
                if message.kind == CONNECTION and message.descriptor is not None:
                    connection = socket.socket(fileno=message.descriptor)
                    task = asyncio.create_task(handover.adopt(connection, message.data, factory))
                    adopting.add(task)
                    task.add_done_callback(adopting.discard)
                elif message.kind == WAKE:
                    work_waiting.set()
        except EOFError:
            os._exit(ORPHANED)

    loop.add_reader(channel.fileno(), read)
    try:
        yield
    finally:
        loop.remove_reader(channel.fileno())


class Supervisor:
    """Keeps the other processes running."""

    def __init__(self, settings: Settings, router: Router, lock: int | None) -> None:
        self._settings = pickle.dumps(settings)
        self._router = router
        self._lock = lock
        self._running: dict[str, Child] = {}
        self.down: dict[str, str] = dict.fromkeys(PROCESS_NAMES, "starting")  # and why
        self.starts: Counter[str] = Counter()  # how often each was started
        self._stopping = False
        self._adopting: set[asyncio.Task[None]] = set()

    def problems(self) -> list[str]:
        """Say which processes do not answer, and why."""
        return [f"{name}: {why}" for name, why in self.down.items()]

    @contextlib.asynccontextmanager
    async def running(
        self, factory: ConnectionFactory, work_waiting: asyncio.Event, first: Mapping[str, Child]
    ) -> AsyncIterator[None]:
        """Run the other processes, some of which were started already; `factory` makes the connections they pass on.

        The worker is woken whenever `work_waiting` is set here.
        """
        waking = asyncio.create_task(self._wake(work_waiting))
        keeping = [asyncio.create_task(self._keep(name, factory, first.get(name))) for name in PROCESS_NAMES]
        try:
            yield
        finally:
            self._stopping = True
            waking.cancel()
            self._signal(signal.SIGTERM)
            _, late = await asyncio.wait(keeping, timeout=ENDS_WITHIN)
            if late:
                self._signal(signal.SIGKILL)
            await asyncio.gather(*keeping)

    async def ask(self, name: str, path: str, headers: Mapping[str, str]) -> bytes | None:
        """Return the body of another process's own answer to a GET request, None where there is none in time."""
        channel = self._router.channels.get(name)
        if channel is None:
            return None
        lines = [f"GET {path} HTTP/1.1", "Host: localhost", "Connection: close"]
        lines += [f"{key}: {value}" for key, value in headers.items()]
        ours, theirs = socket.socketpair()
        with theirs:
            sent = channel.send(
                CONNECTION, "\r\n".join([*lines, "", ""]).encode("utf-8", "surrogateescape"), theirs.fileno()
            )
        if not sent:
            ours.close()
            return None
        reader, writer = await asyncio.open_connection(sock=ours)
        try:
            async with asyncio.timeout(ANSWER_WITHIN):
                return (await reader.read()).partition(b"\r\n\r\n")[2]
        except (TimeoutError, OSError):
            return None
        finally:
            writer.close()

    async def _keep(self, name: str, factory: ConnectionFactory, started: Child | None) -> None:
        loop, (wait, longest) = asyncio.get_running_loop(), RESTART_WAITS
        while not self._stopping:
            began = loop.time()
            try:
                made = started or start_process(name)
                self.starts[name] += 1
            except OSError as error:
                why = f"cannot be started: {error}"
            else:
                why = await self._until_ended(name, made, factory)
            started = None
            wait = RESTART_WAITS[0] if loop.time() - began > LASTED else wait
            self.down[name] = f"{why}, started again within {wait:g} s; the log says more"
            await asyncio.sleep(wait)  # told to end as we are, it may have been faster
            if not self._stopping:
                log.error("a process ended", process=name, reason=why, again_in=wait)
            wait = min(2 * wait, longest)

    async def _until_ended(self, name: str, made: Child, factory: ConnectionFactory) -> str:
        """Return how a process ended."""
        loop, channel, ended = asyncio.get_running_loop(), Channel(made.end), asyncio.Event()
        self._running[name] = made

        def read() -> None:
            try:
                for message in channel.received():
                    if message.kind == READY:
                        self._router.channels[name] = channel
                        self.down.pop(name, None)
                    elif message.kind == CONNECTION and message.descriptor is not None:
                        self._take(socket.socket(fileno=message.descriptor), message.data, factory)
            except EOFError:
                loop.remove_reader(channel.fileno())
                ended.set()

        loop.add_reader(channel.fileno(), read)
        if self._lock is not None:
            channel.send(LOCK, descriptor=self._lock)
        with contextlib.suppress(OSError):  # it has ended
            await asyncio.to_thread(made.give, self._settings)
        await ended.wait()
        self._router.channels.pop(name, None)
        channel.close()
        code = await asyncio.to_thread(made.process.wait)
        del self._running[name]
        return f"killed by signal {-code}" if code < 0 else f"ended with code {code}"

    def _take(self, connection: socket.socket, data: bytes, factory: ConnectionFactory) -> None:
        """Pass a connection on to the process whose work its next request is, or serve it."""
        if not self._router.forward(connection, data):
            adopting = asyncio.create_task(handover.adopt(connection, data, factory))
            self._adopting.add(adopting)
            adopting.add_done_callback(self._adopting.discard)

    def _signal(self, number: int) -> None:
        for made in self._running.values():
            made.process.send_signal(number)

    async def _wake(self, work_waiting: asyncio.Event) -> None:
        while True:
            await work_waiting.wait()
            work_waiting.clear()
            if channel := self._router.channels.get(WORKER):
                channel.send(WAKE)


def _fork_process(name: str, become: Become, before: Iterable[Child]) -> Child:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    read, write = os.pipe()
    given, child = os.fdopen(read, "rb"), os.fdopen(write, "wb")
    parent = os.getpid()
    with theirs, given:
        try:
            pid = os.fork()
        except OSError:
            ours.close()
            child.close()
            raise
        if pid == 0:
            Child(process=Forked(parent, child), end=ours).close()
            for earlier in before:  # their ends would never close else
                earlier.close()
            belong_to_parent(parent, name)
            become(name, theirs, given)
            sys.exit(0)
    return Child(process=Forked(pid, child), end=ours)
