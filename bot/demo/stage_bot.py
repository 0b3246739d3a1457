"""How is the bot run in the demo? As in production: `ootbot serve`, a process of its own, ended by SIGTERM."""

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
READY = 20.0  # seconds until it must answer
STOPPED = 10.0  # seconds from SIGTERM until it must be gone
TAIL = 30  # lines of the log shown when something went wrong
ERRORS = frozenset({"error", "critical"})
ADDRESS = re.compile(r"^ootbot .* at (http://\S+)/oot$")


class BotFailedError(Exception):
    """The bot did not start, or ended unasked; the message says what was seen of it."""


class BotProcess:
    """A running bot. Its log is a file in the folder it was given."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self._log = log
        self.url = ""

    @classmethod
    async def start(cls, options: Mapping[str, str], folder: Path) -> BotProcess:
        """Start the bot with these options (names without OOTBOT_) and wait until it answers.

        Raises BotFailedError when it does not in time; nothing is left running then.
        """
        log = folder / "bot.log"
        with log.open("wb") as file:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "bot.cli", "serve"),
                cwd=folder,  # where no ootbot.toml of the caller's is found
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
        """Raise BotFailedError when it ends; cancel this before asking it to."""
        code = await self._process.wait()
        raise self._failed(f"the bot has ended by itself with exit code {code}")

    async def stop(self) -> int:
        """Ask it to end and return its exit code; one that does not obey is killed, with the code of that."""
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            return await asyncio.wait_for(self._process.wait(), STOPPED)
        except TimeoutError:
            self._process.kill()
            return await self._process.wait()

    def last_words(self) -> str:
        """Return the end of its log."""
        lines = self._log.read_text(errors="replace").splitlines()
        return "\n".join(lines[-TAIL:])

    def first_error(self) -> str:
        """Return the first line of its log that tells of an error; empty when there is none."""
        lines = self._log.read_text(errors="replace").splitlines()
        return next((line for line in lines if json.loads(line)["level"] in ERRORS), "")

    async def _address(self) -> str:
        """Return where it answers, out of the first line it prints."""
        assert self._process.stdout is not None
        try:
            line = (await asyncio.wait_for(self._process.stdout.readline(), READY)).decode().strip()
        except TimeoutError:
            raise self._failed(f"the bot did not answer within {READY:.0f} s") from None
        found = ADDRESS.match(line)
        if found is None:
            raise self._failed(f"the bot did not start: its first line is {line!r}, not its address")
        return found[1]

    def _failed(self, what: str) -> BotFailedError:
        return BotFailedError(f"{what}; the end of its log:\n{self.last_words()}")


def _environment(options: Mapping[str, str]) -> dict[str, str]:
    """Return the caller's environment with these options instead of the caller's own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    here = str(Path(bot.__file__).parents[1])
    kept["PYTHONPATH"] = os.pathsep.join(filter(None, [here, kept.get("PYTHONPATH")]))
    return kept | {PREFIX + name: value for name, value in options.items()}
