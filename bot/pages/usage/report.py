"""How much of their machines jobs use, by job, workflow or runner: a page and JSON.

GET /{owner}/{repo}/utilization and /api/ci/utilization/{owner}/{repo}/report.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple
from urllib.parse import urlencode

from msgspec import Meta, Struct

from bot.evidence.usage import daily_sums, report
from bot.evidence.usage.daily_sums import UTILIZATION, UsageSums, first_day
from bot.evidence.usage.report import JobGroup, Numbers, Period, SumPiece, split_periods, sum_pieces
from bot.jobs.settings import TrunkSettings
from bot.oot.allowlist import versions
from bot.pages import job_reads
from bot.queue import sums
from bot.web import addresses, openapi, parameters
from bot.web.answers import Answer, matching
from bot.web.charts import chart, commits_of_days
from bot.web.openapi import INVALID_PARAMETER, DeclaredRefusal
from bot.web.parameters import REPO
from bot.web.view import Json, Page, View

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.evidence.usage.tables import PeriodRow
    from bot.web.charts import Chart
    from bot.web.parameters import Parameter, Query

DAY = 86_400_000  # milliseconds
NO_REPORT = DeclaredRefusal(404, "not_found", "nothing of that repository may be shown")
RUNS = parameters.choice("runs", ("trusted", "others"), "of trusted branches, or the others")
LISTED_MOST = 300  # listed
BACKENDS_MOST = 50
GROUP_KINDS = ("job", "workflow", "runner")
METRICS = (
    ("CPU", "cpu"),
    ("Memory", "memory"),
    ("Accelerators", "gpu"),
    ("Their memory bandwidth", "gpu_mem"),
)
BY = parameters.choice("by", GROUP_KINDS, "what is a group")
DAYS = parameters.days()
PAGE_GRANULARITY = parameters.choice("granularity", report.GRANULARITIES, "periods of the charts")
SORT = parameters.choice("sort", ("", *report.SORTS), "the order of groups")
GROUP = parameters.text("group", "the group of the charts")
PAGE_PARENT = parameters.text("parent", "of a job: its workflow")
DATE_PATTERN = matching(r"20[2-9]\d-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])")
KIND_OF_FIELD = {"job_name": "job", "workflow_name": "workflow", "runner_label": "runner"}
ANSWERED_MOST = 2_000
EXAMPLE = Meta(examples=["2026-01-31"])
GROUP_BY = parameters.choice("group_by", tuple(KIND_OF_FIELD), "what is a group")
PARENT_GROUP = parameters.text("parent_group", "only jobs of this workflow")
JSON_GRANULARITY = parameters.choice("granularity", ("all", "day", "week", "month"), "periods")


@dataclass(frozen=True, kw_only=True)
class ReportWindow:
    """Some days of one repository's runs, trusted ones or the others."""

    repo: str
    owners: Collection[int]
    first: int
    last: int
    trusted: bool


class ListedGroup(NamedTuple):
    """A group in the table."""

    group: JobGroup
    numbers: Numbers
    link: str


class ReportQuery(NamedTuple):
    """What the address asks for."""

    path: str
    by: str
    days: int
    granularity: str
    trusted: bool
    sort: str
    group: JobGroup | None

    def link(self, **changed: object) -> str:
        """Return the address with some of it changed."""
        now: dict[str, object] = {
            "by": self.by,
            "days": self.days,
            "granularity": self.granularity,
            "runs": "trusted" if self.trusted else "others",
            "sort": self.sort,
            "group": self.group.key if self.group else "",
            "parent": self.group.parent if self.group else "",
        } | changed
        usual = {"by": "job", "days": 30, "granularity": "day", "runs": "trusted"}
        query = {name: value for name, value in now.items() if value != usual.get(name, "")}
        return self.path + (f"?{urlencode(query, errors='replace')}" if query else "")


@dataclass(frozen=True, kw_only=True)
class PageReport:
    """Groups of a repository's jobs in some days."""

    window: ReportWindow
    chosen: ReportQuery
    groups: dict[JobGroup, Numbers]
    trend: list[tuple[Period, Numbers]]
    total: Numbers
    measured: Mapping[bool, int]
    jobs_run: int
    backends: list[tuple[str, Numbers]]
    has_grid: bool  # whether the repository's commits have a page
    counted_until: int | None


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


