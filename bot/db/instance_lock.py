"""A lock on the SQLite file: one process serves it, and holds the lock for as long as it lives."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy.engine import make_url

from bot.core.errors import Misconfigured

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def hold(url: str) -> Iterator[None]:
    """Keep other processes from serving an SQLite file; on PostgreSQL there may be any number.

    Raises Misconfigured while another process holds the lock. The system releases it however a process ends.
    """
    database = make_url(url)
    if database.get_backend_name() != "sqlite" or not database.database:
        yield
        return
    path = Path(database.database)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f"{path.name}.lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise Misconfigured([_in_use(path, file.read(20).strip())]) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def _in_use(path: Path, holder: str) -> str:
    return (
        f"process {holder} serves {path} already, and SQLite has room for one: stop it first, "
        "or give all processes one PostgreSQL (OOTBOT_DATABASE_URL)"
    )
