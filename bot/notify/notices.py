"""The periodic task `notices`: tells people what began and what ended since they were last told. Key: nothing.

A change is stored with its notices and their receivers in one transaction: after a crash it is either told already, or
"""

from __future__ import annotations

import uuid
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from bot.core import text
from bot.core.feature import CONDITION_EVENTS, ConditionScope, load_each
from bot.notify import rows
from bot.notify.receivers import DIGEST, NotifySettings
from bot.notify.rows import hidden_of, is_hidden
from bot.notify.sending import request_sending
from bot.oot.statistics import health
from bot.oot.statistics.health import WORKER_DAY_SUMS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from bot.context import Context
    from bot.core.feature import Condition
    from bot.db.transaction import Transaction
    from bot.notify.receivers import Receiver
    from bot.notify.tables import NoticeRow, ToldRow
    from bot.oot.statistics.health import Health
    from bot.queue.tasks import Task

MOST_LINES = 20  # of a notice
LINE_LONGEST = 500  # characters of a line
DAY = 86_400_000  # milliseconds
DIGEST_LATEST = 3 * 3_600.0  # seconds after its time that a digest is still worth sending
MOST_NOTICES, MOST_OPEN, MOST_BACKENDS = 1_000, 10, 30
EVENT_NOUNS = {
    "backend_red": "backend turned red", "backend_recovered": "backend recovered",
    "backend_silent": "backend fell silent", "backend_reporting": "backend reports again",
    "trunk_broken": "branch broke", "trunk_repaired": "branch was repaired",
    "gate_waiting": "gate waited long", "culprit_found": "culprit was found",
}  # fmt: skip
log = structlog.get_logger("bot.notify.notices")

SEEN_EVERY = 86_400_000  # milliseconds between two notes that a condition still holds


@dataclass(frozen=True, kw_only=True)
class Notice:
    """What people are told, and the conditions it is about."""

    row: NoticeRow
    keys: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Changes:
    """What began and what ended since people were last told."""

    begun: tuple[Condition, ...]
    over: tuple[Condition, ...]

    @property
    def any(self) -> bool:
        """Whether there is anything."""
        return bool(self.begun or self.over)


def compare_conditions(conditions: Iterable[Condition], told: Mapping[str, frozenset[str]]) -> Changes:
    """Compare conditions with those that were told and have not ended."""
    begun: dict[tuple[str, str], Condition] = {}
    over: dict[tuple[str, str], Condition] = {}
    for condition in conditions:
        known = condition.key in told.get(condition.event, frozenset())
        if condition.holds and not known:
            begun.setdefault((condition.event, condition.key), condition)
        elif known and not condition.holds:
            over.setdefault((condition.event, condition.key), condition)
    return Changes(begun=tuple(begun.values()), over=tuple(over.values()))


def notices_of(conditions: Sequence[Condition], *, audience: str, now: int) -> list[Notice]:
    """Return the notices of conditions that began or ended: one for all that share a heading."""
    together: defaultdict[tuple[object, ...], list[Condition]] = defaultdict(list)
    for condition in conditions:
        event = condition.event if condition.holds else CONDITION_EVENTS[condition.event]
        together[event, condition.heading, condition.subject].append(condition)
    return [_notice(str(event), some, audience, now) for (event, *_), some in together.items()]


async def request_digests(context: Context, receivers: Sequence[Receiver]) -> None:
    """Queue the digests that are due, each once."""
    for receiver in receivers:
        due = receiver.digest_due(context.clock.now())
        if due is None or due[1] > DIGEST_LATEST:
            continue
        day, _ = due
        async with context.store.read() as tx:
            told = await rows.told_keys(tx, receiver.audience)
        key = f"{receiver.name}/{day}"
        if key not in told.get(DIGEST, ()):
            await _make_digest(context, receiver, key)


