"""Conditions of backends that notices report: newly red, and silent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.core import text
from bot.core.conditions import Condition, Subject
from bot.core.resources import Resource
from bot.oot.pages import health
from bot.oot.statistics.day_sums_cache import DaySumsCache

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bot.context import Context
    from bot.core.conditions import Scope
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.oot.pages.health import Health

DAYS = 1  # of the numbers that a notice has


class _Sums(DaySumsCache):
    """The cache of sums of a worker."""

    async def close(self) -> None:
        """Nothing is open."""


DAY_SUMS: Resource[_Sums] = Resource("day sums", lambda _context: _Sums())


async def read_conditions(context: Context, tx: Transaction, scope: Scope) -> list[Condition]:
    """Return which backends are red or silent, and which are known not to be."""
    found = await health.read_backends(tx, scope.hidden, DAYS, context.resource(DAY_SUMS))
    shown = [one for one in found if one.listed and one.level > 1 and not scope.hidden.has(one.repo)]
    return [condition for one in shown for condition in _conditions(one, context.settings, tx.now)]


def _conditions(one: Health, settings: Settings, now: int) -> Iterator[Condition]:
    subject = Subject(
        repo=settings.upstream_repo[0] if len(settings.upstream_repo) == 1 else "",
        backend=one.repo,
        oncalls=one.oncalls,
        path=f"/oot/{one.repo}",
    )
    key, name = one.repo.casefold(), f"{one.label} (L{one.level})"
    rate, rated = one.stats.pass_rate, text.plural(one.stats.rated, "run")
    numbers = () if rate is None else (f"{text.percent(rate)} of {rated} passed in 24 hours",)
    if one.turned == "red":
        yield Condition(
            event="backend_red",
            key=key,
            holds=True,
            heading=f"{name} turned red",
            lines=numbers,
            subject=subject,
        )
    elif one.recent == "green":
        yield Condition(
            event="backend_red",
            key=key,
            holds=False,
            heading=f"{name} recovered",
            lines=numbers,
            subject=subject,
        )
    if one.last_report_at is None:
        return
    silent = text.duration((now - one.last_report_at) / 1000)
    yield Condition(
        event="backend_silent",
        key=key,
        holds=one.stale,
        heading=f"{name} is silent" if one.stale else f"{name} reports again",
        lines=(f"its last report came {silent} ago",) if one.stale else (),
        since=one.last_report_at if one.stale else None,
        subject=subject,
    )
