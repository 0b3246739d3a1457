"""Backups of a database in use: SQLite by its own backup API, PostgreSQL by pg_dump; every copy is checked."""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from bot.core.errors import GiveUp
from bot.core.setting_types import read_address
from bot.db.store import parse_url

if TYPE_CHECKING:
    from bot.core.setting_types import PostgresAddress

Complete = Callable[[sqlite3.Connection], None]


def make_backup(url: str, target: Path, *, complete: Complete | None = None) -> None:
    """Copy the database to a new file that only its owner may read: complete and checked, or absent.

    `complete` adds to SQLite's copy what is not in the database file.

    Raises FileExistsError rather than overwrite, GiveUp when no good copy can be made.
    """
    source = parse_url(url)
    if target.exists():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
    # readable by its owner alone; after a kill the leftover's name cannot be mistaken for a backup
    try:
        opened, name = tempfile.mkstemp(prefix=f"{target.name}.", suffix=".part", dir=target.parent)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(target)) from error  # of the partial copy
    os.close(opened)
    part = Path(name)
    try:
        if source.get_backend_name() == "sqlite":
            _copy_sqlite(Path(source.database or ""), part, complete)
        else:
            _dump_postgresql(read_address(url), part)
        _to_disk(part)
        os.close(
            os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        )  # fails if the name was taken meanwhile
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def _copy_sqlite(source: Path, part: Path, complete: Complete | None) -> None:
    """Copy one consistent state without blocking writers (WAL)."""
    if not source.exists():
        raise GiveUp(f"there is no database at {source}: has the bot run here?")
    reading = f"{source.resolve().as_uri()}?mode=ro"
    try:
        with (
            contextlib.closing(sqlite3.connect(reading, uri=True)) as from_,
            contextlib.closing(sqlite3.connect(part)) as to,
        ):
            from_.backup(to)
            if complete:
                complete(to)
            to.execute("PRAGMA journal_mode=DELETE")  # a single file
            (verdict,) = to.execute("PRAGMA integrity_check").fetchone()
    except sqlite3.Error as error:
        raise GiveUp(f"{source} cannot be copied to {part.parent.resolve()}: {error}") from error
    if verdict != "ok":
        raise GiveUp(f"the copy of {source} is damaged, so {source} may be: {verdict}")


def _dump_postgresql(source: PostgresAddress, part: Path) -> None:
    """Dump into a custom-format archive with pg_dump, and check it with pg_restore's list of its contents."""
    environ = dict(os.environ)
    if source.password:  # not as an argument: every user of the machine sees those
        environ["PGPASSWORD"] = source.password
    shown = source.without_password
    _run_command(["pg_dump", "--format=custom", "--no-owner", f"--file={part}", f"--dbname={shown}"], environ)
    _run_command(["pg_restore", "--list", str(part)], environ)


def _run_command(command: list[str], environ: dict[str, str]) -> None:
    try:
        done = subprocess.run(command, env=environ, check=False, capture_output=True, text=True)  # noqa: S603 - ours
    except FileNotFoundError:
        what = "install PostgreSQL's client programs, of the server's version or newer"
        raise GiveUp(f"{command[0]} was not found: {what}") from None
    if done.returncode:
        raise GiveUp(f"{command[0]} failed: {done.stderr.strip()[:500]}")


def _to_disk(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
