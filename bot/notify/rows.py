"""Statements about notices: what was told, what waits for each receiver, and what readers may not see."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import sqlalchemy as sa

from bot.db.rows import select
from bot.db.statements import literal_word
from bot.ingest.retention import delete_rows
from bot.notify.tables import NoticeRow, SendingRow, ToldRow, notice, notice_sending, notice_told
from bot.oot.allowlist import versions as allowlists
from bot.oot.results import visibility as results
from bot.web.access import Hidden

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from bot.context import Context
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction

TOLD, NOTICE, SENDING = notice_told.c, notice.c, notice_sending.c
WAITING = SENDING.state == literal_word("waiting")
AT_ONCE = 20  # notices read for one run of a receiver's task
MOST_ERRORS = 1_000  # newest failures that are looked through
NOTHING_HIDDEN = Hidden(names=frozenset(), ids=frozenset())
DAY = 86_400_000  # milliseconds
NOTICES_KEPT = 30 * DAY


class SendingCount(NamedTuple):
    """How many notices of a receiver are in a state, and when the last one ended."""

    receiver: str
    state: str
    number: int
    last_at: int | None


async def told_keys(tx: Transaction, audience: str) -> dict[str, frozenset[str]]:
    """Return the keys of conditions that were told and have not ended, by event."""
    keys_by_event: defaultdict[str, set[str]] = defaultdict(set)
    query = sa.select(TOLD.event, TOLD.key).where(TOLD.audience == audience)
    for event, key in await tx.run(query):
        keys_by_event[event].add(key)
    return {event: frozenset(keys) for event, keys in keys_by_event.items()}


async def add_told(tx: Transaction, rows: Sequence[ToldRow]) -> set[tuple[str, str]]:
    """Note conditions as told; returns event and key of those that were not told before."""
    key = ("event", "key")
    ordered = sorted(rows, key=lambda row: (row["audience"], row["event"], row["key"]))
    added = await tx.upsert(notice_told, [dict(row) for row in ordered], returning=key) if rows else ()
    return {(row[0], row[1]) for row in added}


async def mark_seen(tx: Transaction, audience: str, keys: Collection[tuple[str, str]], before: int) -> None:
    """Note that conditions still hold, if that was last noted before a time."""
    for event, key in sorted(keys):
        same = (TOLD.audience == audience, TOLD.event == event, TOLD.key == key)
        await tx.run(sa.update(notice_told).where(*same, TOLD.seen_at < before).values(seen_at=tx.now))


async def stale_keys(tx: Transaction, audience: str, before: int) -> set[tuple[str, str]]:
    """Return event and key of conditions last noted before a time."""
    query = sa.select(TOLD.event, TOLD.key).where(TOLD.audience == audience, TOLD.seen_at < before)
    return {(event, key) for event, key in await tx.run(query)}


async def end_told(tx: Transaction, audience: str, event: str, key: str) -> bool:
    """Forget a condition that ended; returns whether it was known."""
    same = (TOLD.audience == audience, TOLD.event == event, TOLD.key == key)
    return bool((await tx.run(sa.delete(notice_told).where(*same))).rowcount)


async def add_notice(tx: Transaction, row: NoticeRow, receivers: Collection[str]) -> None:
    """Store a notice for some receivers."""
    await tx.run(sa.insert(notice).values(dict(row)))
    wanted: list[SendingRow] = [
        {
            "notice_id": row["id"],
            "receiver": receiver,
            "state": "waiting",
            "attempts": 0,
            "created_at": row["at"],
            "ended_at": None,
            "error": None,
        }
        for receiver in sorted(receivers)
    ]
    if wanted:
        await tx.run(sa.insert(notice_sending), wanted)


async def waiting_notices(tx: Transaction, receiver: str) -> list[tuple[SendingRow, NoticeRow]]:
    """Return the oldest notices that wait for a receiver, in order."""
    query = select(SendingRow, notice_sending).where(WAITING, SENDING.receiver == receiver)
    rows = await tx.fetch(query.order_by(SENDING.created_at, SENDING.notice_id).limit(AT_ONCE))
    ids = [row["notice_id"] for row in rows]
    notices = {row["id"]: row for row in await tx.fetch(select(NoticeRow, notice).where(NOTICE.id.in_(ids)))}
    return [(row, notices[row["notice_id"]]) for row in rows]


async def record_attempt(tx: Transaction, row: SendingRow, state: str, error: str | None) -> None:
    """Record an attempt: it was sent, failed for now (`waiting`), or for good."""
    ended = None if state == "waiting" else tx.now
    values = {"state": state, "attempts": row["attempts"] + 1, "ended_at": ended, "error": error}
    same = (SENDING.notice_id == row["notice_id"], SENDING.receiver == row["receiver"])
    await tx.run(sa.update(notice_sending).where(*same, WAITING).values(values))


async def awaited_receivers(tx: Transaction) -> set[str]:
    """Return the receivers for which notices wait."""
    return set((await tx.run(sa.select(SENDING.receiver).where(WAITING).distinct())).scalars())


async def drop_waiting(tx: Transaction, receivers: Collection[str]) -> int:
    """Drop what waits for receivers that are no longer configured; returns how many notices."""
    gone = {"state": "dropped", "ended_at": tx.now, "error": "the receiver is no longer in the settings"}
    theirs = (WAITING, SENDING.receiver.in_(sorted(receivers)))
    return (await tx.run(sa.update(notice_sending).where(*theirs).values(gone))).rowcount


async def requeue_dead(tx: Transaction, receivers: Collection[str]) -> dict[str, int]:
    """Requeue the notices that were given up for these receivers; returns how many of each."""
    dead = (SENDING.state == "dead", SENDING.receiver.in_(sorted(receivers)))
    query = sa.select(SENDING.receiver, sa.func.count()).where(*dead).group_by(SENDING.receiver)
    counts = dict(await tx.run(query))
    again = {"state": "waiting", "attempts": 0, "ended_at": None, "created_at": tx.now}
    await tx.run(sa.update(notice_sending).where(*dead).values(again))
    return counts


async def count_sendings(tx: Transaction) -> list[SendingCount]:
    """Return how many notices of each receiver are in each state."""
    columns = (SENDING.receiver, SENDING.state)
    query = sa.select(*columns, sa.func.count(), sa.func.max(SENDING.ended_at)).group_by(*columns)
    return [SendingCount(*row) for row in (await tx.run(query.order_by(*columns))).all()]


async def last_errors(tx: Transaction) -> dict[str, str]:
    """Return each receiver's newest error of a notice that it does not have."""
    failed = (SENDING.error.is_not(None), SENDING.state.in_(("waiting", "dead")))
    query = sa.select(SENDING.receiver, SENDING.error).where(*failed)
    errors: dict[str, str] = {}
    for receiver, error in await tx.run(query.order_by(SENDING.created_at.desc()).limit(MOST_ERRORS)):
        errors.setdefault(receiver, error)
    return errors