@dataclass(frozen=True, kw_only=True)
class ReportGroups:
    """Groups of a repository's jobs in some days."""

    window: ReportWindow
    groups: dict[JobGroup, list[tuple[Period, Numbers]]]
    measured: int
    jobs: int


async def visible_owners(query: Query) -> tuple[str, set[int]]:
    """Return the repository in the path and its ids; raise Rejected 404 if it may not be shown."""
    repo = query[REPO]
    owners = await job_reads.visible_ids_of(query, repo)
    if not owners:
        raise NO_REPORT.because(f"nothing of {repo} may be shown")
    return repo, owners


def runner_costs(settings: Settings) -> report.Costs:
    """Return what runners cost."""
    return settings.of(TrunkSettings).ci_runner_cost


async def read_groups(
    tx: Transaction, window: ReportWindow, kind: str, money: report.Costs
) -> dict[JobGroup, Numbers]:
    """Return the numbers of every group over the whole window."""
    rows = await _read_rows(tx, window, kind, split_periods(window.first, window.last, "all"))
    sums = report.add_up(rows, lambda row: JobGroup(row["group_key"], row["parent"]))
    return {group: report.numbers_of(total, money) for group, total in sums.items()}


async def read_trend(
    tx: Transaction,
    window: ReportWindow,
    granularity: str,
    money: report.Costs,
    *,
    kind: str = "workflow",
    group: JobGroup | None = None,
) -> list[tuple[Period, Numbers]]:
    """Return the numbers of each period, of one group or of everything."""
    chosen = split_periods(window.first, window.last, granularity)
    rows = await _read_rows(tx, window, kind, chosen, group=group)
    period_of = _period_of(chosen)
    sums = report.add_up(rows, lambda row: period_of[SumPiece(row["span"], row["day"])])
    nothing = UsageSums()
    return [(each, report.numbers_of(sums.get(each, nothing), money)) for each in chosen]


async def read_groups_over_time(
    tx: Transaction,
    window: ReportWindow,
    kind: str,
    granularity: str,
    *,
    money: report.Costs,
    parent: str | None,
) -> dict[JobGroup, list[tuple[Period, Numbers]]]:
    """Return the numbers of every group and period; periods without a job are left out."""
    chosen = split_periods(window.first, window.last, granularity)
    rows = await _read_rows(tx, window, kind, chosen, parent=parent)
    period_of = _period_of(chosen)
    sums = report.add_up(
        rows,
        lambda row: (
            JobGroup(row["group_key"], row["parent"]),
            period_of[SumPiece(row["span"], row["day"])],
        ),
    )
    numbers_by_group: dict[JobGroup, list[tuple[Period, Numbers]]] = {}
    for group, period in sorted(sums):
        numbers_by_group.setdefault(group, []).append((period, report.numbers_of(sums[group, period], money)))
    return numbers_by_group


def _period_of(chosen: Collection[Period]) -> dict[SumPiece, Period]:
    return {piece: each for each in chosen for piece in sum_pieces(each)}


async def _read_rows(
    tx: Transaction,
    window: ReportWindow,
    kind: str,
    chosen: Collection[Period],
    *,
    group: JobGroup | None = None,
    parent: str | None = None,
) -> list[PeriodRow]:
    return await daily_sums.period_rows(
        tx,
        window.owners,
        kind,
        [piece for each in chosen for piece in sum_pieces(each)],
        trusted=window.trusted,
        group=group,
        parent=parent,
    )


async def read_page(query: Query) -> PageReport:
    """Read the groups of a repository's jobs."""
    tx, money, chosen = query.tx, runner_costs(query.settings), _read_query(query)
    repo, owners = await visible_owners(query)
    today = tx.now // DAY
    window = ReportWindow(
        repo=repo, owners=owners, first=today - chosen.days + 1, last=today, trusted=chosen.trusted
    )
    groups = await read_groups(tx, window, chosen.by, money)
    trend = await read_trend(
        tx,
        window,
        chosen.granularity,
        money,
        kind=chosen.by if chosen.group else "workflow",
        group=chosen.group,
    )
    ((_, total),) = await read_trend(tx, window, "all", money)
    measured = await daily_sums.measured_jobs(tx, owners, window.first, window.last)
    run = await daily_sums.created_jobs(tx, owners, window.first, window.last)
    return PageReport(
        window=window,
        chosen=chosen,
        groups=groups,
        trend=trend,
        total=total,
        measured=measured,
        jobs_run=sum(run.values()),
        backends=await _measured_backends(query, window, money),
        has_grid=query.settings.is_upstream(repo),
        counted_until=await sums.counted_until(tx, UTILIZATION, owners, first=first_day(window.first, 7)),
    )


