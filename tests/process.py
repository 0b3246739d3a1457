"""How does a test run the real thing? `ootbot serve` as a process of its own, on SQLite in a folder."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sqlite3
from pathlib import Path

from bot.ingest import spool as spool_reader
from tests import forks, secret_markers
from tests.harness import ALLOWLIST, SECRET, UPSTREAM

ROOT = Path(__file__).parent.parent
ADMIN_TOKEN = "an admin token of ours"
PATIENCE = 60.0  # seconds until a test gives up waiting


class Process:
    """One bot that can be started, killed and started again on the same data and port."""

    def __init__(self, folder: Path, **options: str):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.said: list[str] = []
        self._folder = folder
        own = {"PORT": str(self.port), "DATA_DIR": str(folder), "LOG_LEVEL": "warning", "PROCESSES": "1"}
        self._options = own | options
        self._process: forks.Forked | None = None
        self._listening: asyncio.Task | None = None

    async def start(self, *arguments: str) -> asyncio.Event:
        """Start it; the event is set when it answers."""
        environ = {name: value for name, value in os.environ.items() if not name.startswith("OOTBOT_")}
        environ |= {f"OOTBOT_{name}": value for name, value in self._options.items()}
        self._process = await forks.ootbot("serve", *arguments, cwd=self._folder, env=environ)
        ready = asyncio.Event()
        self._listening = asyncio.create_task(self._listen(ready))
        return ready

    async def _listen(self, ready: asyncio.Event) -> None:
        async for line in self._process.stdout:
            self.said.append(line.decode().rstrip())
            assert secret_markers.leaks(self.said[-1]) == []
            if line.startswith(b"ootbot "):
                ready.set()

    @property
    def pid(self) -> int:
        """The number of the process that runs now."""
        return self._process.pid

    def kill(self) -> None:
        """SIGKILL, now."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def ended(self) -> int:
        """Return its exit code when it is gone, and everybody who could still write where it did."""
        try:
            async with asyncio.timeout(PATIENCE):
                code = await self._process.wait()
                await self._listening
        except TimeoutError:
            said = "\n".join(self.said[-20:])
            raise AssertionError(f"waited {PATIENCE:.0f} s for its end; the last it said:\n{said}") from None
        return code

    def rows(self, query: str) -> list[dict]:
        """Read the database from outside."""
        with contextlib.closing(
            sqlite3.connect(f"file:{self._folder / 'ootbot.db'}?mode=ro", uri=True)
        ) as conn:
            conn.row_factory = sqlite3.Row
            return [dict(row) for row in conn.execute(query)]

    @property
    def spool(self) -> Path:
        """Where deliveries arrive."""
        return self._folder / "ootbot.db.spool"

    def spooled(self) -> list:
        """Return the deliveries that have not been moved into the database yet."""
        return spool_reader.deliveries_waiting(str(self._folder / "ootbot.db"))


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def options_for(
    folder: Path, *, private_key: str, app_id: int = 1, api_url: str = "http://127.0.0.1:9", issuer=None
):
    """What `serve` needs to know, as environment names without their prefix."""
    (folder / "allowlist.yml").write_text(ALLOWLIST)
    options = {
        "APP_ID": str(app_id), "PRIVATE_KEY": private_key, "WEBHOOK_SECRET": SECRET,
        "UPSTREAM_REPO": UPSTREAM, "ALLOWLIST": str(folder / "allowlist.yml"), "GITHUB_API_URL": api_url,
        "ADMIN_TOKEN": ADMIN_TOKEN,
    }  # fmt: skip
    if issuer:
        options["OIDC_ISSUERS"] = json.dumps([{"issuer": issuer.url, "repository_claim": "repository"}])
    return options


async def until(condition, *, what: str, again=None):
    """Return the condition's value once it is true; `again` is awaited before each further look."""
    end = asyncio.get_running_loop().time() + PATIENCE
    while not (value := condition()):
        assert asyncio.get_running_loop().time() < end, f"waited {PATIENCE:.0f} s for {what}"
        if again:
            await again()
        await asyncio.sleep(0.02)  # another process is at work
    return value


# Which processes has a bot started?


def children(pid: int) -> list[int]:
    """The processes of ootbot that a process has started, by name: Linux's own list of them."""
    try:
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    return [child for child in map(int, found.split()) if name_of(child)]


def name_of(pid: int) -> str:
    """What a process of ootbot does, empty for others and for one that has ended."""
    try:
        shown = Path(f"/proc/{pid}/comm").read_text().strip()
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1]
    except OSError:
        return ""
    if state == "Z":  # its parent has not waited for it yet
        return ""
    return shown.removeprefix("ootbot-") if shown.startswith("ootbot-") else ""


def named(pid: int) -> dict[str, int]:
    """The processes of ootbot that a process has started, by what they do."""
    return {name_of(child): child for child in children(pid)}
