"""GET /{owner}/{repo}/metrics and its JSON: a branch over days."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.ci.trunk import trunk_numbers
from bot.ci.trunk.tables import ColumnEvent
from bot.ci.trunk.trunk_numbers import RunnerHours, TrunkDay
from bot.ci.trunk.views.branch_days import PARAMETERS, BranchDays, read_days
from bot.core import text
from bot.core.json_fields import iso_time
from bot.queue.sums import DAY
from bot.web import charts
from bot.web import operations as op
from bot.web.answers import Answer, fill
from bot.web.refusals import NOT_FOUND, UNKNOWN_REPOSITORY
from bot.web.row_answers import RowAnswer
from bot.web.view import Json, Page, View
from bot.web.view_parameters import REPOSITORY

if TYPE_CHECKING:
    from bot.web.asked import Asked
    from bot.web.charts import Chart

FAILING_MOST = 20
LONGEST_MOST = 10
RUNNERS_MOST = 200


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


async def read_metrics(asked: Asked) -> BranchDays:
    """Read the days of a branch; the page lists jobs, too."""
    return await read_days(asked, columns=asked.for_page)


def show(found: BranchDays) -> dict[str, Any]:
    """Return what the page shows."""
    answered, jobs = answer(found), found.jobs()
    return found.names() | {
        "whole": answered.whole,
        "charts": [
            each for each in _charts(answered, found.branch.repository["full_name"]) if not each.empty
        ],
        "runners": answered.runners,
        "longest": sorted(jobs, key=lambda one: (-one.job_seconds, one.name))[:LONGEST_MOST],
        "failing": [one for one in jobs if one.runs > one.passed][:FAILING_MOST],
        "events": found.events,
    }


def answer(found: BranchDays) -> TrunkMetrics:
    """Return the JSON of a branch over days."""
    costs = found.options.ci_runner_cost
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
        changes=[fill(ColumnChange, row) for row in found.events],
    )


def _charts(answer: TrunkMetrics, repo: str) -> list[Chart]:
    labels = [one.day for one in answer.days]
    links = charts.commits_of_days(repo, labels, answer.branch)
    days = answer.days
    return [
        charts.chart(
            "Red commits",
            labels,
            [("share", [one.red_share for one in days])],
            show=text.percent,
            top=1.0,
            links=links,
        ),
        charts.chart(
            "Time to red",
            labels,
            [("median", [one.red_p50 for one in days]), ("p90", [one.red_p90 for one in days])],
            show=text.duration,
            seconds=True,
            links=links,
        ),
        charts.chart(
            "Time to a full result",
            labels,
            [("median", [one.signal_p50 for one in days]), ("p90", [one.signal_p90 for one in days])],
            show=text.duration,
            seconds=True,
            links=links,
        ),
        charts.chart(
            "Machine hours",
            labels,
            [
                ("all", [one.job_seconds / 3600 if one.jobs else None for one in days]),
                ("cancelled", [one.cancelled_seconds / 3600 if one.jobs else None for one in days]),
            ],
            show=lambda value: f"{value:,.1f}",
            links=links,
        ),
    ]


VIEW = View(
    read=read_metrics,
    parameters=PARAMETERS,
    page=Page(path=f"{REPOSITORY}/metrics", template="trunk_metrics.html", values=show),
    json=Json(
        path="/api/ci/metrics/{owner}/{repo}",
        answer=answer,
        content=TrunkMetrics,
        name="trunkMetrics",
        summary="A branch over days",
        topic=op.CI,
        refusals=(NOT_FOUND, UNKNOWN_REPOSITORY),
        link=BranchDays.link,
    ),
)
