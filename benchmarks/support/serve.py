"""`ootbot serve` under measurement: started as the README says, with settings from the environment."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import sqlite3
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.support.load import SECRET
from benchmarks.support.machine import Server, free_port
from benchmarks.support.process_tree import family, family_cpu, family_memory
from bot.core.settings import Settings
from bot.demo.github.auth import private_key
from bot.ingest import spool

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent.parent
NOBODY = "http://127.0.0.1:9"  # in place of GitHub: nobody answers there
PATIENCE = 120.0  # seconds for anything
UPSTREAM = "org/upstream"

key = functools.cache(private_key)


def by_default() -> int:
    """Return of how many processes `ootbot serve` consists on this machine if nobody says."""
    several = Settings.processes == "3" or (Settings.processes == "auto" and len(os.sched_getaffinity(0)) > 1)
    return 3 if several else 1


class Bot(Server):
    """`ootbot serve` with its other processes, if it has any.

    `settings` are named as in docs/settings.md. Without `processes` there are as many as it starts by default; with a
    `core` all of them keep to that one. The folder holds its database, unless `DATABASE_URL` says otherwise.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        processes: int | None = None,
        core: int | None = None,
        allowlist: str = "L1: []\n",
        **settings: object,
    ) -> None:
        self.folder, port = Path(folder), free_port()
        listed = self.folder / "allowlist.yml"
        listed.write_text(allowlist)
        chosen = {
            "APP_ID": 1, "PRIVATE_KEY": key(), "WEBHOOK_SECRET": SECRET, "UPSTREAM_REPO": UPSTREAM,
            "ALLOWLIST": listed, "GITHUB_API_URL": NOBODY, "DATA_DIR": self.folder, "PORT": port,
            "PUBLIC_URL": f"http://127.0.0.1:{port}", "LOG_LEVEL": "error",
        }  # fmt: skip
        if processes is not None:
            chosen["PROCESSES"] = processes
        environment = {name: value for name, value in os.environ.items() if not name.startswith("OOTBOT_")}
        environment |= {f"OOTBOT_{name}": str(value) for name, value in (chosen | settings).items()}
        environment["PYTHONPATH"] = str(ROOT)
        command = (sys.executable, "-m", "bot.cli", "serve")
        began = time.perf_counter()
        super().__init__(*command, port=port, says="ootbot ", core=core, environment=environment)
        self.ready_after = time.perf_counter() - began  # seconds until it said where it listens

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def cpu(self) -> float:
        return family_cpu(self.process.pid)

    def memory_mb(self) -> dict[str, float]:
        """What all its processes occupy: `resident_mb`, and `pss_mb` where a page that several share counts once."""
        return family_memory(self.process.pid)

    @contextlib.contextmanager
    def listening_alone(self) -> Iterator[None]:
        """Stop the other processes meanwhile: only the one that listens works."""
        _, *others = family(self.process.pid)
        for pid in others:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in others:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def crash(self) -> None:
        """End all its processes at once: what has arrived stays in the spool."""
        for pid in family(self.process.pid):
            os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def count(self, query: str, file: str = "ootbot.db") -> int:
        return count(self.folder / file, query)

    def waiting(self) -> int:
        """Return how many deliveries are stored and not applied yet: they arrive in the spool."""
        spooled = sum(one.deliveries for one in spool.records_waiting(f"{self.folder}/ootbot.db"))
        return spooled + self.count("SELECT count(*) FROM delivery WHERE state = 'stored'")


def count(database: Path, query: str) -> int:
    """Return the number that a query of an SQLite file yields."""
    with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=10)) as file:
        return file.execute(query).fetchone()[0]


def until(condition, what: str) -> None:
    """Wait until something is true; raises SystemExit after PATIENCE."""
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"waited {PATIENCE:.0f} s for {what}")
        time.sleep(0.02)
