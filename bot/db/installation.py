"""What an installation's processes share: random keys, ends of sessions, the time, and the lock on the SQLite file."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import sqlalchemy as sa
import structlog

from bot.core.errors import Misconfigured, StoreUnavailable
from bot.db.rows import Big, Text, metadata, must, table
from bot.db.statements import Statement
from bot.db.store import parse_url

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from typing import IO

    from bot.core.clock import Clock
    from bot.db.store import Store
    from bot.db.transaction import Transaction

KEY_BYTES = 32

secret = sa.Table(
    "secret",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    must("value", sa.LargeBinary),
)
STORED_KEY = Statement(sa.select(secret.c.value).where(secret.c.name == sa.bindparam("key_name")))
CLOCK_TOLERANCE = 1_000  # milliseconds two clocks may differ: NTP keeps them closer, and leases last longer
CLOCK_SAMPLES = 3  # for each comparison
CLOCK_INTERVAL = 20.0  # seconds between comparisons: a clock may be set at any time
DATABASE_NOW = sa.text("SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)")

log = structlog.get_logger("bot.db.installation")
ENDING_WITHIN = 5.0  # seconds that processes get to end whose first one has died


class AdminSignOutRow(TypedDict):
    """The time before which all sessions of an ADMIN_TOKEN have ended."""

    token_id: Text  # of an ADMIN_TOKEN: an HMAC made with it
    not_before: Big  # sessions begun earlier have ended


admin_sign_out = table("admin_sign_out", AdminSignOutRow, key=("token_id",))


async def random_key(tx: Transaction, name: str) -> bytes:
    """Return the key of that name, created on first use."""
    stored: bytes | None = (await tx.run(STORED_KEY, {"key_name": name})).scalar()
    if stored is None:
        fresh = {"name": name, "value": secrets.token_bytes(KEY_BYTES)}
        await tx.run(tx.insert(secret).values(fresh).on_conflict_do_nothing())
        stored = (await tx.run(STORED_KEY, {"key_name": name})).scalar_one()
    return bytes(stored)


class DatabaseClock:
    """The machine's clock, corrected by the database's once the two have been compared."""

    def __init__(self, own: Clock) -> None:
        self._own = own
        self._offset = 0  # milliseconds added to the machine's time

    def now(self) -> int:
        """Return milliseconds since 1970-01-01 UTC."""
        return self._own.now() + self._offset

    async def sleep(self, seconds: float) -> None:
        """Return after that many seconds."""
        await self._own.sleep(seconds)

    async def compare(self, store: Store) -> None:
        """Compare with the database's time, and use it where the machine's is wrong."""
        offset = await offset_to_database(store, self._own)
        if abs(offset - self._offset) <= CLOCK_TOLERANCE:
            return
        self._offset = offset if abs(offset) > CLOCK_TOLERANCE else 0
        if self._offset:
            log.error("this machine's clock is wrong: set it; the database's is used", seconds=-offset / 1000)
        else:
            log.info("this machine's clock is right again")

    @contextlib.asynccontextmanager
    async def synchronized(self, store: Store) -> AsyncIterator[None]:
        """Compare now, and repeatedly while the block runs. SQLite has one machine, so one clock."""
        if store.sqlite:
            yield
            return
        await self.compare(store)
        comparing = asyncio.create_task(self._compare_repeatedly(store))
        try:
            yield
        finally:
            comparing.cancel()

    async def _compare_repeatedly(self, store: Store) -> None:
        while True:
            await asyncio.sleep(CLOCK_INTERVAL)
            with contextlib.suppress(StoreUnavailable):  # the next use of the database logs it
                await self.compare(store)


async def offset_to_database(store: Store, clock: Clock) -> int:
    """Return how many milliseconds a clock is behind PostgreSQL's; negative when it is ahead.

    The fastest of a few answers counts: its error is at most half of its duration.
    """
    samples = []
    async with store.read() as tx:
        for _ in range(CLOCK_SAMPLES):
            before = clock.now()
            theirs: int = (await tx.run(DATABASE_NOW)).scalar_one()
            after = clock.now()
            samples.append((after - before, theirs - (before + after) // 2))
    _, offset = min(samples)
    return offset


@contextlib.contextmanager
def hold_instance_lock(url: str) -> Iterator[int | None]:
    """Keep other processes from serving an SQLite file; PostgreSQL allows any number.

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
        until = time.monotonic() + ENDING_WITHIN
        while not _lock_file(file):
            file.seek(0)
            holder = file.read(20).strip()
            if _is_running(holder) or time.monotonic() > until:
                raise Misconfigured([_describe_holder(path, holder)])
            time.sleep(0.02)  # it is gone, and what it started is about to end
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield file.fileno()


def _lock_file(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_running(process: str) -> bool:
    try:
        os.kill(int(process), 0)
    except (ValueError, ProcessLookupError):
        return False
    except PermissionError:
        pass
    return True


def _describe_holder(path: Path, holder: str) -> str:
    return (
        f"process {holder} serves {path} already, and SQLite has room for one: stop it first, "
        "or give all processes one PostgreSQL (OOTBOT_DATABASE_URL)"
    )
