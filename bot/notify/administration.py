"""Receivers for the operator: a section of /admin, metrics, lines of the doctor."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bot.core import metrics, text
from bot.core.errors import StoreUnavailable
from bot.core.feature import Finding, ok, warning
from bot.db.store import LOCK_TIMEOUT
from bot.notify import rows
from bot.notify.receivers import NotifySettings
from bot.notify.sending import find_receiver, request_sending
from bot.web.access import CONTEXT
from bot.web.blocks import AdminSection, FormDone

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aiohttp import web

    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.notify.receivers import Receiver
    from bot.ops.doctor import Target
    from bot.web.access import Hidden


@dataclass(frozen=True, kw_only=True)
class ReceiverState:
    """A receiver, and the state of its notices."""

    receiver: Receiver
    counts: Mapping[str, int] = field(default_factory=dict)  # notices by state
    last_sent_at: int | None = None
    error: str = ""  # of the newest notice that it did not get, or has not yet


async def read_states(tx: Transaction, settings: Settings) -> list[ReceiverState]:
    """Return each receiver of the settings with its state."""
    counts: defaultdict[str, dict[str, int]] = defaultdict(dict)
    sent: dict[str, int | None] = {}
    for sending in await rows.count_sendings(tx):
        counts[sending.receiver][sending.state] = sending.number
        if sending.state == "sent":
            sent[sending.receiver] = sending.last_at
    errors = await rows.last_errors(tx)
    return [
        ReceiverState(
            receiver=receiver,
            counts=counts.get(receiver.name, {}),
            last_sent_at=sent.get(receiver.name),
            error=errors.get(receiver.name, ""),
        )
        for receiver in settings.of(NotifySettings).notify
    ]


async def retry_dead(tx: Transaction, settings: Settings, name: str = "") -> dict[str, int]:
    """Requeue notices that were given up, of one receiver or all; returns how many, by receiver."""
    names = [receiver.name for receiver in settings.of(NotifySettings).notify if name in {"", receiver.name}]
    requeued = await rows.requeue_dead(tx, names)
    for known in requeued:
        receiver = find_receiver(settings, known)
        assert receiver is not None
        request_sending(tx, receiver)
    return requeued


async def admin_section(tx: Transaction, settings: Settings) -> AdminSection:
    """Return the section of the administrator's page."""
    return AdminSection(template="admin_notify.html", values={"states": await read_states(tx, settings)})


async def retry_dead_by_form(request: web.Request, fields: Mapping[str, str]) -> FormDone:
    """Requeue the notices of a receiver that were given up."""
    context, name = request.app[CONTEXT], fields.get("receiver", "")
    if find_receiver(context.settings, name) is None:
        return FormDone(words="the settings have no receiver of that name")
    async with context.store.transaction(lock_timeout=LOCK_TIMEOUT) as tx:
        requeued = await retry_dead(tx, context.settings, name)
    return FormDone(words=f"{text.plural(requeued.get(name, 0), 'notice')} for {name} will be sent again")


async def measure_unsent(tx: Transaction, _settings: Settings, _hidden: Hidden) -> Callable[[], None]:
    """Return a function that shows how many notices were not sent."""
    counts = {"waiting": 0, "dead": 0}
    for sending in await rows.count_sendings(tx):
        if sending.state in counts:
            counts[sending.state] += sending.number

    def show() -> None:
        for state, number in counts.items():
            metrics.NOTICES_UNSENT.labels(state).set(number)

    return show


async def check_receivers(target: Target) -> list[Finding]:
    """Report receivers that did not get their notices; nothing without receivers."""
    receivers = target.settings.of(NotifySettings).notify
    if not receivers or not await target.has_database():
        return []
    try:
        async with target.store.read() as tx:
            states = await read_states(tx, target.settings)
    except StoreUnavailable:
        return []  # another check says so
    failing = [state for state in states if state.error]
    if not failing:
        return [ok("notify", f"{text.plural(len(receivers), 'receiver')}, nothing failed to be sent")]
    return [
        warning(
            "notify",
            f"{state.receiver.name}: {state.counts.get('dead', 0)} given up, {state.counts.get('waiting', 0)} waiting; "
            f"{state.error[:200]}",
            f"fix it, try `ootbot notify test {state.receiver.name}`, then `ootbot notify retry`",
        )
        for state in failing
    ]