async def recent_notices(tx: Transaction, audience: str, *, since: int, limit: int) -> list[NoticeRow]:
    """Return notices since a time, newest first."""
    query = select(NoticeRow, notice).where(NOTICE.audience == audience, NOTICE.at >= since)
    return await tx.fetch(query.order_by(NOTICE.at.desc(), NOTICE.id).limit(limit))


async def open_notices(tx: Transaction, audience: str, *, limit: int) -> list[NoticeRow]:
    """Return the notices of conditions that have not ended, newest first."""
    ids = sa.select(TOLD.notice_id).where(TOLD.audience == audience, TOLD.event != "digest")
    query = select(NoticeRow, notice).where(NOTICE.id.in_(ids), NOTICE.audience == audience)
    return await tx.fetch(query.order_by(NOTICE.at.desc(), NOTICE.id).limit(limit))


async def backend_notices(tx: Transaction, backend: str, *, limit: int) -> list[NoticeRow]:
    """Return the public notices about a backend, newest first."""
    mine = (NOTICE.audience == "public", NOTICE.backend == backend)
    query = select(NoticeRow, notice).where(*mine)
    return await tx.fetch(query.order_by(NOTICE.at.desc(), NOTICE.id).limit(limit))


async def branch_notices(tx: Transaction, repo: str, branch: str, *, limit: int) -> list[NoticeRow]:
    """Return the public notices about a branch, newest first."""
    mine = (NOTICE.audience == "public", NOTICE.repo == repo, NOTICE.branch == branch)
    query = select(NoticeRow, notice).where(*mine)
    return await tx.fetch(query.order_by(NOTICE.at.desc(), NOTICE.id).limit(limit))


def unused_rows(before: int) -> dict[sa.Table, sa.ColumnElement[bool]]:
    """Return which rows are no longer needed: old ones, and conditions not seen for long."""
    ended = (SENDING.state != "waiting", SENDING.created_at < before)
    kept = sa.exists().where(SENDING.notice_id == NOTICE.id) | sa.exists().where(TOLD.notice_id == NOTICE.id)
    return {
        notice_sending: sa.and_(*ended),
        notice_told: TOLD.seen_at < before,
        notice: (NOTICE.at < before) & ~kept,
    }


async def hidden_of(tx: Transaction, settings: Settings, audience: str, *also: str) -> Hidden:
    """Return which of upstream, the backends and some further repositories an audience may not see.

    As on pages, upstream is private until GitHub has said otherwise, a backend once it has said so.
    """
    if audience == "private":
        return NOTHING_HIDDEN
    allowlist = await allowlists.read_in_force(tx)
    backends = {entry.repo for entry in (allowlist.entries if allowlist else ())}
    private = await results.private_repositories(tx, settings, backends | {*also})
    return Hidden(names=private.names, ids=private.ids)


def is_hidden(hidden: Hidden, notice: NoticeRow) -> bool:
    """Whether a notice is about something hidden: a repository may have turned private since."""
    return hidden.has(notice["repo"]) or hidden.has(notice["backend"])


async def prune_notices(context: Context) -> dict[str, int]:
    """Delete what is older than a month; a notice stays as long as its condition holds."""
    before = context.clock.now() - NOTICES_KEPT
    old = [await delete_rows(context, table, which) for table, which in unused_rows(before).items()]
    return {"notices": sum(old)}
