"""GET /oot and its JSON: the health of all backends, in the order that an address asks for."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlencode

from bot.core import text
from bot.core.escaping import web_url
from bot.oot.allowlist import versions as allowlists
from bot.oot.statistics import health
from bot.oot.statistics.daily_sums import DAY_SUMS
from bot.oot.statistics.stats import DAY
from bot.pages.backends.interface import (
    DAYS,
    EVENTS,
    LEVEL,
    NOTHING_TO_SHOW,
    ONCALL,
    RESULTS,
    WORDS,
    Backend,
    backend_answer,
)
from bot.web import addresses
from bot.web import parameters as declare
from bot.web.answers import Answer, matching
from bot.web.openapi import INVALID_PARAMETER
from bot.web.view import Json, Page, View

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from bot.oot.allowlist.allowlist import Allowlist
    from bot.oot.allowlist.versions import VersionRow
    from bot.oot.statistics.health import Health
    from bot.web.parameters import Parameter, Query

SortValue = float | str | None
# what each column is sorted by, and whether its largest come first
SORT_VALUES: Mapping[str, tuple[Callable[[Health], SortValue], bool]] = {
    "name": (lambda backend: backend.label.casefold(), False),
    "pass_rate": (lambda backend: backend.stats.pass_rate, False),
    "runs": (lambda backend: backend.stats.runs, True),
    "failed": (lambda backend: backend.stats.failure, True),
    "timed_out": (lambda backend: backend.stats.timed_out, True),
    "never_started": (lambda backend: backend.stats.never_started, True),
    "duration": (lambda backend: backend.stats.median_execution_time, True),
    "queue": (lambda backend: backend.stats.median_queue_time, True),
    "waiting": (lambda backend: backend.waiting, True),
    "last_report": (lambda backend: backend.last_report_at, False),
}
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
    order: BackendOrder
    backends: list[Health]  # that match
    known: int  # whether they match or not
    newest: VersionRow | None
    in_force: Allowlist | None
    github: str
    now: int

    @property
    def chosen(self) -> dict[str, object]:
        """The parameters that narrow the list."""
        given = {"q": self.words, "level": self.level or "", "event": self.event, "oncall": self.oncall}
        return {name: value for name, value in given.items() if value}


@dataclass(frozen=True, kw_only=True)
class BackendOrder:
    """How backends are sorted."""

    column: str = ""  # empty: by level, the worst first
    reverse: bool = False  # the other way round than usual for this column

    @property
    def text(self) -> str:
        """The order as addresses write it."""
        return f"-{self.column}" if self.reverse else self.column

    def link(self, column: str) -> str:
        """Return the order that a click on a column selects: by that column, or its other direction."""
        return f"-{column}" if column == self.column and not self.reverse else column

    def direction(self, column: str) -> str:
        """Return the direction in which a column is sorted, in the words of browsers; empty for other columns."""
        if column != self.column:
            return ""
        return "descending" if SORT_VALUES[column][1] is not self.reverse else "ascending"

    def sort(self, backends: Iterable[Health]) -> list[Health]:
        """Sort backends; those without a value come last in either direction."""
        listed = list(backends)
        if not self.column:
            return listed
        value, largest_first = SORT_VALUES[self.column]
        known = [backend for backend in listed if value(backend) is not None]
        unknown = [backend for backend in listed if value(backend) is None]
        known.sort(key=lambda backend: backend.label.casefold())
        known.sort(key=value, reverse=largest_first is not self.reverse)  # type: ignore[arg-type]  # all of one kind
        return known + unknown


def _parse_order(text: str) -> BackendOrder:
    column = text.removeprefix("-")
    if column not in SORT_VALUES:
        detail = f"sort must be one of {', '.join(SORT_VALUES)}; a - before it turns the order round"
        raise INVALID_PARAMETER.because(detail)
    return BackendOrder(column=column, reverse=text != column)


SORT: Parameter[BackendOrder] = declare.parsed(
    "sort",
    Annotated[str, matching(f"-?({'|'.join(SORT_VALUES)})")],
    "the order, by one of these columns; a - before it turns it round. Otherwise by level, the worst first",
    parse=_parse_order,
    default=BackendOrder(),
)


async def read_overview(query: Query) -> Overview:
    """Read every backend that the request selects."""
    tx, level, words, oncall = query.tx, query[LEVEL], query[WORDS], query[ONCALL]
    known = await health.read_backends(
        tx, query.hidden, query[DAYS], query.request.app[DAY_SUMS], query[EVENTS]
    )
    return Overview(
        days=query[DAYS],
        level=level,
        words=words,
        event=",".join(sorted(query[EVENTS] or ())),
        oncall=oncall,
        order=query[SORT],
        backends=query[SORT].sort(
            backend
            for backend in known
            if backend.matches(words) and level in {None, backend.level} and backend.has_oncall(oncall)
        ),
        known=len(known),
        newest=await allowlists.read_newest(tx) if query.for_page else None,
        in_force=await allowlists.read_in_force(tx) if query.for_page else None,
        github=web_url(query.settings.github_api_url),
        now=tx.now,
    )


def show_overview(overview: Overview) -> dict[str, Any]:
    """Return what the page shows: backends by level, the worst first."""
    newest = overview.newest
    return {
        "days": overview.days,
        "level": overview.level,
        "query": overview.words,
        "windows": addresses.windows(overview.days),
        "events": EVENT_NAMES,
        "event": overview.event,
        "oncall": overview.oncall,
        "order": overview.order,
        "backends": overview.backends,
        "chosen": "&" + urlencode(overview.chosen) if overview.chosen else "",
        "today": overview.now // DAY,
        "trend_days": health.SPARK + 1,
        "silent": functools.partial(_silent, now=overview.now),
        "reds": [backend for backend in overview.backends if backend.turned == "red"],
        "greens": [backend for backend in overview.backends if backend.turned == "green"],
        "groups": _groups(overview),
        "tone": _tone(overview.backends),
        "known": overview.known,
        "allowlist_error": newest["error"] if newest and not newest["valid"] else None,
        "has_allowlist": newest is not None,
        "in_force": overview.in_force,
        "github": overview.github,
    }


def answer_overview(overview: Overview) -> Summary:
    """Return every backend and its numbers."""
    return Summary(days=overview.days, backends=[backend_answer(backend) for backend in overview.backends])


VIEW = View(
    read=read_overview,
    of_upstream=True,
    parameters=(DAYS, LEVEL, WORDS, EVENTS, ONCALL, SORT),
    page=Page(path="/oot", template="overview.html", values=show_overview),
    json=Json(
        path="/api/oot/summary",
        answer=answer_overview,
        content=Summary,
        name="summary",
        summary="Health of every backend",
        topic=RESULTS,
        refusals=(NOTHING_TO_SHOW,),
        link=lambda overview: {"days": overview.days, **overview.chosen, "sort": overview.order.text},
    ),
)


def _silent(backend: Health, *, now: int) -> str:
    """Return how long a stale backend has been silent; "" for any other."""
    return (
        text.duration((now - backend.last_report_at) / 1000)
        if backend.stale and backend.last_report_at
        else ""
    )


def _tone(backends: list[Health]) -> str:
    """Return the state of the page: bad where a backend that blocks has turned red, warn where another has."""
    red = [backend.level for backend in backends if backend.turned == "red"]
    return "" if not red else "bad" if max(red) == BLOCKING else "warn"


def _groups(overview: Overview) -> dict[int | None, list[Health]]:
    """Group the backends by level; in any other order they form one group."""
    groups: dict[int | None, list[Health]] = {}
    for backend in overview.backends:
        if overview.order.column:
            groups.setdefault(None, []).append(backend)
            continue
        groups.setdefault(backend.level, []).append(backend)
    return groups
