"""GET /api/ci/utilization/{owner}/{repo}/report: groups of jobs over time, as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct

from bot.ci.utilization import periods
from bot.ci.utilization.report import Numbers
from bot.ci.utilization.store import day_rows
from bot.ci.utilization.views import report_reads
from bot.ci.utilization.views.report_reads import DAY, RUNS, Window
from bot.web import operations as op
from bot.web import parameters
from bot.web import view_parameters as declare
from bot.web.answers import Answer, matching
from bot.web.refusals import INVALID_PARAMETER
from bot.web.view import Json, View
from bot.web.view_parameters import REPO

if TYPE_CHECKING:
    from bot.ci.utilization.periods import Period
    from bot.ci.utilization.report import Group
    from bot.web.asked import Asked, Parameter

DATE = matching(r"20[2-9]\d-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])")
KINDS = {"job_name": "job", "workflow_name": "workflow", "runner_label": "runner"}
GROUPS_MOST = 2_000
EXAMPLE = Meta(examples=["2026-01-31"])


class UsagePeriod(Numbers, frozen=True, kw_only=True):
    """A group in some days"""

    start: Annotated[str, EXAMPLE]
    end: Annotated[str, EXAMPLE]


class UsageGroup(Struct, frozen=True, kw_only=True):
    """A group of jobs; periods without a measured job are left out"""

    group: str
    parent: Annotated[str, Meta(description="of a job: its workflow; else empty")]
    periods: list[UsagePeriod]


class UsageReport(Answer, frozen=True, kw_only=True):
    """Groups of measured jobs, by name"""

    start: Annotated[str, EXAMPLE]
    end: Annotated[str, EXAMPLE]
    measured: Annotated[int, Meta(description="jobs with a usage log in these days, of all runs")]
    jobs: Annotated[int, Meta(description="jobs that were created in these days, measured or not")]
    groups: list[UsageGroup]
    more: Annotated[int, Meta(description="groups that are left out")]


def _date(name: str, description: str) -> Parameter[int | None]:
    """Return a parameter that is a day."""

    def parse(text: str) -> int | None:
        day = periods.day_of(text)
        if day is None:
            raise INVALID_PARAMETER.because(f"{name} must be a date, as in 2026-01-31")
        return day

    return declare.parsed(name, Annotated[str, DATE], description, parse=parse, default=None)


GROUP_BY = declare.choice("group_by", tuple(KINDS), "what is a group")
PARENT = declare.text("parent_group", "only jobs of this workflow")
START = _date("start", f"the first day; {parameters.DAYS} days before the last")
END = _date("end", "the last day; today")
GRANULARITY = declare.choice("granularity", ("all", "day", "week", "month"), "periods")


@dataclass(frozen=True, kw_only=True)
class Found:
    """Groups of a repository's jobs in some days."""

    window: Window
    groups: dict[Group, list[tuple[Period, Numbers]]]
    measured: int
    jobs: int


async def read_report(asked: Asked) -> Found:
    """Read the groups of a repository's jobs."""
    tx, money = asked.tx, report_reads.runner_costs(asked.settings)
    first, last = _days(asked, today=tx.now // DAY)
    repo, owners = await report_reads.visible_owners(asked)
    window = Window(repo=repo, owners=owners, first=first, last=last, trusted=asked[RUNS] == "trusted")
    groups = await report_reads.read_groups_over_time(
        tx, window, KINDS[asked[GROUP_BY]], asked[GRANULARITY], money=money, parent=asked[PARENT] or None
    )
    measured = sum((await day_rows.measured_jobs(tx, owners, first, last)).values())
    run = sum((await day_rows.created_jobs(tx, owners, first, last)).values())
    return Found(window=window, groups=groups, measured=measured, jobs=max(run, measured))


def answer(found: Found) -> UsageReport:
    """Return the JSON of the groups."""
    listed = sorted(found.groups.items())
    return UsageReport(
        start=periods.iso(found.window.first),
        end=periods.iso(found.window.last),
        measured=found.measured,
        jobs=found.jobs,
        groups=[
            UsageGroup(
                group=group.key,
                parent=group.parent,
                periods=[
                    UsagePeriod(start=periods.iso(each.first), end=periods.iso(each.last), **_fields(numbers))
                    for each, numbers in over_time
                ],
            )
            for group, over_time in listed[:GROUPS_MOST]
        ],
        more=max(0, len(listed) - GROUPS_MOST),
    )


def _fields(numbers: Numbers) -> dict[str, Any]:
    return {name: getattr(numbers, name) for name in Numbers.__struct_fields__}


def _days(asked: Asked, *, today: int) -> tuple[int, int]:
    """Return the first and the last day asked for; raises Rejected 400."""
    start, end = asked[START], asked[END]
    last = today if end is None else end
    first = last - parameters.DAYS + 1 if start is None else start
    if not 0 <= last - first < parameters.MOST_DAYS:
        detail = f"end must be at most {parameters.MOST_DAYS:,} days after start"
        raise INVALID_PARAMETER.because(detail)
    return first, last


VIEW = View(
    read=read_report,
    parameters=(REPO, GROUP_BY, PARENT, START, END, GRANULARITY, RUNS),
    json=Json(
        path="/api/ci/utilization/{owner}/{repo}/report",
        answer=answer,
        content=UsageReport,
        name="utilizationReport",
        summary="How much of their machines groups of jobs use, over time",
        topic=op.CI,
        refusals=(report_reads.NOTHING,),
    ),
)
