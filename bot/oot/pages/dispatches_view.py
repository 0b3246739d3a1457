"""GET /oot/dispatches and its JSON: dispatches under way, those that wait longest first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlencode

from msgspec import Meta

from bot.oot.allowlist import rows as allowlists
from bot.oot.pages import dispatch_rows, health
from bot.oot.pages.backend_parameters import LEVEL, NOTHING, ONCALL, RESULTS, WORDS
from bot.oot.pages.dispatch_rows import WAYS
from bot.oot.results.tables import DispatchRow
from bot.oot.statistics.day_sums_cache import DAY_SUMS
from bot.web import view_parameters as declare
from bot.web.answers import Answer, Time, fill, one_of, time
from bot.web.row_answers import RowAnswer
from bot.web.view import Json, Page, View

if TYPE_CHECKING:
    from bot.oot.pages.dispatch_rows import Underway, Way
    from bot.web.asked import Asked

SHOWN = 300  # on the page
REFRESH = 60  # seconds
WEEK = 7  # days that say how long a backend's queue usually is
WORDS_OF: dict[Way, str] = {
    "held": "held for approval", "queued": "waiting for a machine", "sending": "to be sent",
    "waiting": "waiting for a report", "running": "running",
}  # fmt: skip
STATE = declare.choice("state", ("", *WAYS), "only dispatches that are so far")
LIMIT = declare.limit(200)
COLUMNS = (
    "delivery_id", "upstream_repo", "event_type", "pr_number", "head_sha", "backend", "level", "device", "attempts",
    "created_at", "dispatched_at",
)  # fmt: skip


class DispatchUnderway(RowAnswer, row=DispatchRow, only=COLUMNS, rename={"pr_number": "pr"}, frozen=True):
    """A dispatch that is not finished"""

    state: Annotated[str, one_of(WAYS)]
    since: Annotated[Time, Meta(description="when it was made, sent or began to run")]
    age: Annotated[float, Meta(description="seconds since then")]
    long: Annotated[bool, Meta(description="waits longer than nine of ten did in the last week")]
    oncalls: list[str]


class Dispatches(Answer, frozen=True, kw_only=True):
    """Dispatches under way, the oldest first"""

    total: int
    dispatches: list[DispatchUnderway]


@dataclass(frozen=True, kw_only=True)
class Line:
    """A dispatch under way, with what is known of its backend."""

    underway: Underway
    label: str
    oncalls: tuple[str, ...]
    long: bool


@dataclass(frozen=True, kw_only=True)
class Found:
    """The dispatches that the request selects."""

    lines: list[Line]
    total: int
    limit: int
    words: str
    level: int | None
    state: str
    oncall: str
    now: int


async def read_dispatches(asked: Asked) -> Found:
    """Read the dispatches under way."""
    backends = {
        one.repo.casefold(): one
        for one in await health.read_backends(asked.tx, asked.hidden, WEEK, asked.request.app[DAY_SUMS])
    }
    allowlist = await allowlists.in_force(asked.tx)
    entries = {entry.key: entry for entry in allowlist.entries} if allowlist else {}
    lines = []
    for one in await dispatch_rows.read_underway(asked.tx, hidden=asked.hidden.names):
        key = one.row["backend_key"]
        entry, known = entries.get(key), backends.get(key)
        line = Line(
            underway=one,
            label=entry.label if entry else one.row["backend"],
            oncalls=entry.oncalls if entry else (),
            long=health.waits_long(one, known, asked.tx.now),
        )
        if _matches(line, asked):
            lines.append(line)
    limit = SHOWN if asked.for_page else asked[LIMIT]
    return Found(
        lines=lines[:limit],
        total=len(lines),
        limit=limit,
        words=asked[WORDS],
        level=asked[LEVEL],
        state=asked[STATE],
        oncall=asked[ONCALL],
        now=asked.tx.now,
    )


def _matches(line: Line, asked: Asked) -> bool:
    row = line.underway.row
    names = f"{row['backend']} {row['device'] or ''}".casefold()
    return (
        all(word in names for word in asked[WORDS].casefold().split())
        and asked[LEVEL] in {None, row["level"]}
        and asked[STATE] in {"", line.underway.way}
        and (not asked[ONCALL] or asked[ONCALL] in map(str.casefold, line.oncalls))
    )


def show(found: Found) -> dict[str, Any]:
    """Return what the page shows."""
    chosen = {"q": found.words, "level": found.level, "state": found.state, "oncall": found.oncall}
    query = urlencode({name: value for name, value in chosen.items() if value})
    return {
        "lines": found.lines,
        "total": found.total,
        "query": found.words,
        "level": found.level,
        "chosen_state": found.state,
        "oncall": found.oncall,
        "words_of": WORDS_OF,
        "rest": f"&{query}" if query else "",
    }


def answer(found: Found) -> Dispatches:
    """Return the JSON of the dispatches."""
    return Dispatches(total=found.total, dispatches=[_answer(one, found.now) for one in found.lines])


def _answer(line: Line, now: int) -> DispatchUnderway:
    one = line.underway
    return fill(
        DispatchUnderway,
        one.row,
        state=one.way,
        since=time(one.since),
        age=(now - one.since) / 1000,
        long=line.long,
        oncalls=list(line.oncalls),
    )


VIEW = View(
    read=read_dispatches,
    of_upstream=True,
    parameters=(STATE, LEVEL, WORDS, ONCALL, LIMIT),
    page=Page(path="/oot/dispatches", template="dispatches.html", values=show, refresh=REFRESH),
    json=Json(
        path="/api/oot/dispatches",
        answer=answer,
        content=Dispatches,
        name="dispatchesUnderway",
        summary="Dispatches that wait or run",
        topic=RESULTS,
        refusals=(NOTHING,),
        link=lambda found: {
            "state": found.state, "level": found.level or "", "q": found.words, "oncall": found.oncall,
        },
    ),
)  # fmt: skip