def show_report(page_report: PageReport) -> dict[str, Any]:
    """Return what the page shows."""
    chosen, measured = page_report.chosen, sum(page_report.measured.values())
    sort = chosen.sort or report.default_sort(list(page_report.groups.values()))
    listed = [
        ListedGroup(group, numbers, chosen.link(group=group.key, parent=group.parent))
        for group, numbers in report.sort_groups(page_report.groups, sort)
    ]
    total = (
        page_report.groups.get(chosen.group, report.numbers_of(UsageSums()))
        if chosen.group
        else page_report.total
    )
    return {
        "repo": page_report.window.repo,
        "chosen": chosen,
        "sort": sort,
        "kinds": GROUP_KINDS,
        "granularities": report.GRANULARITIES,
        "windows": addresses.windows(chosen.days),
        "total": total,
        "listed": listed[:LISTED_MOST],
        "more": max(0, len(listed) - LISTED_MOST),
        "accelerated": any(each.numbers.gpu_hours for each in listed),
        "costed": any(each.numbers.cost is not None for each in listed),
        "charts": _charts(page_report) if chosen.granularity != "all" else [],
        "measured": measured,
        "elsewhere": page_report.measured.get(not chosen.trusted, 0),
        "jobs_run": max(page_report.jobs_run, measured),
        "backends": page_report.backends,
        "metrics": METRICS,
        "sorts": report.SORTS,
        "counted_until": page_report.counted_until,
        "json_url": _json_url(page_report.window, chosen),
    }


def _read_query(query: Query) -> ReportQuery:
    return ReportQuery(
        path=query.request.path,
        by=query[BY],
        days=query[DAYS],
        granularity=query[PAGE_GRANULARITY],
        trusted=query[RUNS] == "trusted",
        sort=query[SORT],
        group=JobGroup(query[GROUP], query[PAGE_PARENT]) if query[GROUP] else None,
    )


def _json_url(window: ReportWindow, chosen: ReportQuery) -> str:
    names = {"job": "job_name", "workflow": "workflow_name", "runner": "runner_label"}
    parameters_of_api = {
        "group_by": names[chosen.by],
        "start": report.iso_date(window.first),
        "end": report.iso_date(window.last),
        "granularity": chosen.granularity,
        "runs": "trusted" if chosen.trusted else "others",
    }
    return f"/api/ci/utilization/{window.repo}/report?{urlencode(parameters_of_api)}"


async def _measured_backends(
    query: Query, window: ReportWindow, money: report.Costs
) -> list[tuple[str, Numbers]]:
    """Return the measured backends of an upstream that may be shown, the idlest accelerators first."""
    tx, known = query.tx, {name.casefold() for name in query.settings.upstream_repo}
    allowlist = await versions.read_in_force(tx) if window.repo.casefold() in known else None
    backends = []
    for entry in (allowlist.entries if allowlist else ())[:BACKENDS_MOST]:
        owners = await job_reads.visible_ids(query.request, tx, entry.repo)
        if not owners:
            continue
        theirs = ReportWindow(
            repo=entry.repo, owners=owners, first=window.first, last=window.last, trusted=window.trusted
        )
        ((_, numbers),) = await read_trend(tx, theirs, "all", money)
        if numbers.jobs:
            backends.append((entry.repo, numbers))
    return sorted(backends, key=lambda backend: (-backend[1].idle_gpu_hours, backend[0]))


