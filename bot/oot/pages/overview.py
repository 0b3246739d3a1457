"""GET /oot and its JSON: the health of every backend."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from bot.core import text
from bot.core.links import web_url
from bot.oot.allowlist import rows as allowlists
from bot.oot.pages import health
from bot.oot.pages.answers import Backend, backend_answer
from bot.oot.pages.backend_parameters import DAYS, EVENTS, LEVEL, NOTHING, ONCALL, RESULTS, WORDS
from bot.oot.pages.health_order import SORT, Order
from bot.oot.statistics.day_sums_cache import DAY_SUMS
from bot.oot.statistics.days import DAY
from bot.web import parameters
from bot.web.answers import Answer
from bot.web.view import Json, Page, View

if TYPE_CHECKING:
    from bot.oot.allowlist.allowlist import Allowlist
    from bot.oot.allowlist.tables import VersionRow
    from bot.oot.pages.health import Health
    from bot.web.asked import Asked

BLOCKING = 4  # level of the backends that merging waits for
EVENT_NAMES = {
    "pull_request": "pull requests", "push": "pushes", "nightly": "nightly tests", "periodic": "periodic tests",
}  # fmt: skip


class Summary(Answer, frozen=True, kw_only=True):
    """From L4 down, the worst first"""

    days: int
    backends: list[Backend]


@dataclass(frozen=True, kw_only=True)
class Overview:
    """The backends that the request selects."""

    days: int
    level: int | None
    words: str
    event: str  # comma-separated; empty: any
    oncall: str  # empty: anybody
    order: Order
    backends: list[Health]  # that match
    known: int  # whether they match or not
    newest: VersionRow | None
    in_force: Allowlist | None
    github: str
    now: int

    @property
    def chosen(self) -> dict[str, object]:
        """What narrows the list."""
        given = {"q": self.words, "level": self.level or "", "event": self.event, "oncall": self.oncall}
        return {name: value for name, value in given.items() if value}


async def read_overview(asked: Asked) -> Overview:
    """Read every backend that the request selects."""
    tx, level, words, oncall = asked.tx, asked[LEVEL], asked[WORDS], asked[ONCALL]
    known = await health.read_backends(
        tx, asked.hidden, asked[DAYS], asked.request.app[DAY_SUMS], asked[EVENTS]
    )
    return Overview(
        days=asked[DAYS],
        level=level,
        words=words,
        event=",".join(sorted(asked[EVENTS] or ())),
        oncall=oncall,
        order=asked[SORT],
        backends=asked[SORT].sort(
            one
            for one in known
            if one.matches(words) and level in {None, one.level} and one.has_oncall(oncall)
        ),
        known=len(known),
        newest=await allowlists.newest(tx) if asked.for_page else None,
        in_force=await allowlists.in_force(tx) if asked.for_page else None,
        github=web_url(asked.settings.github_api_url),
        now=tx.now,
    )


def show(found: Overview) -> dict[str, Any]:
    """Return what the page shows: backends by level, the worst first."""
    newest = found.newest
    return {
        "days": found.days,
        "level": found.level,
        "query": found.words,
        "windows": parameters.windows(found.days),
        "events": EVENT_NAMES,
        "event": found.event,
        "oncall": found.oncall,
        "order": found.order,
        "backends": found.backends,
        "chosen": "&" + urlencode(found.chosen) if found.chosen else "",
        "today": found.now // DAY,
        "trend_days": health.SPARK + 1,
        "silent": functools.partial(_silent, now=found.now),
        "reds": [one for one in found.backends if one.turned == "red"],
        "greens": [one for one in found.backends if one.turned == "green"],
        "groups": _groups(found),
        "tone": _tone(found.backends),
        "known": found.known,
        "allowlist_error": newest["error"] if newest and not newest["valid"] else None,
        "has_allowlist": newest is not None,
        "in_force": found.in_force,
        "github": found.github,
    }


def answer(found: Overview) -> Summary:
    """Return every backend and its numbers."""
    return Summary(days=found.days, backends=[backend_answer(one) for one in found.backends])


def _silent(one: Health, *, now: int) -> str:
    """Return how long a stale backend has been silent, "" for any other."""
    return text.duration((now - one.last_report_at) / 1000) if one.stale and one.last_report_at else ""


def _tone(backends: list[Health]) -> str:
    """Return the state of the page: bad where a backend that blocks has turned red, warn where another has."""
    red = [one.level for one in backends if one.turned == "red"]
    return "" if not red else "bad" if max(red) == BLOCKING else "warn"


def _groups(found: Overview) -> dict[int | None, list[Health]]:
    """Return the backends by level; in another order all of them together."""
    groups: dict[int | None, list[Health]] = {}
    for one in found.backends:
        if found.order.column:
            groups.setdefault(None, []).append(one)
            continue
        groups.setdefault(one.level, []).append(one)
    return groups


VIEW = View(
    read=read_overview,
    of_upstream=True,
    parameters=(DAYS, LEVEL, WORDS, EVENTS, ONCALL, SORT),
    page=Page(path="/oot", template="overview.html", values=show),
    json=Json(
        path="/api/oot/summary",
        answer=answer,
        content=Summary,
        name="summary",
        summary="Health of every backend",
        topic=RESULTS,
        refusals=(NOTHING,),
        link=lambda found: {"days": found.days, **found.chosen, "sort": found.order.text},
    ),
)
