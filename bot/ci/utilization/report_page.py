"""GET /{owner}/{repo}/utilization and /{owner}/{repo}/run/{id}/utilization: jobs by group over days, jobs of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlencode

from bot.ci.collect import job_reads as ci_jobs
from bot.ci.collect import rows as collected
from bot.ci.utilization import day_rows, periods, report, report_reads, rows, words
from bot.ci.utilization.count_days import UTILIZATION
from bot.ci.utilization.report import Group, Numbers
from bot.ci.utilization.report_reads import DAY, TEXT_MOST, Window
from bot.ci.utilization.sums import first_day
from bot.core.errors import Rejected
from bot.oot.allowlist import rows as allowlists
from bot.queue import sums
from bot.web import parameters
from bot.web.app_keys import CONTEXT
from bot.web.charts import chart
from bot.web.html import page, render

if TYPE_CHECKING:
    from aiohttp import web

    from bot.ci.utilization.periods import Period
    from bot.ci.utilization.rows import JobSummary
    from bot.db.transaction import Transaction
    from bot.web.charts import Chart

GROUPS_MOST = 300  # listed
BACKENDS_MOST = 50
JOBS_MOST, UNMEASURED_MOST = 1_000, 100
KINDS = ("job", "workflow", "runner")
METRICS = (
    ("CPU", "cpu"),
    ("Memory", "memory"),
    ("Accelerators", "gpu"),
    ("Their memory bandwidth", "gpu_mem"),
)
RUN_SORTS = ("memory", "idle", "cpu", "gpu", "name")


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


@page
async def groups(request: web.Request) -> web.Response:
    """Show how much of their machines jobs use, by job, workflow or runner."""
    context, money = request.app[CONTEXT], report_reads.costs(request)
    chosen = _chosen(request)
    async with context.store.read() as tx:
        repo, owners = await report_reads.owners(request, tx)
        today = tx.now // DAY
        window = Window(
            repo=repo, owners=owners, first=today - chosen.days + 1, last=today, trusted=chosen.trusted
        )
        found = await report_reads.whole(tx, window, chosen.by, money)
        trend = await report_reads.over_time(
            tx,
            window,
            chosen.granularity,
            money,
            kind=chosen.by if chosen.group else "workflow",
            group=chosen.group,
        )
        ((_, total),) = await report_reads.over_time(tx, window, "all", money)
        measured = await day_rows.measured(tx, owners, window.first, window.last)
        run = await day_rows.jobs_run(tx, owners, window.first, window.last)
        backends = await _backends(request, tx, window, money)
        until = await sums.counted_until(tx, UTILIZATION, owners, first=first_day(window.first, 7))
    sort = chosen.sort or report.default_sort(list(found.values()))
    listed = [
        Listed(group, numbers, chosen.link(group=group.key, parent=group.parent))
        for group, numbers in report.ordered(found, sort)
    ]
    return render(
        request,
        "utilization_report.html",
        fresh=parameters.of(request),
        repo=repo,
        chosen=chosen,
        sort=sort,
        kinds=KINDS,
        granularities=periods.GRANULARITIES,
        windows=parameters.windows(chosen.days),
        total=found.get(chosen.group, report.Total().numbers()) if chosen.group else total,
        listed=listed[:GROUPS_MOST],
        more=max(0, len(listed) - GROUPS_MOST),
        accelerated=any(one.numbers.gpu_hours for one in listed),
        costed=any(one.numbers.cost is not None for one in listed),
        charts=_charts(trend) if chosen.granularity != "all" else [],
        measured=sum(measured.values()),
        elsewhere=measured.get(not chosen.trusted, 0),
        jobs_run=max(sum(run.values()), sum(measured.values())),
        backends=backends,
        metrics=METRICS,
        sorts=report.SORTS,
        counted_until=until,
        json_url=_json_url(window, chosen),
    )


def _chosen(request: web.Request) -> Chosen:
    group = parameters.given(request, "group")[:TEXT_MOST]
    return Chosen(
        path=request.path,
        by=parameters.choice(request, "by", KINDS),
        days=parameters.days(request),
        granularity=parameters.choice(request, "granularity", periods.GRANULARITIES),
        trusted=report_reads.trusted(request),
        sort=parameters.choice(request, "sort", ("", *report.SORTS)),
        group=Group(group, parameters.given(request, "parent")[:TEXT_MOST]) if group else None,
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


async def _backends(
    request: web.Request, tx: Transaction, window: Window, money: report.Costs
) -> list[tuple[str, Numbers]]:
    """Return the backends of an upstream that may be shown and were measured, the idlest accelerators first."""
    known = {name.casefold() for name in request.app[CONTEXT].settings.upstream_repo}
    allowlist = await allowlists.in_force(tx) if window.repo.casefold() in known else None
    found = []
    for entry in (allowlist.entries if allowlist else ())[:BACKENDS_MOST]:
        owners = await ci_jobs.visible(request, tx, entry.repo)
        if not owners:
            continue
        theirs = Window(
            repo=entry.repo, owners=owners, first=window.first, last=window.last, trusted=window.trusted
        )
        ((_, numbers),) = await report_reads.over_time(tx, theirs, "all", money)
        if numbers.jobs:
            found.append((entry.repo, numbers))
    return sorted(found, key=lambda one: (-one[1].idle_gpu_hours, one[0]))


def _charts(trend: list[tuple[Period, Numbers]]) -> list[Chart]:
    labels = [periods.iso(period.first) for period, _ in trend]
    drawn = []
    for title, name in METRICS:
        each = [getattr(numbers, name) for _, numbers in trend]
        made = chart(
            title,
            labels,
            [("median", [one.p50 for one in each]), ("p95", [one.p95 for one in each])],
            show=lambda value: f"{value:.0f} %",
            top=100.0,
        )
        if not made.empty:
            drawn.append(made)
    return drawn


@page
async def run(request: web.Request) -> web.Response:
    """Show the jobs of a run: full memory and idle accelerators first."""
    context = request.app[CONTEXT]
    repo, run_id = parameters.repo(request), parameters.number(request.match_info["id"])
    sort = parameters.choice(request, "sort", RUN_SORTS)
    async with context.store.read() as tx:
        owners = await ci_jobs.visible(request, tx, repo)
        attempts = await collected.runs_of(tx, owners, run_id)
        measured, jobs = [], []
        for owner in sorted(owners):
            measured += await rows.of_run(tx, owner, run_id, limit=JOBS_MOST)
            jobs += await collected.jobs(tx, owner, run_id)
    if not attempts and not measured and not jobs:
        raise Rejected(404, "not_found", "no run of that id may be shown here")
    known = {one["job_id"] for one in measured}
    return render(
        request,
        "utilization_run.html",
        fresh=parameters.of(request),
        repo=repo,
        run_id=run_id,
        title=attempts[0]["name"] if attempts else (measured or jobs)[0]["workflow_name"],
        sort=sort,
        sorts=RUN_SORTS,
        jobs=sorted(measured, key=lambda one: _place(one, sort)),
        idle_share=words.idle_share,
        accelerated=any(one["gpu_s"] for one in measured),
        unmeasured=[one for one in jobs if one["id"] not in known][:UNMEASURED_MOST],
        not_measured=sum(one["id"] not in known for one in jobs),
        all_jobs=len(jobs),
        json_url=f"/api/ci/utilization/{repo}/runs/{run_id}" if measured else None,
    )


def _place(one: JobSummary, sort: str) -> tuple[bool, float, float, str]:
    idle = words.idle_share(one) or 0.0
    memory = one["mem_max"] or 0.0
    first = {
        "memory": (memory, idle),
        "idle": (idle, memory),
        "cpu": (one["cpu_avg"] or 0.0, memory),
        "gpu": (one["gpu_avg"] or 0.0, memory),
        "name": (0.0, 0.0),
    }[sort]
    return one["status"] != "ok", -first[0], -first[1], one["job_name"]
