"""GET /failures, /failures/{signature} and their JSON below /api/ci: failures that are the same, and what they cost."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

from bot.ci.collect import job_reads
from bot.ci.logs.parse.rules import KINDS
from bot.ci.logs.sections import job_page
from bot.ci.logs.store import failure_rates, failure_rows, failure_spread
from bot.ci.logs.store.failure_counts import FAILURES
from bot.ci.logs.store.log_rows import DAY
from bot.ci.logs.tables import PUBLIC
from bot.ci.logs.views.failure_answers import (
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
from bot.core.links import web_url
from bot.queue import sums
from bot.web import operations as op
from bot.web import parameters
from bot.web import view_parameters as declare
from bot.web.answers import fill, matching
from bot.web.blocks import gather
from bot.web.charts import bars, chart
from bot.web.refusals import Refused
from bot.web.subjects import FailureStart, FailureSubject
from bot.web.view import Json, Page, View

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.ci.logs.store.failure_rates import JobRate
    from bot.ci.logs.store.failure_rows import Coverage, FailureRow
    from bot.ci.logs.store.failure_spread import Beginning, Sample, Spread
    from bot.ci.logs.tables import DayRow
    from bot.web.asked import Asked
    from bot.web.blocks import Block
    from bot.web.charts import Chart

WINDOW = 14  # days, unless ?days= says otherwise
ROWS = 100
SAMPLES = 50
CHARTED = 30  # days, of charts and of how often jobs fail: the longest window of `failure_rates`


REPO = declare.another_repository("repo", "only those seen in this repository")
KIND = declare.choice("kind", ("", *KINDS), "only of this kind")
DAYS = declare.days(default=WINDOW)
SIGNATURE = declare.in_path(
    "signature", Annotated[str, matching("^[0-9a-f]{64}$")], "its signature", parse=str, default=""
)
NOTHING = Refused(404, "not_found", "there is no failure of that signature")


@dataclass(frozen=True, kw_only=True)
class FoundFailures:
    """Failures by the jobs they cost."""

    days: int
    kind: str
    repo: str
    failures: list[FailureRow]
    jobs_by_day: dict[str, list[int]]
    coverage: Coverage
    rated_days: int
    counted_until: int | None


@dataclass(frozen=True, kw_only=True)
class FoundFailure:
    """A failure, where it happens and since when."""

    failure: FailureRow
    by_day: list[DayRow]
    samples: list[Sample]
    spread: Spread
    rates: list[JobRate]
    began: list[Beginning]
    counted_until: int | None
    today: int
    github: str
    notes: Sequence[Block] = ()  # of other features, for the page


async def read_failures(asked: Asked) -> FoundFailures:
    """Read failures by the jobs they cost."""
    tx, days, repo = asked.tx, asked[DAYS], asked[REPO]
    since, today = tx.now // DAY - days + 1, tx.now // DAY
    ids = sorted(await job_reads.visible_to(asked, repo)) if repo else None
    counted = await asked.context.resource(failure_rates.COUNTS).within(tx, days=days)
    found = await failure_rows.failures_by_cost(
        tx, since=since, kind=asked[KIND] or None, repository_ids=ids, counted=counted, limit=ROWS
    )
    signatures = [row["signature"] for row in found]
    return FoundFailures(
        days=days,
        kind=asked[KIND],
        repo=repo,
        failures=found,
        jobs_by_day=await failure_rows.jobs_by_day(tx, signatures, days=range(since, today + 1)),
        coverage=await failure_rows.count_coverage(tx, since=since),
        rated_days=counted.days,
        counted_until=await sums.counted_until(tx, FAILURES, [PUBLIC], first=since),
    )


async def read_failure(asked: Asked) -> FoundFailure:
    """Read one failure; raises Rejected."""
    tx, signature = asked.tx, asked[SIGNATURE]
    since = tx.now // DAY - parameters.MOST_DAYS
    counted = await asked.context.resource(failure_rates.COUNTS).within(tx, days=CHARTED)
    found = await failure_rows.find_failure(tx, signature, since=since, counted=counted)
    if found is None:
        raise NOTHING.because("there is no failure of that signature")
    samples = await failure_spread.newest_samples(tx, signature)
    began = await failure_spread.find_beginnings(tx, asked.settings, signature)
    starts = tuple(
        FailureStart(repo=one["repo"], job=one["job"], upstream=one["upstream"], branch=one["branch"])
        for one in began
    )
    about = FailureSubject(signature=signature, began=starts, settings=asked.settings)
    return FoundFailure(
        failure=found,
        by_day=await failure_rows.cost_by_day(tx, signature, since=since),
        samples=samples,
        spread=failure_spread.spread_of_samples(samples),
        rates=await failure_rates.rates_of_jobs(tx, signature, counted),
        began=began,
        counted_until=await sums.counted_until(tx, FAILURES, [PUBLIC], first=since),
        today=asked.context.clock.now() // DAY,
        github=web_url(asked.settings.github_api_url),
        notes=await gather(asked.context.features, "failure", tx, about) if asked.for_page else (),
    )


def show_failures(found: FoundFailures) -> dict[str, Any]:
    """Return what the page of failures shows."""
    repo, kind = found.repo, found.kind
    of_repo = f"&{parameters.query({'repo': repo})}" if repo else ""
    of_kind = f"&{parameters.query({'kind': kind})}" if kind else ""
    return {
        "failures": [(one, found.jobs_by_day[one["signature"]]) for one in found.failures],
        "bars": bars,
        "days": found.days,
        "rated_days": found.rated_days,
        "windows": parameters.windows(found.days),
        "kind": kind,
        "kinds": KINDS,
        "repo": repo,
        "of_repo": of_repo,
        "rest": of_kind + of_repo,
        "coverage": found.coverage,
        "counted_until": found.counted_until,
    }


def show_failure(found: FoundFailure) -> dict[str, Any]:
    """Return what the page of a failure shows."""
    headings = zip(("Job", "Runner", "Repository"), found.spread, strict=True)
    return {
        "failure": found.failure,
        "charts": _charts(found.by_day, found.today),
        "rated_days": CHARTED,
        "rates": found.rates,
        "began": found.began,
        "spread": [(heading, rows) for heading, rows in headings if rows],
        "counted": len(found.samples),
        "samples": found.samples[:SAMPLES],
        "job_page": job_page,
        "github": found.github,
        "notes": found.notes,
        "counted_until": found.counted_until,
    }


def answer_failures(found: FoundFailures) -> Failures:
    """Return failures by the jobs they cost."""
    return Failures(
        days=found.days,
        rate_days=found.rated_days,
        classified_jobs=found.coverage["jobs"],
        named_jobs=found.coverage["named"],
        failures=[
            fill(FailureOfDays, row, rate=_rate(row), jobs_by_day=found.jobs_by_day[row["signature"]])
            for row in found.failures
        ],
    )


def answer_failure(found: FoundFailure) -> FailureAnswer:
    """Return one failure."""
    return FailureAnswer(
        failure=fill(Failure, found.failure, rate=_rate(found.failure)),
        by_day=[fill(FailureDay, row, day=_date(row["day"])) for row in found.by_day],
        rates=[fill(FailureJobRate, row) for row in found.rates],
        began=[fill(FailureBeginning, row) for row in found.began],
        by_job=[fill(FailureGroup, row) for row in found.spread.by_job],
        by_label=[fill(FailureGroup, row) for row in found.spread.by_label],
        by_repo=[fill(FailureGroup, row) for row in found.spread.by_repo],
        samples=[fill(FailureSample, row) for row in found.samples[:SAMPLES]],
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


def _date(day: int) -> str:
    return f"{datetime.fromtimestamp(day * 86_400, UTC):%Y-%m-%d}"


VIEWS = (
    View(
        read=read_failures,
        parameters=(REPO, KIND, DAYS),
        page=Page(path="/failures", template="failures.html", values=show_failures, refresh=None),
        json=Json(
            path="/api/ci/failures",
            answer=answer_failures,
            content=Failures,
            name="ciFailures",
            summary="Failures by the jobs they cost",
            topic=op.CI,
            link=lambda found: {"days": found.days, "kind": found.kind, "repo": found.repo},
        ),
    ),
    View(
        read=read_failure,
        parameters=(SIGNATURE,),
        page=Page(
            path="/failures/{signature:[0-9a-f]{64}}",
            template="failure.html",
            values=show_failure,
            refresh=None,
        ),
        json=Json(
            path="/api/ci/failures/{signature:[0-9a-f]{64}}",
            answer=answer_failure,
            content=FailureAnswer,
            name="ciFailure",
            summary="A failure, day by day, with samples",
            topic=op.CI,
            refusals=(NOTHING,),
        ),
    ),
)