async def read_digest(context: Context, receiver: Receiver) -> NoticeRow:
    """Return a receiver's digest as of now."""
    settings = context.settings
    async with context.store.read() as tx:
        hidden = await hidden_of(tx, settings, receiver.audience)
        still = await rows.open_notices(tx, receiver.audience, limit=MOST_NOTICES)
        recent = await rows.recent_notices(tx, receiver.audience, since=tx.now - DAY, limit=MOST_NOTICES)
        backends = await health.read_backends(tx, hidden, 1, context.resource(WORKER_DAY_SUMS))
        now = tx.now
    shown = [
        backend
        for backend in backends
        if backend.listed
        and backend.level > 1
        and not hidden.has(backend.repo)
        and receiver.concerns(repo="", backend=backend.repo, oncalls=backend.oncalls)
    ]
    heading, lines = describe_day(
        [notice for notice in still if _passes_filters(receiver, notice) and not is_hidden(hidden, notice)],
        [notice for notice in recent if _passes_filters(receiver, notice) and not is_hidden(hidden, notice)],
        shown,
        now=now,
    )
    return {
        "event": DIGEST,
        "at": now,
        "began_at": now - DAY,
        "heading": heading,
        "lines": lines,
        "repo": "",
        "branch": "",
        "backend": "",
        "oncalls": [],
        "path": "/oot",
        "id": str(uuid.uuid4()),
        "audience": receiver.audience,
    }


def describe_day(
    still: Sequence[NoticeRow], recent: Sequence[NoticeRow], backends: Sequence[Health], *, now: int
) -> tuple[str, list[str]]:
    """Return the heading of a digest and its lines."""
    counts = Counter(notice["event"] for notice in recent)
    happened = [f"{counts[event]} × {noun}" for event, noun in EVENT_NOUNS.items() if counts[event]]  # noqa: RUF001
    summary = text.plural(len(still), "open matter") if still else "nothing is open"
    lines = [f"In the last 24 hours: {', '.join(happened) or 'nothing to tell'}"]
    for notice in still[:MOST_OPEN]:
        since = notice["at"] if notice["began_at"] is None else notice["began_at"]
        lines.append(f"Open: {notice['heading']} (for {text.duration(max(0, now - since) / 1000)})")
    if len(still) > MOST_OPEN:
        lines.append(f"and {len(still) - MOST_OPEN} more open")
    lines += [_backend_line(backend) for backend in backends[:MOST_BACKENDS]]
    if len(backends) > MOST_BACKENDS:
        lines.append(f"and {text.plural(len(backends) - MOST_BACKENDS, 'more backend')}")
    return f"Daily digest: {summary}", lines


async def check_conditions(context: Context, _task: Task) -> None:
    """Tell people what began and what ended."""
    receivers = context.settings.of(NotifySettings).notify
    for audience in sorted({"public", *(receiver.audience for receiver in receivers)}):
        mine = [receiver for receiver in receivers if receiver.audience == audience]
        await _check_audience(context, audience, mine)
    await request_digests(context, receivers)
    await _drop_unknown(context, {receiver.name for receiver in receivers})


def _notice(event: str, conditions: Sequence[Condition], audience: str, now: int) -> Notice:
    subject = conditions[0].subject
    lines = [line[:LINE_LONGEST] for condition in conditions for line in condition.lines]
    more = len(lines) - MOST_LINES
    row: NoticeRow = {
        "event": event,
        "at": now,
        "began_at": min(
            (condition.since for condition in conditions if condition.since is not None), default=None
        ),
        "heading": conditions[0].heading[:LINE_LONGEST],
        "lines": [*lines[:MOST_LINES], f"and {more} more"] if more > 0 else lines,
        "repo": subject.repo,
        "branch": subject.branch,
        "backend": subject.backend,
        "oncalls": list(subject.oncalls),
        "path": subject.path,
        "id": str(uuid.uuid4()),
        "audience": audience,
    }
    return Notice(row=row, keys=tuple(condition.key for condition in conditions))


