"""GET /{owner}/{repo}/metrics, /reliability and /queue, and their JSON: a branch over days, its jobs, its runners."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from bot.ci.trunk import day_rows, hud_page, name_patterns, reading, runner_queue, trunk_numbers
from bot.ci.trunk.changed_days import BRANCHES, RUNNERS
from bot.ci.trunk.runner_queue import RunnerQueue
from bot.ci.trunk.settings import TrunkSettings
from bot.ci.trunk.trunk_numbers import JobReliability, RunnerHours, TrunkDay
from bot.core import text
from bot.core.json_fields import iso_time
from bot.queue import sums
from bot.queue.sums import DAY
from bot.web import access, charts, parameters
from bot.web.answers import Answer, Time, send, time
from bot.web.app_keys import CONTEXT
from bot.web.html import page, render
from bot.web.render_thread import in_render_thread

if TYPE_CHECKING:
    from aiohttp import web

    from bot.ci.trunk.day_rows import ColumnDayRow, EventRow, LineRow
    from bot.ci.trunk.reading import Branch
    from bot.web.charts import Chart

JOBS_MOST = 500
FAILING_MOST = 20
LONGEST_MOST = 10
RUNNERS_MOST = 200
EVENTS_MOST = 50
WAITING_MOST = 20_000
WAITING_DAYS = 3  # a job that was created before has been lost


class DayOfTrunk(TrunkDay, frozen=True, kw_only=True):
    """One day of a branch; seconds unless the name says otherwise"""

    day: str


class ColumnChange(Struct, frozen=True, kw_only=True):
    """A change of a job's state; `at` is when the job that decided it ended"""

    name: str
    before: str
    after: str
    first_bad: str
    last_good: str | None
    signature: str | None  # of the failure, where its log was read
    at: Time | None


class TrunkMetrics(Answer, frozen=True, kw_only=True):
    """A branch over days, the oldest first"""

    branch: str
    days: list[DayOfTrunk]
    whole: TrunkDay
    runners: list[RunnerHours]  # those with the most hours first
    changes: list[ColumnChange]  # the newest first


class Reliability(Answer, frozen=True, kw_only=True):
    """The jobs of a branch, the least reliable first"""

    branch: str
    jobs: list[JobReliability]


class Queue(Answer, frozen=True, kw_only=True):
    """Runners by label, those with the longest wait first"""

    queue_bounds: list[int]  # of queue_counts_week, in seconds
    runners: list[RunnerQueue]


@dataclass(frozen=True, kw_only=True)
class _Window:
    """Some days of a branch."""

    branch: Branch
    days: int
    first: int
    last: int
    lines: list[LineRow]
    columns: list[ColumnDayRow]
    events: list[EventRow]
    counted_until: int | None


@page
async def metrics(request: web.Request) -> web.Response:
    """Show how a branch did over some days."""
    found = await _read(request, columns=True)
    answer, jobs = _metrics(request, found), _jobs(request, found)
    return render(
        request,
        "trunk_metrics.html",
        fresh=parameters.of(request),
        **_names(found),
        windows=parameters.windows(found.days),
        whole=answer.whole,
        charts=[each for each in _charts(answer) if not each.empty],
        runners=answer.runners,
        longest=sorted(jobs, key=lambda one: (-one.job_seconds, one.name))[:LONGEST_MOST],
        failing=[one for one in jobs if one.runs > one.passed][:FAILING_MOST],
        events=found.events,
        json_url=f"/api/ci/metrics/{found.branch.repository['full_name']}?days={found.days}",
    )


@page
async def reliability(request: web.Request) -> web.Response:
    """Show how often the jobs of a branch fail, and why."""
    found = await _read(request, columns=True)
    jobs = _jobs(request, found)
    return render(
        request,
        "trunk_reliability.html",
        fresh=parameters.of(request),
        **_names(found),
        windows=parameters.windows(found.days),
        jobs=jobs[:JOBS_MOST],
        more=max(0, len(jobs) - JOBS_MOST),
        json_url=f"/api/ci/reliability/{found.branch.repository['full_name']}?days={found.days}",
    )


@page
async def queue(request: web.Request) -> web.Response:
    """Show what waits for which runner."""
    repo, runners, until = await _queues(request)
    return render(
        request,
        "trunk_queue.html",
        fresh=parameters.of(request, default=60),
        repo=repo,
        runners=[
            (one, charts.bars(one.queue_counts_week), _spread(one.queue_counts_week)) for one in runners
        ],
        counted_until=until,
        json_url=f"/api/ci/queue/{repo}",
    )


@in_render_thread
async def metrics_json(request: web.Request) -> web.Response:
    """Answer with a branch over some days."""
    return send(_metrics(request, await _read(request)))


@in_render_thread
async def reliability_json(request: web.Request) -> web.Response:
    """Answer with the reliability of a branch's jobs."""
    found = await _read(request, columns=True)
    return send(Reliability(branch=found.branch.name, jobs=_jobs(request, found)[:JOBS_MOST]))


@in_render_thread
async def queue_json(request: web.Request) -> web.Response:
    """Answer with what waits for which runner."""
    return send(Queue(queue_bounds=list(runner_queue.BOUNDS), runners=(await _queues(request))[1]))


