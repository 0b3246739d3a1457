"""GET /oot/levels and /api/oot/levels: readiness of backends, the allowlist, and what levels and states mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from bot.core.links import web_url
from bot.oot.allowlist import rows as allowlists
from bot.oot.pages import answers
from bot.oot.statistics import readiness
from bot.oot.statistics.day_sums_cache import DAY_SUMS
from bot.oot.statistics.days import DAY
from bot.oot.statistics.readiness import HIGHEST, Thresholds, Word
from bot.web import access, parameters
from bot.web.answers import fill, send, time
from bot.web.app_keys import CONTEXT
from bot.web.html import page, render
from bot.web.render_thread import in_render_thread

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aiohttp import web

    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.oot.allowlist.allowlist import Entry
    from bot.oot.statistics.day_sums_cache import DaySumsCache
    from bot.oot.statistics.days import Day
    from bot.oot.statistics.readiness import Measure, Readiness, Sums
    from bot.web.access import Hidden

_ORDER = {Word.MISSES: 0, Word.MEETS: 1, Word.UNKNOWN: 2}


@dataclass(frozen=True, kw_only=True)
class BackendReadiness:
    """One listed backend and whether its numbers suggest promotion or demotion."""

    entry: Entry
    since: int | None  # epoch milliseconds
    readiness: Readiness

    @property
    def advice(self) -> str:
        """Advice to an operator about its level."""
        level, found = int(self.entry.level), self.readiness
        if found.demote is Word.MISSES and level > 1:
            missed = ", ".join(one.name for one in found.demotion if one.word is Word.MISSES)
            return f"demotion to L{level - 1} is due: {missed}"
        if level < HIGHEST and found.promote is Word.MEETS:
            return f"ready for L{level + 1}"
        if found.promote is Word.MISSES and level < HIGHEST:
            missed = ", ".join(one.name for one in found.measures if one.word is Word.MISSES)
            return f"not ready for L{level + 1}: {missed}"
        return f"stays at L{level}"

    @property
    def tone(self) -> str:
        """Colour and sign of the advice."""
        if self.readiness.demote is Word.MISSES and self.entry.level > 1:
            return "bad"
        return "good" if self.readiness.promote is Word.MEETS and self.entry.level < HIGHEST else "idle"


@page
async def levels(request: web.Request) -> web.Response:
    """Show readiness, what levels and states mean, and the allowlist."""
    context = request.app[CONTEXT]
    words = parameters.words(request)
    async with context.store.read() as tx:
        hidden = await access.hidden_from(request, tx)
        hidden.check_upstream(context.settings)
        in_force = await allowlists.in_force(tx)
        newest = await allowlists.newest(tx)
        judged = await _judged(tx, hidden, context.settings, request.app[DAY_SUMS])
    return render(
        request,
        "levels.html",
        in_force=in_force,
        newest=newest,
        judged=[one for one in judged if _matches(one, words)],
        query=words,
        limits=thresholds(context.settings),
        label_prefixes=context.settings.label_prefixes,
        github=web_url(context.settings.github_api_url),
        json_url="/api/oot/levels?" + urlencode({"q": words}) if words else "/api/oot/levels",
    )


@in_render_thread
async def as_json(request: web.Request) -> web.Response:
    """Answer with every listed backend's readiness; `q` narrows the list."""
    context = request.app[CONTEXT]
    words = parameters.words(request)
    async with context.store.read() as tx:
        hidden = await access.hidden_from(request, tx)
        hidden.check_upstream(context.settings)
        judged = await _judged(tx, hidden, context.settings, request.app[DAY_SUMS])
    return send(answers.Levels(backends=[_shown(one) for one in judged if _matches(one, words)]))


def thresholds(settings: Settings) -> Thresholds:
    """Return the thresholds that the settings hold."""
    return Thresholds(
        pass_rate=settings.readiness_pass_rate,
        timeout_rate=settings.readiness_timeout_rate,
        long_rate=settings.readiness_long_rate,
        long=settings.readiness_long,
        queue=settings.readiness_queue,
        tenure=settings.readiness_tenure,
        data_days=settings.readiness_data_days,
        demotion_days=settings.demotion_days,
        demotion_pass_rate=settings.demotion_pass_rate,
        demotion_timeout_rate=settings.demotion_timeout_rate,
        demotion_long=settings.demotion_long,
    )


async def _judged(
    tx: Transaction, hidden: Hidden, settings: Settings, cache: DaySumsCache
) -> list[BackendReadiness]:
    """Return every listed backend that reports: those due for demotion first."""
    in_force = await allowlists.in_force(tx)
    entries = [entry for entry in in_force.entries if entry.level > 1] if in_force else []
    today, limits = tx.now // DAY, thresholds(settings)
    span = (today - max(readiness.WINDOW, settings.demotion_days), today)

    def add_up(days: Iterable[Day]) -> Sums:
        visible = [one for one in days if not hidden.has(one.upstream_key)]
        return readiness.add_up(visible, limits, today=today)

    sums = await cache.of_days(tx, ("readiness", hidden.names), span, add_up)
    since = await allowlists.levels(tx)
    found = [
        _judge(entry, sums.get(entry.key) or add_up([]), since.get(entry.key), limits, tx.now)
        for entry in entries
    ]
    return sorted(
        found,
        key=lambda one: (
            _ORDER[one.readiness.demote],
            -int(one.entry.level),
            one.tone != "good",
            one.entry.label.casefold(),
        ),
    )


def _judge(
    entry: Entry, sums: Sums, known: tuple[int, int] | None, limits: Thresholds, now: int
) -> BackendReadiness:
    level = int(entry.level)
    since = known[1] if known and known[0] == level else None
    return BackendReadiness(
        entry=entry,
        since=since,
        readiness=readiness.judge(sums, limits, level=level, since=since, now=now),
    )


def _matches(one: BackendReadiness, words: str) -> bool:
    names = f"{one.entry.repo} {one.entry.device or ''}".casefold()
    return all(word in names for word in words.casefold().split())


def _shown(one: BackendReadiness) -> answers.Readiness:
    return answers.Readiness(
        repo=one.entry.repo,
        level=one.entry.level,
        device=one.entry.device,
        since=time(one.since),
        advice=one.advice,
        promotion=one.readiness.promote,
        demotion=one.readiness.demote,
        measures=[_measure(measure) for measure in one.readiness.measures],
        demotion_measures=[_measure(measure) for measure in one.readiness.demotion],
    )


def _measure(one: Measure) -> answers.Measure:
    return fill(answers.Measure, one, value=one.number, shown=one.value)
