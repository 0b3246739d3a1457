"""GET /failures, /failures/{signature} and their JSON below /api/ci: failures that are the same, and what they cost."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from aiohttp import web

from bot.ci.collect import job_reads
from bot.ci.logs import failure_rates, failure_rows, failure_spread
from bot.ci.logs.failure_answers import (
    Failure,
    FailureAnswer,
    FailureBeginning,
    FailureDay,
    FailureGroup,
    FailureJobRate,
    FailureOfDays,
    FailureRate,
    Failures,
    FailureSample,
)
from bot.ci.logs.failure_counts import FAILURES
from bot.ci.logs.rows import DAY, PUBLIC
from bot.ci.logs.rules import KINDS
from bot.ci.logs.sections import job_page
from bot.core.errors import Rejected
from bot.core.links import web_url
from bot.queue import sums
from bot.web import parameters
from bot.web.answers import fill, send
from bot.web.app_keys import CONTEXT
from bot.web.charts import bars, chart
from bot.web.html import page, render
from bot.web.render_thread import in_render_thread

if TYPE_CHECKING:
    from bot.ci.logs.failure_rates import JobRate
    from bot.ci.logs.failure_rows import Coverage, DayRow, FailureRow
    from bot.ci.logs.failure_spread import Beginning, Sample, Spread
    from bot.db.transaction import Transaction
    from bot.web.charts import Chart

WINDOW = 14  # days, unless ?days= says otherwise
ROWS = 100
SAMPLES = 50
CHARTED = 30  # days, of charts and of how often jobs fail: the longest window of `failure_rates`
SIGNATURE_LENGTH = 64


class _Several(NamedTuple):
    """What is shown of failures."""

    days: int
    failures: list[FailureRow]
    jobs_by_day: dict[str, list[int]]
    coverage: Coverage
    rated_days: int
    counted_until: int | None


class _One(NamedTuple):
    """What is shown of a failure."""

    failure: FailureRow
    by_day: list[DayRow]
    samples: list[Sample]
    spread: Spread
    rates: list[JobRate]
    began: list[Beginning]
    counted_until: int | None


@in_render_thread
async def api_failures(request: web.Request) -> web.Response:
    """Answer with failures by the jobs they cost."""
    async with request.app[CONTEXT].store.read() as tx:
        found = await _found(request, tx)
    return send(
        Failures(
            days=found.days,
            rate_days=found.rated_days,
            classified_jobs=found.coverage["jobs"],
            named_jobs=found.coverage["named"],
            failures=[
                fill(FailureOfDays, row, rate=_rate(row), jobs_by_day=found.jobs_by_day[row["signature"]])
                for row in found.failures
            ],
        )
    )


@in_render_thread
async def api_failure(request: web.Request) -> web.Response:
    """Answer with one failure."""
    async with request.app[CONTEXT].store.read() as tx:
        one = await _one(request, tx)
    return send(
        FailureAnswer(
            failure=fill(Failure, one.failure, rate=_rate(one.failure)),
            by_day=[fill(FailureDay, row, day=_date(row["day"])) for row in one.by_day],
            rates=[fill(FailureJobRate, row) for row in one.rates],
            began=[fill(FailureBeginning, row) for row in one.began],
            by_job=[fill(FailureGroup, row) for row in one.spread.by_job],
            by_label=[fill(FailureGroup, row) for row in one.spread.by_label],
            by_repo=[fill(FailureGroup, row) for row in one.spread.by_repo],
            samples=[fill(FailureSample, row) for row in one.samples[:SAMPLES]],
        )
    )


@page
async def failures(request: web.Request) -> web.Response:
    """Show failures by the jobs they cost."""
    async with request.app[CONTEXT].store.read() as tx:
        found = await _found(request, tx)
    repo, kind = parameters.given(request, "repo"), _kind(request)
    query = parameters.query({"days": found.days, "kind": kind, "repo": repo})
    of_repo = f"&{parameters.query({'repo': repo})}" if repo else ""
    of_kind = f"&{parameters.query({'kind': kind})}" if kind else ""
    return render(
        request,
        "failures.html",
        failures=[(one, found.jobs_by_day[one["signature"]]) for one in found.failures],
        bars=bars,
        days=found.days,
        rated_days=found.rated_days,
        windows=parameters.windows(found.days),
        kind=kind,
        kinds=KINDS,
        repo=repo,
        of_repo=of_repo,
        rest=of_kind + of_repo,
        coverage=found.coverage,
        counted_until=found.counted_until,
        json_url=f"/api/ci/failures?{query}",
    )


@page
async def failure(request: web.Request) -> web.Response:
    """Show one failure."""
    context = request.app[CONTEXT]
    async with context.store.read() as tx:
        one = await _one(request, tx)
    return render(
        request,
        "failure.html",
        failure=one.failure,
        charts=_charts(one.by_day, request.app[CONTEXT].clock.now() // DAY),
        rated_days=CHARTED,
        rates=one.rates,
        began=one.began,
        spread=[
            (heading, rows)
            for heading, rows in zip(("Job", "Runner", "Repository"), one.spread, strict=True)
            if rows
        ],
        counted=len(one.samples),
        samples=one.samples[:SAMPLES],
        job_page=job_page,
        github=web_url(context.settings.github_api_url),
        counted_until=one.counted_until,
        json_url=f"/api/ci/failures/{one.failure['signature']}",
    )


async def _found(request: web.Request, tx: Transaction) -> _Several:
    days, name = _days(request), parameters.given(request, "repo")
    since, today = tx.now // DAY - days + 1, tx.now // DAY
    ids = sorted(await job_reads.visible(request, tx, name)) if name else None
    counted = await request.app[CONTEXT].resource(failure_rates.COUNTS).of(tx, days=days)
    found = await failure_rows.failures(
        tx, since=since, kind=_kind(request) or None, repository_ids=ids, counted=counted, limit=ROWS
    )
    by_day = await failure_rows.jobs_by_day(
        tx, [row["signature"] for row in found], days=range(since, today + 1)
    )
    coverage = await failure_rows.coverage(tx, since=since)
    until = await sums.counted_until(tx, FAILURES, [PUBLIC], first=since)
    return _Several(days, found, by_day, coverage, counted.days, until)


async def _one(request: web.Request, tx: Transaction) -> _One:
    signature, since = request.match_info["signature"], tx.now // DAY - parameters.MOST_DAYS
    counted = await request.app[CONTEXT].resource(failure_rates.COUNTS).of(tx, days=CHARTED)
    found = await failure_rows.failure(tx, signature, since=since, counted=counted)
    if found is None:
        raise Rejected(404, "not_found", "there is no failure of that signature")
    samples = await failure_spread.newest(tx, signature)
    return _One(
        failure=found,
        by_day=await failure_rows.by_day(tx, signature, since=since),
        samples=samples,
        spread=failure_spread.spread(samples),
        rates=await failure_rates.of_jobs(tx, signature, counted),
        began=await failure_spread.beginnings(tx, request.app[CONTEXT].settings, signature),
        counted_until=await sums.counted_until(tx, FAILURES, [PUBLIC], first=since),
    )


def _rate(row: FailureRow) -> FailureRate | None:
    rate = row["rate"]
    return fill(FailureRate, rate) if rate else None


def _charts(by_day: list[DayRow], today: int) -> list[Chart]:
    """Return charts of the last days: jobs on trusted branches and others, and pull requests."""
    rows = {row["day"]: row for row in by_day}
    days = range(today - CHARTED + 1, today + 1)
    labels = [f"{datetime.fromtimestamp(day * 86_400, UTC):%b %d}" for day in days]
    found = [rows.get(day) for day in days]
    trusted = [float(row["trusted_jobs"]) if row else 0.0 for row in found]
    others = [float(row["jobs"] - row["trusted_jobs"]) if row else 0.0 for row in found]
    pulls = [float(row["prs"]) if row else 0.0 for row in found]
    return [
        chart("Jobs", labels, [("trusted", trusted), ("others", others)], show=_count),
        chart("Pull requests", labels, [("pull requests", pulls)], show=_count),
    ]


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _days(request: web.Request) -> int:
    return parameters.whole(request, "days", default=WINDOW, most=parameters.MOST_DAYS)


def _kind(request: web.Request) -> str:
    return parameters.choice(request, "kind", ("", *KINDS))


def _date(day: int) -> str:
    return f"{datetime.fromtimestamp(day * 86_400, UTC):%Y-%m-%d}"


routes = [
    web.get("/failures", failures),
    web.get("/failures/{signature:[0-9a-f]{64}}", failure),
    web.get("/api/ci/failures", api_failures),
    web.get("/api/ci/failures/{signature:[0-9a-f]{64}}", api_failure),
]
