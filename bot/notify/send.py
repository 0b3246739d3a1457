"""The task `notify`: sends a receiver what it has yet to get, the oldest first (key: its name).

A notice has the same id in every attempt, so that a receiver can tell one that it got twice: after a crash, or a lost
answer, it is sent again. What cannot be sent for a day is given up, and shown to the operator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from bot.core import metrics
from bot.core.errors import RetryLater
from bot.notify import rows
from bot.notify.formats import body_of
from bot.notify.settings import NotifySettings
from bot.notify.signing import sign
from bot.notify.visibility import hidden_of, is_hidden
from bot.notify.webhooks import WEBHOOKS

if TYPE_CHECKING:
    from bot.context import Context
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.notify.receivers import Receiver
    from bot.notify.tables import NoticeRow, SendingRow
    from bot.notify.webhooks import Attempt, Webhooks
    from bot.queue.tasks import Task

log = structlog.get_logger("bot.notify.send")

KIND = "notify"
BACKOFF = (5.0, 30.0, 120.0, 300.0, 600.0, 1_800.0, 3_600.0)  # seconds
GIVE_UP_AFTER = 86_400_000  # milliseconds


def request_sending(tx: Transaction, receiver: Receiver) -> None:
    """Have a receiver sent what it has yet to get, once it may be disturbed."""
    tx.enqueue(KIND, receiver.name, delay=receiver.quiet_seconds(tx.now))


def find_receiver(settings: Settings, name: str) -> Receiver | None:
    """Return a receiver by its name."""
    return next((one for one in settings.of(NotifySettings).notify if one.name == name), None)


async def send_notices(context: Context, task: Task) -> None:
    """Send one receiver what waits for it; raises RetryLater where it does not take it yet."""
    receiver = find_receiver(context.settings, task.key)
    if receiver is None:
        return  # what waits for it is dropped
    if wait := receiver.quiet_seconds(context.clock.now()):
        raise RetryLater("its quiet hours", after=wait)
    while True:
        async with context.store.read() as tx:
            found = await rows.waiting(tx, receiver.name)
            hidden = await hidden_of(tx, context.settings, receiver.audience)
        for row, notice in found:
            if is_hidden(hidden, notice):
                await _drop(context, row)
            else:
                await _send(context, receiver, row, notice)
        if len(found) < rows.AT_ONCE:
            return


async def _drop(context: Context, row: SendingRow) -> None:
    """Leave out what became private while it waited."""
    async with context.store.transaction() as tx:
        await rows.settle(tx, row, "dropped", "its repository is private now")


async def _send(context: Context, receiver: Receiver, row: SendingRow, notice: NoticeRow) -> None:
    attempt = await post_notice(
        context.resource(WEBHOOKS), receiver, notice, url=context.settings.url, now=context.clock.now()
    )
    late = context.clock.now() - row["created_at"] >= GIVE_UP_AFTER
    state = "sent" if not attempt.error else "dead" if attempt.final or late else "waiting"
    metrics.NOTICES.labels(state if state != "waiting" else "failed").inc()
    async with context.store.transaction() as tx:
        await rows.settle(tx, row, state, attempt.error or None)
    if state == "dead":
        log.warning(
            "a notice was given up", receiver=receiver.name, notice=notice["id"], reason=attempt.error
        )
    elif state == "waiting":
        step = BACKOFF[min(row["attempts"], len(BACKOFF) - 1)]
        raise RetryLater(f"{receiver.name}: {attempt.error}", after=max(step, attempt.after or 0))


async def post_notice(
    webhooks: Webhooks, receiver: Receiver, notice: NoticeRow, *, url: str, now: int
) -> Attempt:
    """Post a notice to a receiver once; `url` is the address of this bot."""
    body = body_of(notice, kind=receiver.format, url=url)
    headers = sign(body, identifier=notice["id"], at=now // 1000, keys=receiver.keys)
    return await webhooks.post(receiver.url, body, headers, internal=receiver.internal)
