"""The supervisor: keeps the other processes running, in the process that listens.

Each gets its settings on standard input and says when it answers; then connections and wake-ups go to it. One that
ends is started again, after a while that doubles when it ends soon: what was its work is done here meanwhile, or waits.
A process that finds the other end of its socket closed ends at once, so that none outlives the first.
"""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import signal
import socket
from collections import Counter
from typing import TYPE_CHECKING

import structlog

from bot.processes import child
from bot.web import handover
from bot.web.handover import CONNECTION, LOCK, READY, WAKE, WORKER, Channel

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from bot.core.settings import Settings
    from bot.processes.child import Child
    from bot.web.connections import ConnectionFactory
    from bot.web.handover import Router

WAITS = (0.1, 30.0)  # seconds until a process is started again: first and longest
LASTED = 60.0  # seconds after which its end is no longer one of a row
ENDS_WITHIN = 12.0  # seconds: longer than a worker's tasks may take
ASKED = 2.0  # seconds for an answer of another process

log = structlog.get_logger("bot.processes")


class Supervisor:
    """Keeps the other processes running."""

    def __init__(self, settings: Settings, router: Router, lock: int | None) -> None:
        self._settings = pickle.dumps(settings)
        self._router = router
        self._lock = lock
        self._running: dict[str, Child] = {}
        self.down: dict[str, str] = dict.fromkeys(child.NAMES, "starting")  # and why
        self.starts: Counter[str] = Counter()  # how often each was started
        self._stopping = False
        self._adopting: set[asyncio.Task[None]] = set()

    def problems(self) -> list[str]:
        """Return which processes do not answer, and why."""
        return [f"{name}: {why}" for name, why in self.down.items()]

    @contextlib.asynccontextmanager
    async def running(
        self, factory: ConnectionFactory, work_waiting: asyncio.Event, first: Mapping[str, Child]
    ) -> AsyncIterator[None]:
        """Run the others, of which some were started already; connections they pass on are made by `factory`.

        The worker is woken whenever `work_waiting` is set here.
        """
        waking = asyncio.create_task(self._wake(work_waiting))
        keeping = [asyncio.create_task(self._keep(name, factory, first.get(name))) for name in child.NAMES]
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
            async with asyncio.timeout(ASKED):
                return (await reader.read()).partition(b"\r\n\r\n")[2]
        except (TimeoutError, OSError):
            return None
        finally:
            writer.close()

    async def _keep(self, name: str, factory: ConnectionFactory, started: Child | None) -> None:
        loop, (wait, longest) = asyncio.get_running_loop(), WAITS
        while not self._stopping:
            began = loop.time()
            try:
                made = started or child.start(name)
                self.starts[name] += 1
            except OSError as error:
                why = f"cannot be started: {error}"
            else:
                why = await self._until_ended(name, made, factory)
            started = None
            wait = WAITS[0] if loop.time() - began > LASTED else wait
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
