"""Checks of the database: access, schema version, clock, recent activity, unfinished work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.core.errors import Misconfigured, StoreUnavailable
from bot.core.finding import Finding, error, ok, warning
from bot.db import db_clock, migrate
from bot.ingest import backlog, sweeps

if TYPE_CHECKING:
    from bot.db.transaction import Transaction
    from bot.ops.doctor.target import Target

HOUR = 3_600_000  # milliseconds


async def usable(target: Target) -> tuple[Finding, bool]:
    """Check version and writability; the second value says whether rows can be read."""
    store = target.store
    if not await target.has_database():
        detail = f"there is no database at {store.url.database} yet"
        return warning("database", detail, "start `ootbot serve`: it makes one"), False
    try:
        async with store.read() as tx:
            version = await backlog.version(tx)
        if version is None:
            return warning("database", "it has no tables yet", "start `ootbot serve`: it makes them"), False
        if migrate.is_newer(version):
            async with store.read() as tx:
                supported = await backlog.supported(tx)
            return _newer_version(version, supported=supported), supported
        if version != migrate.head():
            return _older_version(version), False
        async with store.transaction(lock_timeout=10) as tx:
            await backlog.touch(tx)
    except (Misconfigured, StoreUnavailable) as problem:
        todo = "check that it runs, DATABASE_URL, its disk and its permissions"
        return error("database", str(problem)[:400], todo), False
    kind = "SQLite" if store.sqlite else "PostgreSQL"
    return ok("database", f"{kind}, version {version}, can be written"), True


def _newer_version(version: str, *, supported: bool) -> Finding:
    if supported:
        detail = f"its version {version} is newer than this program's {migrate.head()}, which works beside it"
        return warning("database", detail, "finish the upgrade: run the newer ootbot everywhere")
    detail = f"its version {version} is newer than this program's {migrate.head()}, which cannot work with it"
    return error("database", detail, "run the newer ootbot, or restore a backup made before the upgrade")


def _older_version(version: str) -> Finding:
    detail = f"its version is {version}, this program needs {migrate.head()}"
    return warning(
        "database", detail, "restart `ootbot serve`: it migrates at the start; make a backup first"
    )


async def clock(target: Target) -> list[Finding]:
    """Check that this machine and PostgreSQL agree on the time."""
    if target.store.sqlite:
        return []
    behind = await db_clock.offset_to_database(target.store, target.clock)
    if abs(behind) <= db_clock.TOLERANCE:
        return [ok("database clock", "that of the database")]
    detail = f"{abs(behind) / 1000:.0f} s {'behind' if behind > 0 else 'ahead of'} the database's"
    todo = "synchronise both with NTP; until then the bot here uses the database's time"
    return [warning("database clock", detail, todo)]


async def first_start(target: Target, app_id: int) -> int:
    """Return when the bot first read this App's delivery log (epoch milliseconds), 0 where unknown."""
    _, readable = await usable(target)
    if not readable:
        return 0
    async with target.store.read() as tx:
        looked = await sweeps.get(tx, app_id, "redeliver")
    return looked["created_at"] if looked else 0


async def activity(target: Target) -> list[Finding]:
    """Check when something last came in, the sweeps, and what is stuck."""
    async with target.store.read() as tx:
        return [
            _last_delivery(tx, await backlog.last_received(tx)),
            *await _swept(tx, target),
            await _stuck(tx),
        ]


def _last_delivery(tx: Transaction, at: int | None) -> Finding:
    name = "last delivery"
    if at is None:
        todo = "open a pull request, then look at Recent Deliveries on the App's page on GitHub"
        return warning(name, "GitHub has sent nothing yet", todo)
    detail = f"{ago(tx.now - at)} ago"
    if tx.now - at > 24 * HOUR:
        return warning(name, detail, "if upstream was busy since, see the webhook lines")
    return ok(name, detail)


async def _swept(tx: Transaction, target: Target) -> list[Finding]:
    names = [name for name in sweeps.SWEPT if not (target.settings.pulls and name == "redeliver")]
    ids = [app.github.app_id for app in target.apps]
    found = []
    for name, app_id, age in await sweeps.ages(tx, ids, names):
        detail = f"{sweeps.SWEPT[name]} was last looked at {ago(age)} ago (App {app_id})"
        todo = "see why: GET /api/admin/tasks, and the log of `ootbot serve`"
        if age > 24 * HOUR:
            found.append(error(f"sweep {name}", detail, todo + "; after 3 days GitHub's log has ended"))
        elif age > HOUR:
            found.append(warning(f"sweep {name}", detail, todo))
        else:
            found.append(ok(f"sweep {name}", detail))
    missing = {f"sweep {name}" for name in names} - {each.name for each in found}
    return found + [
        warning(each, "never done yet", "start `ootbot serve` and wait ten minutes")
        for each in sorted(missing)
    ]


async def _stuck(tx: Transaction) -> Finding:
    now = await backlog.measure(tx)
    detail = (
        f"{now.deliveries} deliveries and {now.due} tasks wait; "
        f"{now.dead} dead, {now.parked} deliveries of the last week parked"
    )
    if now.oldest_delivery > HOUR or now.longest_due > HOUR:
        return error("queue", detail, "no process works on them: is `ootbot serve` running?")
    if now.dead or now.parked:
        return warning("queue", detail, "docs/operations.md, 'When something is stuck'")
    return ok("queue", detail)


def ago(span: int) -> str:
    """Return milliseconds in one unit, rounded down."""
    for length, unit in ((24 * HOUR, "d"), (HOUR, "h"), (60_000, "min")):
        if span >= length:
            return f"{span // length} {unit}"
    return f"{max(span, 0) // 1000} s"
