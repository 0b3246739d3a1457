"""GET /{owner}/{repo}/utilization: how much of their machines jobs use, by job, workflow or runner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode

from bot.ci.collect import job_reads as ci_jobs
from bot.ci.utilization import periods, report
from bot.ci.utilization.report import Group, Numbers
from bot.ci.utilization.store import day_rows
from bot.ci.utilization.store.count_days import UTILIZATION
from bot.ci.utilization.sums import Sums, first_day
from bot.ci.utilization.views import report_reads
from bot.ci.utilization.views.report_reads import DAY, RUNS, Window
from bot.oot.allowlist import rows as allowlists
from bot.queue import sums
from bot.web import parameters
from bot.web import view_parameters as declare
from bot.web.charts import chart, commits_of_days
from bot.web.view import Page, View
from bot.web.view_parameters import REPO

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bot.ci.utilization.periods import Period
    from bot.web.asked import Asked
    from bot.web.charts import Chart

GROUPS_MOST = 300  # listed
BACKENDS_MOST = 50
KINDS = ("job", "workflow", "runner")
METRICS = (
    ("CPU", "cpu"),
    ("Memory", "memory"),
    ("Accelerators", "gpu"),
    ("Their memory bandwidth", "gpu_mem"),
)


class Listed(NamedTuple):
    """A group in the table."""

    group: Group
    numbers: Numbers
    link: str


class Chosen(NamedTuple):
    """What the address asks for."""

    path: str
    by: str
    days: int
    granularity: str
    trusted: bool
    sort: str
    group: Group | None

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
class Found:
    """Groups of a repository's jobs in some days."""

    window: Window
    chosen: Chosen
    groups: dict[Group, Numbers]
    trend: list[tuple[Period, Numbers]]
    total: Numbers
    measured: Mapping[bool, int]
    jobs_run: int
    backends: list[tuple[str, Numbers]]
    has_grid: bool  # whether the repository's commits have a page
    counted_until: int | None


BY = declare.choice("by", KINDS, "what is a group")
DAYS = declare.days()
GRANULARITY = declare.choice("granularity", periods.GRANULARITIES, "periods of the charts")
SORT = declare.choice("sort", ("", *report.SORTS), "the order of groups")
GROUP = declare.text("group", "the group of the charts")
PARENT = declare.text("parent", "of a job: its workflow")


async def read_report(asked: Asked) -> Found:
    """Read the groups of a repository's jobs."""
    tx, money, chosen = asked.tx, report_reads.runner_costs(asked.settings), _chosen(asked)
    repo, owners = await report_reads.visible_owners(asked)
    today = tx.now // DAY
    window = Window(
        repo=repo, owners=owners, first=today - chosen.days + 1, last=today, trusted=chosen.trusted
    )
    found = await report_reads.read_groups(tx, window, chosen.by, money)
    trend = await report_reads.read_trend(
        tx,
        window,
        chosen.granularity,
        money,
        kind=chosen.by if chosen.group else "workflow",
        group=chosen.group,
    )
    ((_, total),) = await report_reads.read_trend(tx, window, "all", money)
    measured = await day_rows.measured_jobs(tx, owners, window.first, window.last)
    run = await day_rows.created_jobs(tx, owners, window.first, window.last)
    return Found(
        window=window,
        chosen=chosen,
        groups=found,
        trend=trend,
        total=total,
        measured=measured,
        jobs_run=sum(run.values()),
        backends=await _backends(asked, window, money),
        has_grid=asked.settings.is_upstream(repo),
        counted_until=await sums.counted_until(tx, UTILIZATION, owners, first=first_day(window.first, 7)),
    )


