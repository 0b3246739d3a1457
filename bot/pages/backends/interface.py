"""What the addresses of backends share: parameters, refusals, answers, and the names that a request may see."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct

from bot.oot.reports.bodies import Conclusion, FailedTest, Status
from bot.oot.results import visibility
from bot.oot.results.tables import JobRow
from bot.oot.results.visibility import NOTHING_PRIVATE, read_private_names
from bot.oot.statistics.stats import grade
from bot.web import access, addresses
from bot.web import openapi as op
from bot.web import parameters as declare
from bot.web.answers import RowAnswer, Time, fill_struct, matching, one_of, time
from bot.web.openapi import INVALID_PARAMETER, DeclaredRefusal
from bot.web.parameters import Parameter

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bot.oot.results.visibility import PrivateNames
    from bot.oot.statistics.health import Health
    from bot.web.parameters import Query

RESULTS = op.Topic("Results", "What the pages show.")
NOWHERE = "-/-"  # no repository has this name
NOTHING_TO_SHOW = DeclaredRefusal(404, "not_found", "nothing of that name may be shown")
UNKNOWN_BACKEND = DeclaredRefusal(404, "unknown_backend", "not on the allowlist, and it has never reported")

BACKEND = declare.repository("org")
DAYS = declare.days()
LEVEL = declare.optional_whole("level", 4, "only backends of this level")
WORDS = Parameter(
    "q",
    addresses.words,
    "",
    (op.in_query("q", op.Text, "only backends whose name or device contains these words"),),
)
LOGIN = re.compile(r"@?([A-Za-z0-9](?:[A-Za-z0-9_-]{0,99}))(?:\[bot\])?")
_REPORTED = "|".join(addresses.REPORTED)
_EVENTS = Annotated[str, matching(f"({_REPORTED})(,({_REPORTED}))*")]
EVENTS = Parameter(
    "event",
    addresses.events,
    None,
    (op.in_query("event", _EVENTS, "only jobs of this event, or of several"),),
)
Level = Annotated[int, Meta(ge=0, le=4)]
Source = Annotated[str, one_of(("callback", "relay"))]


class Backend(Struct, frozen=True):
    """A backend with its numbers of the window: one run is one job of one workflow run at its latest attempt."""

    repo: str
    level: Level
    device: str | None
    listed: bool
    oncalls: list[str]
    grade: Annotated[str, one_of(("green", "amber", "red", "none"))]
    runs: int
    success: int
    failure: Annotated[int, Meta(description="also action_required, startup_failure and stale")]
    timed_out: int
    cancelled: int
    skipped: int
    neutral: int
    running: int
    never_started: Annotated[int, Meta(description="dispatches sent and never reported on")]
    not_run: Annotated[int, Meta(description="the same, of backends that need not answer: no failure")]
    not_dispatched: Annotated[int, Meta(description="refused by GitHub, or without the App on the backend")]
    superseded: Annotated[int, Meta(description="dropped for a newer commit before they were sent")]
    infra: Annotated[int, Meta(description="of failure and timed_out: their logs say it was infrastructure")]
    pass_rate: Annotated[float | None, Meta(description="null when nothing counts")]
    pass_rate_without_infra: Annotated[float | None, Meta(description="the same without infra")]
    median_execution_time: float | None
    p90_execution_time: float | None
    median_queue_time: float | None
    p90_queue_time: float | None
    last_at: Annotated[Time | None, Meta(description="of the last report")]
    trend: Annotated[
        list[float | None], Meta(description="pass rates of the last 30 days and today, oldest first")
    ]
    turned: Annotated[
        Annotated[str, one_of(("red", "green"))] | None, Meta(description="in the last 24 hours")
    ]
    waiting: Annotated[int, Meta(description="open pull requests that wait for it")]
    stale: Annotated[bool, Meta(description="silent for 36 hours")]


class Job(RowAnswer, row=JobRow, without=("job_key", "dispatch_id", "updated_at"), frozen=True):
    """One attempt of one job of a backend's workflow run."""

    status: Status
    conclusion: Conclusion | None
    started_at: Annotated[
        Time | None, Meta(description="as reported where that can be true, else as measured")
    ]
    completed_at: Annotated[Time | None, Meta(description="the same")]
    failed_tests_json: list[FailedTest] | None
    reported_started_at: Annotated[Time | None, Meta(description="as the backend said")]
    reported_completed_at: Annotated[Time | None, Meta(description="as the backend said")]
    triage_verdict: Annotated[
        dict[str, Any] | None, Meta(description="the backend's own verdict on why the job failed")
    ]
    source: Source
    flags: Annotated[dict[str, Any], Meta(description="what is unusual about it")]


def _login(text: str) -> str:
    login = LOGIN.fullmatch(text)
    if login is None:
        raise INVALID_PARAMETER.because("oncall must be somebody's name on GitHub, as the allowlist has it")
    return login[1].casefold()


ONCALL = declare.parsed(
    "oncall",
    Annotated[str, matching(LOGIN)],
    "only backends that this person is on call for",
    parse=_login,
    default="",
)


async def read_names(query: Query, backends: Iterable[str]) -> PrivateNames:
    """Return which names of these backends a request may not see."""
    if access.reads_private(query.request):
        return NOTHING_PRIVATE
    return await read_private_names(query.tx, query.settings, {*backends})


async def hide_in_jobs(query: Query, jobs: list[JobRow]) -> list[JobRow]:
    """Return jobs as a request may see them."""
    names = await read_names(query, (row["downstream_repo"] for row in jobs))
    return [names.of_row(row, row["downstream_repo"]) for row in jobs]


def backend_answer(backend: Health) -> Backend:
    """Return a backend with its numbers; rates are 0 to 1, durations seconds."""
    return fill_struct(
        Backend,
        backend.stats,
        repo=backend.repo,
        level=backend.level,
        device=backend.device,
        listed=backend.listed,
        oncalls=backend.oncalls,
        grade=grade(backend.stats.pass_rate),
        trend=backend.trend,
        turned=backend.turned or None,
        waiting=backend.waiting,
        stale=backend.stale,
    )


def job_answer(row: JobRow) -> Job:
    """Return a job with the times that pages show."""
    times = visibility.job_times(row)
    return fill_struct(Job, row, started_at=time(times.started_at), completed_at=time(times.completed_at))
