"""GET /oot/levels and /api/oot/levels: who is ready for more, who for less, and what do the words mean?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from aiohttp import web

from bot.domain import readiness
from bot.domain.days import DAY
from bot.domain.readiness import HIGHEST, Thresholds, Word
from bot.domain.urls import web_url
from bot.store import allowlists
from bot.web import access, parameters, shown
from bot.web.aside import aside
from bot.web.html import page, render
from bot.web.keys import CONTEXT
from bot.web.past import PAST

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bot.domain.allowlist import Entry
    from bot.domain.days import Day
    from bot.domain.readiness import Measure, Readiness, Sums
    from bot.settings import Settings
    from bot.store import Transaction
    from bot.web.access import Hidden
    from bot.web.past import Past

Row = dict[str, Any]
_ORDER = {Word.MISSES: 0, Word.MEETS: 1, Word.UNKNOWN: 2}


@dataclass(frozen=True, kw_only=True)
class Judged:
    """One listed backend and what its numbers say of its level."""

    entry: Entry
    since: int | None  # epoch milliseconds
    readiness: Readiness

    @property
    def advice(self) -> str:
        """What an operator might do about its level."""
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
        """The colour and sign the advice is shown with."""
        if self.readiness.demote is Word.MISSES and self.entry.level > 1:
            return "bad"
        return "good" if self.readiness.promote is Word.MEETS and self.entry.level < HIGHEST else "idle"


@page
async def levels(request: web.Request) -> web.Response:
    """Show readiness, what levels and words mean, and who is on the allowlist."""
    context = request.app[CONTEXT]
    words = parameters.words(request)
    async with context.store.read() as tx:
        hidden = await access.of_request(request, tx)
        hidden.check_upstream(context.settings)
        in_force = await allowlists.in_force(tx)
        newest = await allowlists.newest(tx)
        judged = await _judged(tx, hidden, context.settings, request.app[PAST])
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


@aside
async def as_json(request: web.Request) -> web.Response:
    """Answer with every listed backend's readiness; `q` narrows the list."""
    context = request.app[CONTEXT]
    words = parameters.words(request)
    async with context.store.read() as tx:
        hidden = await access.of_request(request, tx)
        hidden.check_upstream(context.settings)
        judged = await _judged(tx, hidden, context.settings, request.app[PAST])
    return web.json_response({"ok": True, "backends": [_row(one) for one in judged if _matches(one, words)]})


def thresholds(settings: Settings) -> Thresholds:
    """Return what promotion and demotion look at, as the settings say."""
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


async def _judged(tx: Transaction, hidden: Hidden, settings: Settings, past: Past) -> list[Judged]:
    """Return every listed backend that reports, those for less first, then those ready for more."""
    in_force = await allowlists.in_force(tx)
    entries = [entry for entry in in_force.entries if entry.level > 1] if in_force else []
    today, limits = tx.now // DAY, thresholds(settings)
    span = (today - max(readiness.WINDOW, settings.demotion_days), today)

    def add_up(days: Iterable[Day]) -> Sums:
        visible = [one for one in days if not hidden.has(one.upstream)]
        return readiness.add_up(visible, limits, today=today)

    sums = await past.of_days(tx, ("readiness", hidden.names), span, add_up)
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


def _judge(entry: Entry, sums: Sums, known: tuple[int, int] | None, limits: Thresholds, now: int) -> Judged:
    level = int(entry.level)
    since = known[1] if known and known[0] == level else None
    return Judged(
        entry=entry,
        since=since,
        readiness=readiness.judge(sums, limits, level=level, since=since, now=now),
    )


def _matches(one: Judged, words: str) -> bool:
    names = f"{one.entry.repo} {one.entry.device or ''}".casefold()
    return all(word in names for word in words.casefold().split())


def _row(one: Judged) -> Row:
    return {
        "repo": one.entry.repo,
        "level": int(one.entry.level),
        "device": one.entry.device,
        "since": shown.time(one.since),
        "advice": one.advice,
        "promotion": str(one.readiness.promote),
        "demotion": str(one.readiness.demote),
        "measures": [_measure(measure) for measure in one.readiness.measures],
        "demotion_measures": [_measure(measure) for measure in one.readiness.demotion],
    }


def _measure(one: Measure) -> Row:
    return {
        "name": one.name,
        "value": one.number,
        "shown": one.value,
        "threshold": one.threshold,
        "word": str(one.word),
    }
