"""Pages of a branch over days: its metrics, the reliability of its jobs, and what waits for its runners."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bot.core import text
from bot.core.json_fields import iso_time
from bot.jobs import branch_numbers, branch_reads, daily_sums, job_names, runner_queues
from bot.jobs.branch_numbers import JobReliability, RunnerHours, TrunkDay
from bot.jobs.branches import BRANCHES, RUNNERS
from bot.jobs.runner_queues import RunnerQueue, read_runner_queues
from bot.jobs.settings import TrunkSettings
from bot.jobs.tables import ColumnEvent
from bot.pages.grid.grid import BRANCH_MOST, grid_address
from bot.providers.doctor import describe_queue
from bot.queue import sums
from bot.queue.sums import DAY
from bot.web import addresses, charts
from bot.web import openapi as op
from bot.web import parameters as declare
from bot.web.answers import Answer, RowAnswer, fill_struct
from bot.web.openapi import NOT_FOUND, UNKNOWN_REPOSITORY
from bot.web.parameters import REPO, REPOSITORY
from bot.web.view import Json, Page, View

if TYPE_CHECKING:
    from bot.jobs.branch_reads import Branch
    from bot.jobs.daily_sums import ColumnDay
    from bot.jobs.tables import LineRow
    from bot.web.blocks import Block
    from bot.web.charts import Chart
    from bot.web.parameters import Query

EVENTS_MOST = 50
DAYS = declare.days()
BRANCH = declare.text("branch", "name of the branch; without it the default branch", most=BRANCH_MOST)
PARAMETERS = (REPO, DAYS, BRANCH)
FAILING_MOST = 20
LONGEST_MOST = 10
RUNNERS_MOST = 200
JOBS_MOST = 500
QUEUE_REFRESH = 60  # seconds


class DayOfTrunk(TrunkDay, frozen=True, kw_only=True):
    """One day of a branch; seconds unless the name says otherwise"""

    day: str


class ColumnChange(
    RowAnswer,
    row=ColumnEvent,
    only=("name", "state_before", "state_after", "first_bad", "last_good", "signature", "at"),
    rename={"state_before": "before", "state_after": "after"},
    frozen=True,
    kw_only=True,
):
    """A change of a job's state; `at` is when the job that decided it ended"""


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
class Queues:
    """What waits in a repository."""

    repo: str
    runners: list[RunnerQueue]
    counted_until: int | None
    added: list[Block]  # by other features


@dataclass(frozen=True, kw_only=True)
class BranchDays:
    """Some days of a branch."""

    branch: Branch
    options: TrunkSettings
    days: int
    first: int
    last: int
    lines: list[LineRow]
    columns: list[ColumnDay]
    events: list[ColumnEvent]
    counted_until: int | None

    def jobs(self) -> list[JobReliability]:
        """Return the jobs, the least reliable first."""
        return branch_numbers.job_reliability(
            self.columns,
            self.lines,
            rename=lambda workflow, name: job_names.shown_name(workflow, name, self.options),
        )

    def names(self) -> dict[str, Any]:
        """Return what every page about days shows."""
        return {
            "repo": self.branch.repository["full_name"],
            "branch": self.branch.name,
            "home": grid_address(self.branch),
            "days": self.days,
            "windows": addresses.windows(self.days),
            "counted_until": self.counted_until,
        }

    def link(self) -> dict[str, object]:
        """Return the parameters of the page's JSON."""
        return {"repo": self.branch.repository["full_name"], "days": self.days}


async def read_days(query: Query, *, columns: bool) -> BranchDays:
    """Read some days, and until when they are counted."""
    tx, days = query.tx, query[DAYS]
    branch = await branch_reads.find_branch(tx, query.hidden, query[REPO], query[BRANCH])
    identifier, last = branch.repository["repository_id"], tx.now // DAY
    first = last - days + 1
    return BranchDays(
        branch=branch,
        options=query.settings.of(TrunkSettings),
        days=days,
        first=first,
        last=last,
        lines=await daily_sums.read_line_days(tx, identifier, branch.name, first),
        columns=await daily_sums.read_column_days(tx, identifier, branch.name, first) if columns else [],
        events=await daily_sums.read_events(tx, identifier, branch.name, EVENTS_MOST),
        counted_until=await sums.counted_until(tx, BRANCHES, [identifier], first=first),
    )


async def read_metrics(query: Query) -> BranchDays:
    """Read the days of a branch; the page lists jobs as well."""
    return await read_days(query, columns=query.for_page)


def show_metrics(days_read: BranchDays) -> dict[str, Any]:
    """Return what the page shows."""
    answered, jobs = answer_metrics(days_read), days_read.jobs()
    return days_read.names() | {
        "whole": answered.whole,
        "charts": [
            each for each in _charts(answered, days_read.branch.repository["full_name"]) if not each.empty
        ],
        "runners": answered.runners,
        "longest": sorted(jobs, key=lambda job: (-job.job_seconds, job.name))[:LONGEST_MOST],
        "failing": [job for job in jobs if job.runs > job.passed][:FAILING_MOST],
        "events": days_read.events,
    }


