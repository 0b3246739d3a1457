"""GET /{owner}/{repo}/contributions and its JSON: what outside people contribute, week by week, and who waits."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from statistics import fmean, median
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct

from bot.job_reports import contributions
from bot.job_reports.contributions import CONTRIBUTION_SUM, DAY
from bot.job_reports.feature import JobReportSettings
from bot.pages.job_reports import day_window
from bot.pages.job_reports.day_window import read_window, repository_view
from bot.web import parameters as declare
from bot.web.answers import Answer
from bot.web.charts import chart
from bot.web.parameters import REPO

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.job_reports.tables import ContributionDayRow
    from bot.pages.job_reports.day_window import DayWindow
    from bot.web.charts import Chart
    from bot.web.parameters import Query

WEEK, MONDAY = 7, 4  # days, and from the Thursday that 1970 began with to a Monday
LONG_WAIT = 7 * DAY  # a wait for the first review
WAITING_SHOWN = 30
MEAN_OF = 4  # weeks
OVER_WEEKS = "Week from (UTC)"
DAYS = declare.days(default=90)


class ContributionsOfDay(Struct, frozen=True, kw_only=True):
    """What outside people had merged on a day."""

    date: str
    pr_count: int
    user_count: int
    new_users: Annotated[int, Meta(description="of whom nothing was merged before")]
    review_hours: Annotated[float | None, Meta(description="median, to the first review by a member")]
    merge_hours: Annotated[float | None, Meta(description="median, to the merge")]
    users: Annotated[list[str] | None, Meta(description="with CI_CONTRIBUTORS=names; else null")]


class Contributions(Answer, frozen=True, kw_only=True):
    """What outside people contribute"""

    waiting: Annotated[int, Meta(description="open for over 7 days without a review by a member")]
    days: list[ContributionsOfDay]


@dataclass(frozen=True, kw_only=True)
class ContributionWeek:
    """What was merged in a week."""

    first: int  # a Monday; days since 1970
    pulls: int
    users: int
    new_users: int
    review_hours: float | None
    merge_hours: float | None


@dataclass(frozen=True, kw_only=True)
class RepositoryContributions:
    """What outside people contribute to a repository."""

    window: DayWindow
    names: bool
    days: list[ContributionDayRow]
    weeks: list[ContributionWeek]
    waiting: int
    oldest: list[dict[str, Any]]
    backends: list[tuple[str, int, int]]  # name, pull requests, people


async def read_contributions(query: Query) -> RepositoryContributions:
    """Read what outside people contribute."""
    tx = query.tx
    window = await read_window(query, CONTRIBUTION_SUM, days=DAYS)
    first = _monday(window.first)
    days = await contributions.read_days(tx, window.owners, first=first)
    waiting, oldest = await contributions.read_waiting(
        tx, window.owners, before=tx.now - LONG_WAIT, limit=WAITING_SHOWN
    )
    return RepositoryContributions(
        window=window,
        names=query.settings.of(JobReportSettings).ci_contributors == "names",
        days=days,
        weeks=_weeks(days, first, window.last),
        waiting=waiting,
        oldest=oldest,
        backends=await _backends(query, first) if query.for_page else [],
    )


def page_values(result: RepositoryContributions) -> dict[str, Any]:
    """Return what the page shows."""
    return result.window.page | {
        "result": result,
        "charts": _charts(result.weeks) if any(week.pulls for week in result.weeks) else [],
        "weeks": result.weeks[::-1],
    }


def json_answer(result: RepositoryContributions) -> Contributions:
    """Return the JSON of contributions."""
    return Contributions(
        waiting=result.waiting,
        days=[
            ContributionsOfDay(
                date=day_window.iso_day(row["day"]),
                pr_count=row["pr_count"],
                user_count=len(row["users"]),
                new_users=row["new_users"],
                review_hours=median(row["review_hours"]) if row["review_hours"] else None,
                merge_hours=median(row["merge_hours"]) if row["merge_hours"] else None,
                users=row["users"] if result.names else None,
            )
            for row in result.days
        ],
    )


VIEW = repository_view(
    "contributions",
    read=read_contributions,
    days=DAYS,
    template="contributions.html",
    values=page_values,
    answer=json_answer,
    content=Contributions,
    name="contributions",
    summary="What outside people contribute, day by day",
    link=lambda result: {"repo": result.window.repo, "days": result.window.size},
)


async def _backends(query: Query, first: int) -> list[tuple[str, int, int]]:
    backends = []
    for name, owners in await day_window.visible_backends(query, query[REPO]):
        if rows := await contributions.read_days(query.tx, owners, first=first):
            people = {user for row in rows for user in row["users"]}
            backends.append((name, sum(row["pr_count"] for row in rows), len(people)))
    return sorted(backends, key=lambda backend: (-backend[1], backend[0]))


def _monday(day: int) -> int:
    return day - (day - MONDAY) % WEEK


def _weeks(days: Sequence[ContributionDayRow], first: int, today: int) -> list[ContributionWeek]:
    """Return the weeks of a window, the oldest first, also those in which nothing was merged."""
    by_week: defaultdict[int, list[ContributionDayRow]] = defaultdict(list)
    for row in days:
        by_week[_monday(row["day"])].append(row)
    return [_week(monday, by_week[monday]) for monday in range(first, today + 1, WEEK)]


def _week(monday: int, rows: Sequence[ContributionDayRow]) -> ContributionWeek:
    reviews = [hours for row in rows for hours in row["review_hours"]]
    merges = [hours for row in rows for hours in row["merge_hours"]]
    return ContributionWeek(
        first=monday,
        pulls=sum(row["pr_count"] for row in rows),
        users=len({user for row in rows for user in row["users"]}),
        new_users=sum(row["new_users"] for row in rows),
        review_hours=median(reviews) if reviews else None,
        merge_hours=median(merges) if merges else None,
    )


def _charts(weeks: Sequence[ContributionWeek]) -> list[Chart]:
    labels = [day_window.iso_day(week.first) for week in weeks]
    pulls = [float(week.pulls) for week in weeks]
    means = [fmean(pulls[max(0, at - MEAN_OF + 1) : at + 1]) for at in range(len(pulls))]
    waits = [
        ("first review", [week.review_hours for week in weeks]),
        ("merge", [week.merge_hours for week in weeks]),
    ]
    return [
        chart(
            "Merged in a week",
            labels,
            [("merged", pulls), ("mean of 4 weeks", means)],
            show=day_window.format_number,
            over=OVER_WEEKS,
        ),
        chart("Median hours to", labels, waits, show=lambda value: f"{value:,.0f} h", over=OVER_WEEKS),
    ]