def show(found: Found) -> dict[str, Any]:
    """Return what the page shows."""
    chosen, measured = found.chosen, sum(found.measured.values())
    sort = chosen.sort or report.default_sort(list(found.groups.values()))
    listed = [
        Listed(group, numbers, chosen.link(group=group.key, parent=group.parent))
        for group, numbers in report.ordered(found.groups, sort)
    ]
    total = found.groups.get(chosen.group, report.numbers_of(Sums())) if chosen.group else found.total
    return {
        "repo": found.window.repo,
        "chosen": chosen,
        "sort": sort,
        "kinds": KINDS,
        "granularities": periods.GRANULARITIES,
        "windows": parameters.windows(chosen.days),
        "total": total,
        "listed": listed[:GROUPS_MOST],
        "more": max(0, len(listed) - GROUPS_MOST),
        "accelerated": any(one.numbers.gpu_hours for one in listed),
        "costed": any(one.numbers.cost is not None for one in listed),
        "charts": _charts(found) if chosen.granularity != "all" else [],
        "measured": measured,
        "elsewhere": found.measured.get(not chosen.trusted, 0),
        "jobs_run": max(found.jobs_run, measured),
        "backends": found.backends,
        "metrics": METRICS,
        "sorts": report.SORTS,
        "counted_until": found.counted_until,
        "json_url": _json_url(found.window, chosen),
    }


def _chosen(asked: Asked) -> Chosen:
    return Chosen(
        path=asked.request.path,
        by=asked[BY],
        days=asked[DAYS],
        granularity=asked[GRANULARITY],
        trusted=asked[RUNS] == "trusted",
        sort=asked[SORT],
        group=Group(asked[GROUP], asked[PARENT]) if asked[GROUP] else None,
    )


def _json_url(window: Window, chosen: Chosen) -> str:
    names = {"job": "job_name", "workflow": "workflow_name", "runner": "runner_label"}
    asked = {
        "group_by": names[chosen.by],
        "start": periods.iso(window.first),
        "end": periods.iso(window.last),
        "granularity": chosen.granularity,
        "runs": "trusted" if chosen.trusted else "others",
    }
    return f"/api/ci/utilization/{window.repo}/report?{urlencode(asked)}"


async def _backends(asked: Asked, window: Window, money: report.Costs) -> list[tuple[str, Numbers]]:
    """Return the backends of an upstream that may be shown and were measured, the idlest accelerators first."""
    tx, known = asked.tx, {name.casefold() for name in asked.settings.upstream_repo}
    allowlist = await allowlists.in_force(tx) if window.repo.casefold() in known else None
    found = []
    for entry in (allowlist.entries if allowlist else ())[:BACKENDS_MOST]:
        owners = await ci_jobs.visible(asked.request, tx, entry.repo)
        if not owners:
            continue
        theirs = Window(
            repo=entry.repo, owners=owners, first=window.first, last=window.last, trusted=window.trusted
        )
        ((_, numbers),) = await report_reads.read_trend(tx, theirs, "all", money)
        if numbers.jobs:
            found.append((entry.repo, numbers))
    return sorted(found, key=lambda one: (-one[1].idle_gpu_hours, one[0]))


def _charts(found: Found) -> list[Chart]:
    labels = [periods.iso(period.first) for period, _ in found.trend]
    ends = [periods.iso(min(period.last, found.window.last)) for period, _ in found.trend]
    links = commits_of_days(found.window.repo, ends) if found.has_grid else ()
    drawn = []
    for title, name in METRICS:
        each = [getattr(numbers, name) for _, numbers in found.trend]
        made = chart(
            title,
            labels,
            [("median", [one.p50 for one in each]), ("p95", [one.p95 for one in each])],
            show=lambda value: f"{value:.0f} %",
            top=100.0,
            over="Day (UTC)"
            if found.chosen.granularity == "day"
            else f"First day of the {found.chosen.granularity}",
            links=links,
        )
        if not made.empty:
            drawn.append(made)
    return drawn


VIEW = View(
    read=read_report,
    parameters=(REPO, BY, DAYS, GRANULARITY, RUNS, SORT, GROUP, PARENT),
    page=Page(path="/{owner}/{repo}/utilization", template="utilization_report.html", values=show),
)