def _spread(counts: list[int]) -> str:
    """Return what a histogram of queue times shows, in words."""
    upper = [f"up to {text.duration(bound)}" for bound in runner_queue.BOUNDS]
    words = [*upper, f"over {text.duration(runner_queue.BOUNDS[-1])}"]
    return ", ".join(f"{count:,} {word}" for count, word in zip(counts, words, strict=True) if count)


async def _read(request: web.Request, *, columns: bool = False) -> _Window:
    """Read some days, and up to when they are counted."""
    repo, days = parameters.repo(request), parameters.days(request)
    name = parameters.given(request, "branch")[: hud_page.BRANCH_MOST]
    async with request.app[CONTEXT].store.read() as tx:
        hidden = await access.hidden_from(request, tx)
        branch = await reading.find(tx, hidden, repo, name)
        identifier, last = branch.repository["repository_id"], tx.now // DAY
        first = last - days + 1
        return _Window(
            branch=branch,
            days=days,
            first=first,
            last=last,
            lines=await day_rows.line_days(tx, identifier, branch.name, first),
            columns=await day_rows.column_days(tx, identifier, branch.name, first) if columns else [],
            events=await day_rows.events(tx, identifier, branch.name, EVENTS_MOST),
            counted_until=await sums.counted_until(tx, BRANCHES, [identifier], first=first),
        )


async def _queues(request: web.Request) -> tuple[str, list[RunnerQueue], int | None]:
    repo = parameters.repo(request)
    async with request.app[CONTEXT].store.read() as tx:
        hidden = await access.hidden_from(request, tx)
        branch = await reading.find(tx, hidden, repo, "")
        identifier, today = branch.repository["repository_id"], tx.now // DAY
        jobs = await day_rows.unfinished(tx, identifier, tx.now - WAITING_DAYS * DAY, WAITING_MOST)
        recent = tx.now - runner_queue.STARTING_MOST
        started = await day_rows.started(tx, identifier, recent, WAITING_MOST)
        days = await day_rows.runner_days(tx, identifier, today - runner_queue.WEEK)
        until = await sums.counted_until(tx, RUNNERS, [identifier], first=today - runner_queue.WEEK)
        now = tx.now
    runners = _options(request).ci_runners
    found = runner_queue.queues(
        jobs, days, now=now, today=today, runners=runners, being_prepared=runner_queue.starting(started)
    )
    return branch.repository["full_name"], found, until


def _metrics(request: web.Request, found: _Window) -> TrunkMetrics:
    costs = _options(request).ci_runner_cost
    days = trunk_numbers.by_day(found.lines, costs, first=found.first, last=found.last)
    return TrunkMetrics(
        branch=found.branch.name,
        days=[
            DayOfTrunk(
                day=iso_time((found.first + at) * DAY)[:10],
                **{name: getattr(one, name) for name in TrunkDay.__struct_fields__},
            )
            for at, one in enumerate(days)
        ],
        whole=trunk_numbers.day(found.lines, costs),
        runners=trunk_numbers.by_runner(found.lines, costs)[:RUNNERS_MOST],
        changes=[_change(row) for row in found.events],
    )


def _change(row: EventRow) -> ColumnChange:
    return ColumnChange(
        name=row["name"],
        before=row["state_before"],
        after=row["state_after"],
        first_bad=row["first_bad"],
        last_good=row["last_good"],
        signature=row["signature"],
        at=time(row["at"]),
    )


def _jobs(request: web.Request, found: _Window) -> list[JobReliability]:
    settings = _options(request)
    return trunk_numbers.reliability(
        found.columns,
        found.lines,
        rename=lambda workflow, name: name_patterns.shown_name(workflow, name, settings),
    )


def _options(request: web.Request) -> TrunkSettings:
    return request.app[CONTEXT].settings.of(TrunkSettings)


def _names(found: _Window) -> dict[str, Any]:
    return {
        "repo": found.branch.repository["full_name"],
        "branch": found.branch.name,
        "home": hud_page.address(found.branch),
        "days": found.days,
        "counted_until": found.counted_until,
    }


def _charts(answer: TrunkMetrics) -> list[Chart]:
    labels = [one.day for one in answer.days]
    days = answer.days
    return [
        charts.chart(
            "Red commits", labels, [("share", [one.red_share for one in days])], show=text.percent, top=1.0
        ),
        charts.chart(
            "Time to red",
            labels,
            [("median", [one.red_p50 for one in days]), ("p90", [one.red_p90 for one in days])],
            show=text.duration,
            seconds=True,
        ),
        charts.chart(
            "Time to a full result",
            labels,
            [("median", [one.signal_p50 for one in days]), ("p90", [one.signal_p90 for one in days])],
            show=text.duration,
            seconds=True,
        ),
        charts.chart(
            "Machine hours",
            labels,
            [
                ("all", [one.job_seconds / 3600 if one.jobs else None for one in days]),
                ("cancelled", [one.cancelled_seconds / 3600 if one.jobs else None for one in days]),
            ],
            show=lambda value: f"{value:,.1f}",
        ),
    ]
