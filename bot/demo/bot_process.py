"""The bot as a process of its own, as in production: `ootbot serve`, stopped by SIGTERM."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import bot

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX = "OOTBOT_"
START_TIMEOUT = 20.0  # seconds until it must answer
STOP_TIMEOUT = 10.0  # seconds from SIGTERM until it must have exited
TAIL_LINES = 30  # of the log, shown when something went wrong
ERRORS = frozenset({"error", "critical"})
ADDRESS = re.compile(r"^ootbot .* at (http://\S+)/oot$")


class BotFailedError(Exception):
    """The bot did not start or exited by itself; the message holds the end of its log."""


class BotProcess:
    """A running bot. Its log is a file in the folder given to `start`."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self._log = log
        self.url = ""

    @classmethod
    async def start(cls, options: Mapping[str, str], folder: Path) -> BotProcess:
        """Start the bot with these options (names without OOTBOT_) and wait until it answers.

        Raises BotFailedError when it does not answer in time; no process is left behind then.
        """
        log = folder / "bot.log"
        with log.open("wb") as file:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "bot.cli", "serve"),
                cwd=folder,  # so that an ootbot.toml of the caller is not read
                env=_environment(options),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=file,
            )
        started = cls(process, log)
        try:
            started.url = await started._address()
        except BaseException:
            await started.stop()
            raise
        return started

    async def watch(self) -> None:
        """Raise BotFailedError when it exits; cancel this before stopping it."""
        code = await self._process.wait()
        raise self._failed(f"the bot exited by itself with code {code}")

    async def stop(self) -> int:
        """Stop it and return its exit code; it is killed when SIGTERM does not end it in time."""
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            return await asyncio.wait_for(self._process.wait(), STOP_TIMEOUT)
        except TimeoutError:
            self._process.kill()
            return await self._process.wait()

    def log_tail(self) -> str:
        """Return the end of its log."""
        lines = self._log.read_text(errors="replace").splitlines()
        return "\n".join(lines[-TAIL_LINES:])

    def first_error(self) -> str:
        """Return the first error in its log; empty when there is none."""
        lines = self._log.read_text(errors="replace").splitlines()
        return next((line for line in lines if json.loads(line)["level"] in ERRORS), "")

    async def _address(self) -> str:
        """Return its address, from the first line it prints."""
        assert self._process.stdout is not None
        try:
            line = (await asyncio.wait_for(self._process.stdout.readline(), START_TIMEOUT)).decode().strip()
        except TimeoutError:
            raise self._failed(f"the bot did not answer within {START_TIMEOUT:.0f} s") from None
        match = ADDRESS.match(line)
        if match is None:
            raise self._failed(f"the bot did not start: its first line is {line!r}, not its address")
        return match[1]

    def _failed(self, problem: str) -> BotFailedError:
        return BotFailedError(f"{problem}; the end of its log:\n{self.log_tail()}")


def _environment(options: Mapping[str, str]) -> dict[str, str]:
    """Return the caller's environment with its OOTBOT_ options replaced by these."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    source = str(Path(bot.__file__).parents[1])
    kept["PYTHONPATH"] = os.pathsep.join(filter(None, [source, kept.get("PYTHONPATH")]))
    return kept | {PREFIX + name: value for name, value in options.items()}
