"""Events of projects that were mapped to no repository when they came, handled once they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.core.errors import Rejected
from bot.ingest import inbox
from bot.providers import admission, rows
from bot.providers.peek import peek_buildkite, peek_circleci
from bot.providers.settings import CIRCLECI, providers_of

if TYPE_CHECKING:
    from bot.context import Context
    from bot.core.settings import Settings
    from bot.ingest.tables import DeliveryRow

BATCH = 100  # events looked at in one transaction


async def take_up(context: Context) -> int:
    """Have every stored event handled whose project is mapped by now; returns how many."""
    taken = last = 0
    while True:
        async with context.store.read() as tx:
            batch = await rows.foreign_deliveries(tx, after=last, limit=BATCH)
        if not batch:
            return taken
        mapped = [
            (one["id"], subject.repo)
            for one in batch
            if (subject := _subject(context.settings, one)) and not subject.ignored
        ]
        async with context.store.transaction() as tx:
            await rows.take_up(tx, mapped)
        taken, last = taken + len(mapped), batch[-1]["id"]


def _subject(settings: Settings, one: DeliveryRow) -> admission.Subject | None:
    """Return what an event is about by the settings of today, None where it can no longer be read."""
    kind, _, event = one["event"].partition(".")
    body, trusted = inbox.read_body(one), providers_of(settings, kind)
    try:
        if kind == CIRCLECI:
            return admission.circleci_subject(peek_circleci(body), event, trusted)
        return admission.buildkite_subject(peek_buildkite(body), event, trusted)
    except Rejected:
        return None