def answer_metrics(days_read: BranchDays) -> TrunkMetrics:
    """Return the JSON of a branch over days."""
    costs = days_read.options.ci_runner_cost
    days = branch_numbers.numbers_by_day(days_read.lines, costs, first=days_read.first, last=days_read.last)
    return TrunkMetrics(
        branch=days_read.branch.name,
        days=[
            DayOfTrunk(
                day=iso_time((days_read.first + at) * DAY)[:10],
                **{name: getattr(day, name) for name in TrunkDay.__struct_fields__},
            )
            for at, day in enumerate(days)
        ],
        whole=branch_numbers.trunk_day(days_read.lines, costs),
        runners=branch_numbers.hours_by_runner(days_read.lines, costs)[:RUNNERS_MOST],
        changes=[fill_struct(ColumnChange, row) for row in days_read.events],
    )


METRICS_VIEW = View(
    read=read_metrics,
    parameters=PARAMETERS,
    page=Page(path=f"{REPOSITORY}/metrics", template="trunk_metrics.html", values=show_metrics),
    json=Json(
        path="/api/ci/metrics/{owner}/{repo}",
        answer=answer_metrics,
        content=TrunkMetrics,
        name="trunkMetrics",
        summary="A branch over days",
        topic=op.CI,
        refusals=(NOT_FOUND, UNKNOWN_REPOSITORY),
        link=BranchDays.link,
    ),
)


async def read_reliability(query: Query) -> BranchDays:
    """Read the days of a branch with its jobs."""
    return await read_days(query, columns=True)


def show_reliability(days_read: BranchDays) -> dict[str, Any]:
    """Return what the page shows."""
    jobs = days_read.jobs()
    return days_read.names() | {"jobs": jobs[:JOBS_MOST], "more": max(0, len(jobs) - JOBS_MOST)}


def answer_reliability(days_read: BranchDays) -> Reliability:
    """Return the reliability of a branch's jobs."""
    return Reliability(branch=days_read.branch.name, jobs=days_read.jobs()[:JOBS_MOST])


RELIABILITY_VIEW = View(
    read=read_reliability,
    parameters=PARAMETERS,
    page=Page(path=f"{REPOSITORY}/reliability", template="trunk_reliability.html", values=show_reliability),
    json=Json(
        path="/api/ci/reliability/{owner}/{repo}",
        answer=answer_reliability,
        content=Reliability,
        name="reliability",
        summary="How often the jobs of a branch fail",
        topic=op.CI,
        refusals=(NOT_FOUND, UNKNOWN_REPOSITORY),
        link=BranchDays.link,
    ),
)


async def read_queues(query: Query) -> Queues:
    """Read what waits now, and what waited in the last days."""
    tx = query.tx
    branch = await branch_reads.find_branch(tx, query.hidden, query[REPO], "")
    first = tx.now // DAY - runner_queues.WEEK
    identifier = branch.repository["repository_id"]
    repo = branch.repository["full_name"]
    return Queues(
        repo=repo,
        runners=await read_runner_queues(tx, query.settings, branch),
        counted_until=await sums.counted_until(tx, RUNNERS, [identifier], first=first),
        added=await describe_queue(tx, query.settings, repo) if query.for_page else [],
    )


def show_queues(queues: Queues) -> dict[str, Any]:
    """Return what the page shows."""
    runners = [
        (queue, charts.bars(queue.queue_counts_week), _spread(queue.queue_counts_week))
        for queue in queues.runners
    ]
    return {
        "repo": queues.repo,
        "runners": runners,
        "counted_until": queues.counted_until,
        "added": queues.added,
    }


def answer_queues(queues: Queues) -> Queue:
    """Return what waits for which runner."""
    return Queue(queue_bounds=list(runner_queues.BOUNDS), runners=queues.runners)


QUEUE_VIEW = View(
    read=read_queues,
    parameters=(REPO,),
    page=Page(
        path=f"{REPOSITORY}/queue", template="trunk_queue.html", values=show_queues, refresh=QUEUE_REFRESH
    ),
    json=Json(
        path="/api/ci/queue/{owner}/{repo}",
        answer=answer_queues,
        content=Queue,
        name="runnerQueue",
        summary="What waits for which runner",
        topic=op.CI,
        refusals=(NOT_FOUND, UNKNOWN_REPOSITORY),
        link=lambda queues: {"repo": queues.repo},
    ),
)


def _charts(answer: TrunkMetrics, repo: str) -> list[Chart]:
    labels = [day.day for day in answer.days]
    links = charts.commits_of_days(repo, labels, answer.branch)
    days = answer.days
    return [
        charts.chart(
            "Red commits",
            labels,
            [("share", [day.red_share for day in days])],
            show=text.percent,
            top=1.0,
            links=links,
        ),
        charts.chart(
            "Time to red",
            labels,
            [("median", [day.red_p50 for day in days]), ("p90", [day.red_p90 for day in days])],
            show=text.duration,
            seconds=True,
            links=links,
        ),
        charts.chart(
            "Time to a full result",
            labels,
            [("median", [day.signal_p50 for day in days]), ("p90", [day.signal_p90 for day in days])],
            show=text.duration,
            seconds=True,
            links=links,
        ),
        charts.chart(
            "Machine hours",
            labels,
            [
                ("all", [day.job_seconds / 3600 if day.jobs else None for day in days]),
                ("cancelled", [day.cancelled_seconds / 3600 if day.jobs else None for day in days]),
            ],
            show=lambda value: f"{value:,.1f}",
            links=links,
        ),
    ]


def _spread(counts: list[int]) -> str:
    """Describe a histogram of queue times."""
    upper = [f"up to {text.duration(bound)}" for bound in runner_queues.BOUNDS]
    words = [*upper, f"over {text.duration(runner_queues.BOUNDS[-1])}"]
    return ", ".join(f"{count:,} {word}" for count, word in zip(counts, words, strict=True) if count)