async def _make_digest(context: Context, receiver: Receiver, key: str) -> None:
    notice = await read_digest(context, receiver)
    async with context.store.transaction() as tx:
        told: ToldRow = {
            "audience": receiver.audience,
            "event": DIGEST,
            "key": key,
            "notice_id": notice["id"],
            "seen_at": tx.now,
        }
        if await rows.add_told(tx, [told]):
            await rows.add_notice(tx, notice, [receiver.name])
            request_sending(tx, receiver)


def _backend_line(backend: Health) -> str:
    if backend.stats.pass_rate is None:
        return f"{backend.label} (L{backend.level}): no result that counts"
    return (
        f"{backend.label} (L{backend.level}): "
        f"{text.percent(backend.stats.pass_rate)} of {backend.stats.rated} passed"
    )


def _passes_filters(receiver: Receiver, notice: NoticeRow) -> bool:
    """Whether a notice is not a digest, and passes a receiver's filters."""
    about = notice["event"] in EVENT_NOUNS
    return about and receiver.concerns(
        repo=notice["repo"], backend=notice["backend"], oncalls=notice["oncalls"]
    )


async def _drop_unknown(context: Context, names: Collection[str]) -> None:
    """Drop the notices of receivers that are no longer in the settings."""
    async with context.store.read() as tx:
        unknown = await rows.awaited_receivers(tx) - set(names)
    if unknown:
        async with context.store.transaction() as tx:
            gone = await rows.drop_waiting(tx, unknown)
        log.warning("notices are not sent: their receiver is no longer in the settings", notices=gone)


async def _check_audience(context: Context, audience: str, receivers: Sequence[Receiver]) -> None:
    async with context.store.read() as tx:
        scope = ConditionScope(
            hidden=await hidden_of(tx, context.settings, audience),
            told=await rows.told_keys(tx, audience),
        )
        conditions: list[Condition] = []
        for read in load_each(context.features, "conditions"):
            conditions += await read(context, tx, scope)
        stale = await rows.stale_keys(tx, audience, tx.now - SEEN_EVERY)
    changes = compare_conditions(conditions, scope.told)
    still = stale & {(condition.event, condition.key) for condition in conditions if condition.holds}
    if changes.any or still:
        async with context.store.transaction() as tx:
            await rows.mark_seen(tx, audience, still, tx.now - SEEN_EVERY)
            await _tell_changes(tx, audience, changes, receivers)


async def _tell_changes(
    tx: Transaction, audience: str, changes: Changes, receivers: Sequence[Receiver]
) -> None:
    """Store what changed, its notices, and who gets them."""
    for notice in notices_of(changes.begun, audience=audience, now=tx.now):
        row = notice.row
        told = [_told_row(audience, row["event"], key, row["id"], tx.now) for key in notice.keys]
        if await rows.add_told(tx, told):
            await _store_notice(tx, notice, receivers)
    over = [
        condition
        for condition in changes.over
        if await rows.end_told(tx, audience, condition.event, condition.key)
        and CONDITION_EVENTS[condition.event]
    ]
    for notice in notices_of(over, audience=audience, now=tx.now):
        await _store_notice(tx, notice, receivers)


def _told_row(audience: str, event: str, key: str, notice_id: str, now: int) -> ToldRow:
    return {"audience": audience, "event": event, "key": key, "notice_id": notice_id, "seen_at": now}


async def _store_notice(tx: Transaction, notice: Notice, receivers: Collection[Receiver]) -> None:
    row = notice.row
    chosen = [
        receiver
        for receiver in receivers
        if receiver.wants(row["event"], repo=row["repo"], backend=row["backend"], oncalls=row["oncalls"])
    ]
    await rows.add_notice(tx, row, [receiver.name for receiver in chosen])
    for receiver in chosen:
        request_sending(tx, receiver)
    log.info("notice", notice_event=row["event"], heading=row["heading"], receivers=len(chosen))
