"""How does a driver start, kill and start again a real bot? `ootbot serve`, forked by a process that has read it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests import secret_markers
from tests.process import ROOT, children, until

UNTOLD = ("OOTBOT_",)  # of our own environment


@dataclass(frozen=True, kw_only=True)
class Kind:
    """What kind of process is to be started, and where."""

    role: str = "all"
    tree: Path = ROOT  # whose program it runs
    several: bool = False  # whether it starts others
    minutes: float = 0.0  # that the clock of its machine is ahead


class Nursery:
    """Starts one bot again and again on the same data and port; `kill` and `start` as often as you like."""

    def __init__(self, folder, options, kind):
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        environ = {name: value for name, value in os.environ.items() if not name.startswith(UNTOLD)}
        own = {"PORT": str(self.port), "DATA_DIR": str(folder), "LOG_LEVEL": "error", "ROLE": kind.role}
        chosen = own | {"PROCESSES": "3" if kind.several else "1"} | options
        self.options = {f"OOTBOT_{name}": value for name, value in chosen.items()}
        self._environ = environ | self.options
        self._folder = folder
        self._kind = kind
        self._reading: asyncio.Task | None = None
        self._began = 0.0
        self.pid = 0
        self.answers, self.ended = asyncio.Event(), asyncio.Event()
        self.ready_after: list[float] = []  # seconds from each start to its first answer
        self.said: list[str] = []

    async def open(self):
        """Read the program, to be able to fork it."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, str(self._kind.tree / "tests" / "fork_server.py"), str(self._kind.minutes),
            cwd=self._folder, env=self._environ, stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        self._reading = asyncio.create_task(self._read())

    async def _read(self):
        async for line in self._process.stdout:
            text = line.decode().rstrip()
            words = text.split()
            if words[:1] == ["started"]:
                self.pid = int(words[1])
            elif words[:1] == ["ended"]:
                self.ended.set()
            elif words[:1] == ["ootbot"]:
                self.ready_after.append(time.monotonic() - self._began)
                self.answers.set()
            else:
                assert secret_markers.leaks(text) == []
                self.said.append(text)

    def start(self):
        """Begin to start it; `answers` is set once it does."""
        self.pid = 0
        self.answers.clear()
        self.ended.clear()
        self._began = time.monotonic()
        self._process.stdin.write(b"start\n")

    async def up(self):
        """Return when it answers."""
        await until(self.answers.is_set, what="a bot that answers")

    def kill_now(self):
        """SIGKILL, at once."""
        self.answers.clear()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    async def kill(self):
        """SIGKILL, and wait for the end."""
        await until(lambda: self.pid, what="a process")
        self.kill_now()
        await self.ended.wait()

    async def kill_one(self, chance):
        """SIGKILL for one of the processes; returns whether it was the one that listens, which takes all with it."""
        await until(lambda: self.pid, what="a process")
        one = chance.choice([self.pid, *children(self.pid)])
        if one == self.pid:
            await self.kill()
            return True
        with contextlib.suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)
        await until(lambda: one not in children(self.pid), what="its end")
        return False

    async def stop(self):
        """Tell it to stop, and wait until it has."""
        os.kill(self.pid, signal.SIGTERM)
        await self.ended.wait()
        self.answers.clear()

    async def close(self):
        """End it for good."""
        if self.pid and not self.ended.is_set():
            await self.kill()
        self._process.stdin.close()
        await self._process.wait()
        await self._reading
