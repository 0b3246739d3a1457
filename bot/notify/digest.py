"""The daily digest: what is not over, what happened in a day, and the pass rate of every backend."""

from __future__ import annotations

import uuid
from collections import Counter
from typing import TYPE_CHECKING

from bot.core import text
from bot.notify import rows
from bot.notify.receivers import DIGEST
from bot.notify.send import request_sending
from bot.notify.visibility import hidden_of, is_hidden
from bot.oot.pages import health
from bot.oot.pages.conditions import DAY_SUMS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.context import Context
    from bot.notify.receivers import Receiver
    from bot.notify.tables import NoticeRow, ToldRow
    from bot.oot.pages.health import Health

DAY = 86_400_000  # milliseconds
LATEST = 3 * 3_600.0  # seconds after its time that a digest is still worth sending
MOST_NOTICES, MOST_OPEN, MOST_BACKENDS = 1_000, 10, 30
NOUNS = {
    "backend_red": "backend turned red", "backend_recovered": "backend recovered",
    "backend_silent": "backend fell silent", "backend_reporting": "backend reports again",
    "trunk_broken": "branch broke", "trunk_repaired": "branch was repaired",
    "gate_waiting": "gate waited long", "culprit_found": "culprit was found",
}  # fmt: skip


async def request_digests(context: Context, receivers: Sequence[Receiver]) -> None:
    """Have receivers sent the digests that are due, each once."""
    for receiver in receivers:
        due = receiver.digest_due(context.clock.now())
        if due is None or due[1] > LATEST:
            continue
        day, _ = due
        async with context.store.read() as tx:
            told = await rows.told_keys(tx, receiver.audience)
        key = f"{receiver.name}/{day}"
        if key not in told.get(DIGEST, ()):
            await _make(context, receiver, key)


async def _make(context: Context, receiver: Receiver, key: str) -> None:
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


async def read_digest(context: Context, receiver: Receiver) -> NoticeRow:
    """Return the digest of a receiver as of now."""
    settings = context.settings
    async with context.store.read() as tx:
        hidden = await hidden_of(tx, settings, receiver.audience)
        still = await rows.open_notices(tx, receiver.audience, limit=MOST_NOTICES)
        recent = await rows.recent(tx, receiver.audience, since=tx.now - DAY, limit=MOST_NOTICES)
        backends = await health.read_backends(tx, hidden, 1, context.resource(DAY_SUMS))
        now = tx.now
    shown = [
        one
        for one in backends
        if one.listed
        and one.level > 1
        and not hidden.has(one.repo)
        and receiver.concerns(repo="", backend=one.repo, oncalls=one.oncalls)
    ]
    heading, lines = describe_day(
        [one for one in still if _about(receiver, one) and not is_hidden(hidden, one)],
        [one for one in recent if _about(receiver, one) and not is_hidden(hidden, one)],
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
    counts = Counter(one["event"] for one in recent)
    happened = [f"{counts[event]} × {noun}" for event, noun in NOUNS.items() if counts[event]]  # noqa: RUF001
    summary = text.plural(len(still), "open matter") if still else "nothing is open"
    lines = [f"In the last 24 hours: {', '.join(happened) or 'nothing to tell'}"]
    for one in still[:MOST_OPEN]:
        since = one["at"] if one["began_at"] is None else one["began_at"]
        lines.append(f"Open: {one['heading']} (for {text.duration(max(0, now - since) / 1000)})")
    if len(still) > MOST_OPEN:
        lines.append(f"and {len(still) - MOST_OPEN} more open")
    lines += [_line(one) for one in backends[:MOST_BACKENDS]]
    if len(backends) > MOST_BACKENDS:
        lines.append(f"and {text.plural(len(backends) - MOST_BACKENDS, 'more backend')}")
    return f"Daily digest: {summary}", lines


def _line(one: Health) -> str:
    if one.stats.pass_rate is None:
        return f"{one.label} (L{one.level}): no result that counts"
    return f"{one.label} (L{one.level}): {text.percent(one.stats.pass_rate)} of {one.stats.rated} passed"


def _about(receiver: Receiver, notice: NoticeRow) -> bool:
    """Whether a notice is no digest, and passes a receiver's filters."""
    about = notice["event"] in NOUNS
    return about and receiver.concerns(
        repo=notice["repo"], backend=notice["backend"], oncalls=notice["oncalls"]
    )
