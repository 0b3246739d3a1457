"""GET /oot/dispatches and GET /oot/{org}/{repo}/pings/{id}: dispatches under way, the steps of a test dispatch."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlencode

from msgspec import Meta, Struct

from bot.oot.allowlist import versions as allowlists
from bot.oot.allowlist.entry import Level
from bot.oot.dispatch.ping import ping_path
from bot.oot.reports import rows
from bot.oot.reports.acceptance import PING_PREFIX
from bot.oot.reports.rows import PingRow
from bot.oot.results.tables import DispatchRow
from bot.oot.statistics import health
from bot.oot.statistics.daily_sums import DAY_SUMS
from bot.oot.statistics.health import WAYS
from bot.pages.backends.interface import BACKEND, LEVEL, NOTHING_TO_SHOW, ONCALL, RESULTS, WORDS
from bot.web import parameters as declare
from bot.web.answers import Answer, RowAnswer, Time, fill_struct, matching, one_of, time
from bot.web.blocks import Block, BlockLine
from bot.web.openapi import DeclaredRefusal
from bot.web.view import Json, Page, View

if TYPE_CHECKING:
    from bot.db.transaction import Transaction
    from bot.ingest.record_rows import WorkflowRunRow
    from bot.oot.allowlist.entry import Entry
    from bot.oot.statistics.health import Underway, Way
    from bot.web.blocks import BackendPageSubject, Tone
    from bot.web.parameters import Query

PINGS_SHOWN = 5  # newest pings of a backend
SKEW = 5_000  # milliseconds that GitHub's clock may be behind
PATIENCE = 600_000  # milliseconds until a step that has not come is likely not to
PING_TONES: dict[str, Tone] = {"ok": "good", "failed": "bad", "waiting": "wait"}
LISTEN = "does a workflow on the default branch have `repository_dispatch: types: [..., ping]`?"
MOST_SHOWN = 300  # on the page
DISPATCHES_REFRESH = 60  # seconds
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
PING_REFRESH = 5  # seconds between two looks at a ping that goes on
PING_STATES = ("ok", "failed", "waiting")
UNKNOWN_PING = DeclaredRefusal(
    404, "unknown_ping", "no ping of that id was sent to this backend, or it is private"
)
PING_ID = re.compile(f"{PING_PREFIX}[0-9a-f-]{{36}}")
PING_PARAMETER = declare.in_path(
    "id", Annotated[str, matching(PING_ID)], "id of the ping", parse=lambda text: text[:100], default=""
)


@dataclass(frozen=True, kw_only=True)
class PingStage:
    """One step of a ping."""

    name: str
    state: str  # ok | failed | waiting
    words: str
    at: int | None = None  # epoch milliseconds
    url: str | None = None

    @property
    def tone(self) -> Tone:
        """Its sign and colour."""
        return PING_TONES[self.state]


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
class UnderwayLine:
    """A dispatch under way, with what is known of its backend."""

    underway: Underway
    label: str
    oncalls: tuple[str, ...]
    long: bool


@dataclass(frozen=True, kw_only=True)
class SelectedDispatches:
    """The dispatches that the request selects."""

    lines: list[UnderwayLine]
    total: int
    limit: int
    words: str
    level: int | None
    state: str
    oncall: str
    now: int


class PingStep(Struct, frozen=True, kw_only=True):
    """One step of a ping."""

    name: str
    state: Annotated[str, one_of(PING_STATES)]
    words: str
    at: Time | None


class Ping(
    RowAnswer, row=PingRow, only=("id", "backend", "requested_by", "created_at"), frozen=True, kw_only=True
):
    """A test dispatch and how far it has come"""

    outcome: Annotated[str, one_of(PING_STATES)]
    words: str
    steps: list[PingStep]


@dataclass(frozen=True, kw_only=True)
class PingWithSteps:
    """A ping and its steps."""

    row: PingRow
    steps: list[PingStage]

    @property
    def state(self) -> str:
        """How it went as a whole."""
        return outcome_of(self.steps)[0]

    @property
    def words(self) -> str:
        """Where it stands."""
        return outcome_of(self.steps)[1]


async def read_steps(tx: Transaction, row: PingRow) -> list[PingStage]:
    """Return the steps of a ping in order."""
    allowlist = await allowlists.read_in_force(tx)
    entry = allowlist.find(row["backend"]) if allowlist else None
    run = None
    if row["sent_at"] is not None:
        event = f"{entry.dispatch if entry else 'repository'}_dispatch"
        run = await rows.read_first_run(tx, row["backend"], event, row["sent_at"] - SKEW)
    return describe_steps(row, entry, run, now=tx.now)


def describe_steps(
    row: PingRow, entry: Entry | None, run: WorkflowRunRow | None, *, now: int
) -> list[PingStage]:
    """Return the steps: each is done, has failed, or has not come yet, with what to look at."""
    late = now - row["created_at"] > PATIENCE
    return [
        _allowlisted(entry),
        *_sent(row),
        _started(row, entry, run, late=late),
        *_reported(row, late=late),
    ]


def outcome_of(steps: list[PingStage]) -> tuple[str, str]:
    """Return the state of a whole ping, and the words that say where it stands."""
    failed = next((step for step in steps if step.state == "failed"), None)
    if failed is not None:
        return "failed", f"{failed.name}: {failed.words or 'no'}"
    waiting = next((step for step in steps if step.state == "waiting"), None)
    if waiting is not None:
        return "waiting", f"waiting: {waiting.name}"
    return "ok", "every step works"


async def describe_pings(tx: Transaction, subject: BackendPageSubject) -> list[Block]:
    """Return the newest pings, for the page of their backend."""
    lines = []
    for row in await rows.read_newest_pings(tx, subject.repo, limit=PINGS_SHOWN):
        state, words = outcome_of(await read_steps(tx, row))
        text = f"{words} (asked for by {row['requested_by']})"
        lines.append(BlockLine(text=text, url=ping_path(row), tone=PING_TONES[state]))
    return [Block(heading="Pings", lines=tuple(lines), last=True)] if lines else []


async def read_dispatches(query: Query) -> SelectedDispatches:
    """Read the dispatches under way."""
    backends = {
        backend.repo.casefold(): backend
        for backend in await health.read_backends(query.tx, query.hidden, WEEK, query.request.app[DAY_SUMS])
    }
    allowlist = await allowlists.read_in_force(query.tx)
    entries = {entry.key: entry for entry in allowlist.entries} if allowlist else {}
    lines = []
    for underway in await health.read_underway(query.tx, hidden=query.hidden.names):
        key = underway.row["backend_key"]
        entry, known = entries.get(key), backends.get(key)
        line = UnderwayLine(
            underway=underway,
            label=entry.label if entry else underway.row["backend"],
            oncalls=entry.oncalls if entry else (),
            long=health.waits_long(underway, known, query.tx.now),
        )
        if _matches(line, query):
            lines.append(line)
    limit = MOST_SHOWN if query.for_page else query[LIMIT]
    return SelectedDispatches(
        lines=lines[:limit],
        total=len(lines),
        limit=limit,
        words=query[WORDS],
        level=query[LEVEL],
        state=query[STATE],
        oncall=query[ONCALL],
        now=query.tx.now,
    )


def show_dispatches(selected: SelectedDispatches) -> dict[str, Any]:
    """Return what the page shows."""
    chosen = {
        "q": selected.words,
        "level": selected.level,
        "state": selected.state,
        "oncall": selected.oncall,
    }
    query = urlencode({name: value for name, value in chosen.items() if value})
    return {
        "lines": selected.lines,
        "total": selected.total,
        "query": selected.words,
        "level": selected.level,
        "chosen_state": selected.state,
        "oncall": selected.oncall,
        "words_of": WORDS_OF,
        "rest": f"&{query}" if query else "",
    }


def answer_dispatches(selected: SelectedDispatches) -> Dispatches:
    """Return the JSON of the dispatches."""
    return Dispatches(
        total=selected.total, dispatches=[_answer_dispatch(line, selected.now) for line in selected.lines]
    )


DISPATCHES_VIEW = View(
    read=read_dispatches,
    of_upstream=True,
    parameters=(STATE, LEVEL, WORDS, ONCALL, LIMIT),
    page=Page(path="/oot/dispatches", template="dispatches.html", values=show_dispatches, refresh=DISPATCHES_REFRESH),
    json=Json(
        path="/api/oot/dispatches",
        answer=answer_dispatches,
        content=Dispatches,
        name="dispatchesUnderway",
        summary="Dispatches that wait or run",
        topic=RESULTS,
        refusals=(NOTHING_TO_SHOW,),
        link=lambda selected: {
            "state": selected.state, "level": selected.level or "", "q": selected.words, "oncall": selected.oncall,
        },
    ),
)  # fmt: skip


async def read_ping(query: Query) -> PingWithSteps:
    """Read a ping; raises Rejected 404."""
    row = None if query.hidden.has(query[BACKEND]) else await rows.get_ping(query.tx, query[PING_PARAMETER])
    if row is None or row["backend_key"] != query[BACKEND].casefold():
        raise UNKNOWN_PING.because(f"{query[BACKEND][:200]} has no ping {query[PING_PARAMETER]}")
    return PingWithSteps(row=row, steps=await read_steps(query.tx, row))


def show_ping(ping: PingWithSteps) -> dict[str, Any]:
    """Return what the page shows."""
    return {"ping": ping.row, "steps": ping.steps, "state": ping.state, "words": ping.words}


def answer_ping(ping: PingWithSteps) -> Ping:
    """Return the ping as JSON."""
    return fill_struct(
        Ping,
        ping.row,
        outcome=ping.state,
        words=ping.words,
        steps=[
            PingStep(name=step.name, state=step.state, words=step.words, at=time(step.at))
            for step in ping.steps
        ],
    )


PING_VIEW = View(
    read=read_ping,
    of_upstream=True,
    parameters=(BACKEND, PING_PARAMETER),
    page=Page(
        path="/oot/{org}/{repo}/pings/{id}",
        template="ping.html",
        values=show_ping,
        refresh=lambda ping: PING_REFRESH if ping.state == "waiting" else 0,
    ),
    json=Json(
        path="/api/oot/backends/{org}/{repo}/pings/{id}",
        answer=answer_ping,
        content=Ping,
        name="ping",
        summary="The steps of a test dispatch",
        topic=RESULTS,
        refusals=(NOTHING_TO_SHOW, UNKNOWN_PING),
        link=lambda ping: {"repo": ping.row["backend"], "id": ping.row["id"]},
    ),
)


def _allowlisted(entry: Entry | None) -> PingStage:
    if entry is None:
        return PingStage(
            name="allowlisted", state="failed", words="it is not on the allowlist: ask upstream to add it"
        )
    if entry.level < Level.L2:
        words = "at L1, where nothing is reported back: its report will be refused"
        return PingStage(name="allowlisted", state="failed", words=words)
    return PingStage(name="allowlisted", state="ok", words=f"at L{int(entry.level)}")


def _sent(row: PingRow) -> list[PingStage]:
    if row["state"] == "pending":
        return [
            PingStage(name="installed", state="waiting", words="GitHub is being asked"),
            PingStage(name="dispatch sent", state="waiting", words=""),
        ]
    if row["state"] == "not_installed":
        return [
            PingStage(
                name="installed", state="failed", words=row["error"] or "the App is not installed there"
            ),
            PingStage(name="dispatch sent", state="failed", words="it could not be sent"),
        ]
    installed = PingStage(name="installed", state="ok", words="the App may dispatch to it")
    if row["state"] == "failed":
        return [
            installed,
            PingStage(name="dispatch sent", state="failed", words=row["error"] or "GitHub refused it"),
        ]
    return [installed, PingStage(name="dispatch sent", state="ok", words="GitHub took it", at=row["sent_at"])]


def _started(row: PingRow, entry: Entry | None, run: WorkflowRunRow | None, *, late: bool) -> PingStage:
    name = "run started"
    if row["run_id"] is not None:
        mine = run is not None and str(run["id"]) == row["run_id"]
        at, url = (run["created_at"], run["html_url"]) if run is not None and mine else (None, None)
        return PingStage(name=name, state="ok", words=f"run {row['run_id']}", at=at, url=url)
    if row["state"] != "sent":
        return PingStage(name=name, state="failed" if row["state"] != "pending" else "waiting", words="")
    if run is not None:
        words = f"run {run['id']} began after it, and has not reported"
        return PingStage(name=name, state="ok", words=words, at=run["created_at"], url=run["html_url"])
    hint = (
        LISTEN if entry is None or entry.dispatch == "repository" else "does the workflow accept the input?"
    )
    return PingStage(name=name, state="failed" if late else "waiting", words=f"none is known: {hint}")


def _reported(row: PingRow, *, late: bool) -> list[PingStage]:
    accepted = row["completed_at"] or row["started_at"]
    if accepted is not None:
        how = f"completed: {row['conclusion']}" if row["completed_at"] else "in progress; its end is awaited"
        done = row["completed_at"] is not None or not late
        return [
            PingStage(name="token verified", state="ok", words="it is the backend's own"),
            PingStage(
                name="report accepted",
                state="ok" if row["completed_at"] else "waiting" if done else "failed",
                words=how,
                at=accepted,
            ),
        ]
    if row["refusal"] is not None:
        verified = not row["refusal"].startswith("401 ")
        return [
            PingStage(
                name="token verified",
                state="ok" if verified else "failed",
                words="it is the backend's own" if verified else row["refusal"],
            ),
            PingStage(name="report accepted", state="failed", words=row["refusal"], at=row["refused_at"]),
        ]
    state = "failed" if late or row["state"] in {"failed", "not_installed"} else "waiting"
    words = "no report has come" if row["state"] == "sent" else ""
    return [
        PingStage(name="token verified", state=state, words=words),
        PingStage(name="report accepted", state=state, words=words),
    ]


def _matches(line: UnderwayLine, query: Query) -> bool:
    row = line.underway.row
    names = f"{row['backend']} {row['device'] or ''}".casefold()
    return (
        all(word in names for word in query[WORDS].casefold().split())
        and query[LEVEL] in {None, row["level"]}
        and query[STATE] in {"", line.underway.way}
        and (not query[ONCALL] or query[ONCALL] in map(str.casefold, line.oncalls))
    )


def _answer_dispatch(line: UnderwayLine, now: int) -> DispatchUnderway:
    underway = line.underway
    return fill_struct(
        DispatchUnderway,
        underway.row,
        state=underway.way,
        since=time(underway.since),
        age=(now - underway.since) / 1000,
        long=line.long,
        oncalls=list(line.oncalls),
    )
