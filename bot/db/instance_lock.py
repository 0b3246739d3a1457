"""A lock on the SQLite file: one process serves it, and holds the lock for as long as it lives."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bot.core.errors import Misconfigured
from bot.db.engines import parse_url

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO

ENDING = 5.0  # seconds that processes get to end whose first one has died


@contextlib.contextmanager
def hold(url: str) -> Iterator[int | None]:
    """Keep others from serving an SQLite file; on PostgreSQL there may be any number.

    Yields the lock's descriptor: processes that share it keep it until the last of them ends, however it ends.
    Raises Misconfigured while others hold it.
    """
    database = parse_url(url)
    if database.get_backend_name() != "sqlite" or not database.database:
        yield None
        return
    path = Path(database.database)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f"{path.name}.lock").open("a+") as file:
        until = time.monotonic() + ENDING
        while not _locked(file):
            file.seek(0)
            holder = file.read(20).strip()
            if _runs(holder) or time.monotonic() > until:
                raise Misconfigured([_in_use(path, holder)])
            time.sleep(0.02)  # it is gone, and what it started is about to end
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield file.fileno()


def _locked(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _runs(process: str) -> bool:
    try:
        os.kill(int(process), 0)
    except (ValueError, ProcessLookupError):
        return False
    except PermissionError:
        pass
    return True


def _in_use(path: Path, holder: str) -> str:
    return (
        f"process {holder} serves {path} already, and SQLite has room for one: stop it first, "
        "or give all processes one PostgreSQL (OOTBOT_DATABASE_URL)"
    )