def _charts(page_report: PageReport) -> list[Chart]:
    labels = [report.iso_date(period.first) for period, _ in page_report.trend]
    ends = [report.iso_date(min(period.last, page_report.window.last)) for period, _ in page_report.trend]
    links = commits_of_days(page_report.window.repo, ends) if page_report.has_grid else ()
    drawn = []
    for title, name in METRICS:
        each = [getattr(numbers, name) for _, numbers in page_report.trend]
        made = chart(
            title,
            labels,
            [("median", [numbers.p50 for numbers in each]), ("p95", [numbers.p95 for numbers in each])],
            show=lambda value: f"{value:.0f} %",
            top=100.0,
            over="Day (UTC)"
            if page_report.chosen.granularity == "day"
            else f"First day of the {page_report.chosen.granularity}",
            links=links,
        )
        if not made.empty:
            drawn.append(made)
    return drawn


REPORT_PAGE = View(
    read=read_page,
    parameters=(REPO, BY, DAYS, PAGE_GRANULARITY, RUNS, SORT, GROUP, PAGE_PARENT),
    page=Page(path="/{owner}/{repo}/utilization", template="utilization_report.html", values=show_report),
)


def _date_parameter(name: str, description: str) -> Parameter[int | None]:
    """Declare a parameter that is a day."""

    def parse(text: str) -> int | None:
        day = report.day_of(text)
        if day is None:
            raise INVALID_PARAMETER.because(f"{name} must be a date, as in 2026-01-31")
        return day

    return parameters.parsed(name, Annotated[str, DATE_PATTERN], description, parse=parse, default=None)


START = _date_parameter("start", f"the first day; {addresses.DAYS} days before the last")
END = _date_parameter("end", "the last day; today")


async def read_json(query: Query) -> ReportGroups:
    """Read the groups of a repository's jobs."""
    tx, money = query.tx, runner_costs(query.settings)
    first, last = _requested_days(query, today=tx.now // DAY)
    repo, owners = await visible_owners(query)
    window = ReportWindow(repo=repo, owners=owners, first=first, last=last, trusted=query[RUNS] == "trusted")
    groups = await read_groups_over_time(
        tx,
        window,
        KIND_OF_FIELD[query[GROUP_BY]],
        query[JSON_GRANULARITY],
        money=money,
        parent=query[PARENT_GROUP] or None,
    )
    measured = sum((await daily_sums.measured_jobs(tx, owners, first, last)).values())
    run = sum((await daily_sums.created_jobs(tx, owners, first, last)).values())
    return ReportGroups(window=window, groups=groups, measured=measured, jobs=max(run, measured))


def answer_report(report_groups: ReportGroups) -> UsageReport:
    """Answer with the groups."""
    listed = sorted(report_groups.groups.items())
    return UsageReport(
        start=report.iso_date(report_groups.window.first),
        end=report.iso_date(report_groups.window.last),
        measured=report_groups.measured,
        jobs=report_groups.jobs,
        groups=[
            UsageGroup(
                group=group.key,
                parent=group.parent,
                periods=[
                    UsagePeriod(
                        start=report.iso_date(each.first),
                        end=report.iso_date(each.last),
                        **_number_fields(numbers),
                    )
                    for each, numbers in over_time
                ],
            )
            for group, over_time in listed[:ANSWERED_MOST]
        ],
        more=max(0, len(listed) - ANSWERED_MOST),
    )


def _number_fields(numbers: Numbers) -> dict[str, Any]:
    return {name: getattr(numbers, name) for name in Numbers.__struct_fields__}


def _requested_days(query: Query, *, today: int) -> tuple[int, int]:
    """Return the first and the last day asked for; raise Rejected 400 if they do not fit."""
    start, end = query[START], query[END]
    last = today if end is None else end
    first = last - addresses.DAYS + 1 if start is None else start
    if not 0 <= last - first < addresses.MOST_DAYS:
        detail = f"end must be at most {addresses.MOST_DAYS:,} days after start"
        raise INVALID_PARAMETER.because(detail)
    return first, last


REPORT_JSON = View(
    read=read_json,
    parameters=(REPO, GROUP_BY, PARENT_GROUP, START, END, JSON_GRANULARITY, RUNS),
    json=Json(
        path="/api/ci/utilization/{owner}/{repo}/report",
        answer=answer_report,
        content=UsageReport,
        name="utilizationReport",
        summary="How much of their machines groups of jobs use, over time",
        topic=openapi.CI,
        refusals=(NO_REPORT,),
    ),
)
