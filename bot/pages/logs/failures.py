"""GET /failures, /failures/{signature} and their JSON: failures that are the same, and what they cost."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlencode

from msgspec import Meta, Struct

from bot.core.escaping import web_url
from bot.core.text import plural
from bot.evidence.logs import failure_costs, known_failures, rows
from bot.evidence.logs.failure_costs import FailureRow
from bot.evidence.logs.failure_lines import job_page
from bot.evidence.logs.known_failures import Beginning, Sample
from bot.evidence.logs.parse.rulesets import KINDS
from bot.evidence.logs.rows import DAY, FAILURES
from bot.evidence.logs.tables import PUBLIC, DayRow
from bot.pages import job_reads
from bot.pages.culprits.sections import describe_failure
from bot.queue import sums
from bot.web import addresses, openapi, parameters
from bot.web.answers import Answer, RowAnswer, Time, fill_struct, matching, one_of
from bot.web.blocks import FailureStart, FailureSubject
from bot.web.charts import bars, chart
from bot.web.openapi import DeclaredRefusal
from bot.web.search import Hit
from bot.web.view import Json, Page, View

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.evidence.logs.failure_costs import Coverage, JobRate
    from bot.evidence.logs.known_failures import Spread
    from bot.evidence.logs.tables import SignatureRow
    from bot.web.blocks import Block
    from bot.web.charts import Chart
    from bot.web.parameters import Query
    from bot.web.search import SearchWords


class FailureRate(Struct, frozen=True, kw_only=True):
    """How often the jobs that fail that way do so, of runs that began and ended"""

    jobs: Annotated[int, Meta(description="runs that failed that way")]
    runs: Annotated[
        int,
        Meta(
            description="all runs of these jobs in the same days, on any commit and shard, as of up to a minute ago"
        ),
    ]


class Failure(
    RowAnswer, row=FailureRow, frozen=True, kw_only=True,
    only=("signature", "title", "rule", "kind", "first_at", "last_at", "jobs_total", "issue_url", "jobs", "prs",
          "trusted_jobs", "repos", "rate"),
):  # fmt: skip
    """A failure: jobs whose logs say the same, but for what differs from run to run."""

    kind: Annotated[str, one_of(KINDS)]
    issue_url: Annotated[str | None, Meta(description="of the issue about it, as the administrator tied it")]
    jobs: Annotated[int, Meta(description="in the window")]
    trusted_jobs: Annotated[int, Meta(description="of the repositories' own runs on trusted branches")]
    repos: Annotated[int, Meta(description="the most on one day")]
    rate: Annotated[
        FailureRate | None, Meta(description="null: no runs of these jobs are recorded, as of other CIs")
    ]


class FailureOfDays(Failure, frozen=True, kw_only=True):
    """A failure, and the jobs it cost day by day."""

    jobs_by_day: Annotated[list[int], Meta(description="each day of the window, the oldest first, in UTC")]


class Failures(Answer, frozen=True, kw_only=True):
    """Failures of public repositories by the jobs they cost"""

    days: int
    rate_days: Annotated[int, Meta(description="the window of each `rate`: at most 30")]
    classified_jobs: Annotated[int, Meta(description="failed jobs with a verdict, in the window")]
    named_jobs: Annotated[int, Meta(description="of these: those with a verdict that is not generic or none")]
    failures: list[FailureOfDays]


class FailureDay(RowAnswer, row=DayRow, frozen=True, kw_only=True):
    """What a failure cost on a day."""

    day: Annotated[str, Meta(description="UTC", examples=["2026-01-31"])]


class FailureSample(
    RowAnswer, row=Sample, frozen=True, kw_only=True,
    only=("repo", "job_id", "name", "workflow_name", "head_sha", "line", "line_num", "trusted", "at"),
):  # fmt: skip
    """A job that failed that way."""

    head_sha: str | None
    at: Time


class FailureGroup(Struct, frozen=True, kw_only=True):
    """Jobs that failed that way and have something in common."""

    name: str
    jobs: int
    trusted_jobs: int


class FailureJobRate(Struct, frozen=True, kw_only=True):
    """How often one job fails that way, of its runs of the last 30 days"""

    repo: str
    job: Annotated[str, Meta(description="without shard and runner")]
    jobs: int
    runs: int


class FailureBeginning(
    RowAnswer, row=Beginning, frozen=True, kw_only=True,
    only=("repo", "job", "upstream", "branch", "last_good", "first_bad"),
):  # fmt: skip
    """Between which two trusted commits a job began to fail that way."""

    repo: Annotated[str, Meta(description="of the job")]
    upstream: Annotated[str, Meta(description="of the commits")]


class FailureAnswer(Answer, frozen=True, kw_only=True):
    """A failure, day by day, where it happens and since when, and jobs that failed that way"""

    failure: Failure
    by_day: list[FailureDay]
    rates: Annotated[list[FailureJobRate], Meta(description="the jobs that it hits most")]
    began: list[FailureBeginning]
    by_job: Annotated[
        list[FailureGroup], Meta(description="the newest jobs by name, without shard and runner")
    ]
    by_label: Annotated[list[FailureGroup], Meta(description="the same by the labels of their runners")]
    by_repo: Annotated[list[FailureGroup], Meta(description="the same by repository: upstream and backends")]
    samples: list[FailureSample]


WINDOW = 14  # days, unless ?days= says otherwise
ROWS = 100
SAMPLES = 50
CHARTED = 30  # days, of charts and of how often jobs fail: the longest window of `failure_rates`


REPO = parameters.another_repository("repo", "only those seen in this repository")
KIND = parameters.choice("kind", ("", *KINDS), "only of this kind")
DAYS = parameters.days(default=WINDOW)
SIGNATURE = parameters.in_path(
    "signature", Annotated[str, matching("^[0-9a-f]{64}$")], "its signature", parse=str, default=""
)
NO_FAILURE = DeclaredRefusal(404, "not_found", "there is no failure of that signature")


@dataclass(frozen=True, kw_only=True)
class FailureList:
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
class FailureDetails:
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


async def read_failures(query: Query) -> FailureList:
    """Read failures by the jobs they cost."""
    tx, days, repo = query.tx, query[DAYS], query[REPO]
    since, today = tx.now // DAY - days + 1, tx.now // DAY
    ids = sorted(await job_reads.visible_ids_of(query, repo)) if repo else None
    counted = await query.context.resource(failure_costs.RUN_COUNTER).within(tx, days=days)
    failures = await failure_costs.failures_by_cost(
        tx, since=since, kind=query[KIND] or None, repository_ids=ids, counted=counted, limit=ROWS
    )
    signatures = [row["signature"] for row in failures]
    return FailureList(
        days=days,
        kind=query[KIND],
        repo=repo,
        failures=failures,
        jobs_by_day=await failure_costs.jobs_by_day(tx, signatures, days=range(since, today + 1)),
        coverage=await failure_costs.count_coverage(tx, since=since),
        rated_days=counted.days,
        counted_until=await sums.counted_until(tx, FAILURES, [PUBLIC], first=since),
    )


async def read_failure(query: Query) -> FailureDetails:
    """Read one failure; raise Rejected if it is not known."""
    tx, signature = query.tx, query[SIGNATURE]
    since = tx.now // DAY - addresses.MOST_DAYS
    counted = await query.context.resource(failure_costs.RUN_COUNTER).within(tx, days=CHARTED)
    failure = await failure_costs.find_failure(tx, signature, since=since, counted=counted)
    if failure is None:
        raise NO_FAILURE.because("there is no failure of that signature")
    samples = await known_failures.newest_samples(tx, signature)
    began = await known_failures.find_beginnings(tx, query.settings, signature)
    starts = tuple(
        FailureStart(
            repo=beginning["repo"],
            job=beginning["job"],
            upstream=beginning["upstream"],
            branch=beginning["branch"],
        )
        for beginning in began
    )
    about = FailureSubject(signature=signature, began=starts, settings=query.settings)
    return FailureDetails(
        failure=failure,
        by_day=await failure_costs.cost_by_day(tx, signature, since=since),
        samples=samples,
        spread=known_failures.spread_of_samples(samples),
        rates=await failure_costs.rates_of_jobs(tx, signature, counted),
        began=began,
        counted_until=await sums.counted_until(tx, FAILURES, [PUBLIC], first=since),
        today=query.context.clock.now() // DAY,
        github=web_url(query.settings.github_api_url),
        notes=await describe_failure(tx, about) if query.for_page else (),
    )


def show_failures(listed: FailureList) -> dict[str, Any]:
    """Return what the page of failures shows."""
    repo, kind = listed.repo, listed.kind
    of_repo = f"&{addresses.query({'repo': repo})}" if repo else ""
    of_kind = f"&{addresses.query({'kind': kind})}" if kind else ""
    return {
        "failures": [(failure, listed.jobs_by_day[failure["signature"]]) for failure in listed.failures],
        "bars": bars,
        "days": listed.days,
        "rated_days": listed.rated_days,
        "windows": addresses.windows(listed.days),
        "kind": kind,
        "kinds": KINDS,
        "repo": repo,
        "of_repo": of_repo,
        "rest": of_kind + of_repo,
        "coverage": listed.coverage,
        "counted_until": listed.counted_until,
    }


def show_failure(details: FailureDetails) -> dict[str, Any]:
    """Return what the page of a failure shows."""
    headings = zip(("Job", "Runner", "Repository"), details.spread, strict=True)
    return {
        "failure": details.failure,
        "charts": _charts(details.by_day, details.today),
        "rated_days": CHARTED,
        "rates": details.rates,
        "began": details.began,
        "spread": [(heading, rows) for heading, rows in headings if rows],
        "counted": len(details.samples),
        "samples": details.samples[:SAMPLES],
        "job_page": job_page,
        "github": details.github,
        "notes": details.notes,
        "counted_until": details.counted_until,
    }


def answer_failures(listed: FailureList) -> Failures:
    """Answer with failures by the jobs they cost."""
    return Failures(
        days=listed.days,
        rate_days=listed.rated_days,
        classified_jobs=listed.coverage["jobs"],
        named_jobs=listed.coverage["named"],
        failures=[
            fill_struct(FailureOfDays, row, rate=_rate(row), jobs_by_day=listed.jobs_by_day[row["signature"]])
            for row in listed.failures
        ],
    )


def answer_failure(details: FailureDetails) -> FailureAnswer:
    """Answer with one failure."""
    return FailureAnswer(
        failure=fill_struct(Failure, details.failure, rate=_rate(details.failure)),
        by_day=[fill_struct(FailureDay, row, day=_date(row["day"])) for row in details.by_day],
        rates=[fill_struct(FailureJobRate, row) for row in details.rates],
        began=[fill_struct(FailureBeginning, row) for row in details.began],
        by_job=[fill_struct(FailureGroup, row) for row in details.spread.by_job],
        by_label=[fill_struct(FailureGroup, row) for row in details.spread.by_label],
        by_repo=[fill_struct(FailureGroup, row) for row in details.spread.by_repo],
        samples=[fill_struct(FailureSample, row) for row in details.samples[:SAMPLES]],
    )


def _rate(row: FailureRow) -> FailureRate | None:
    rate = row["rate"]
    return fill_struct(FailureRate, rate) if rate else None


def _charts(by_day: list[DayRow], today: int) -> list[Chart]:
    """Draw charts of the last days: jobs on trusted branches and others, and pull requests."""
    rows = {row["day"]: row for row in by_day}
    days = range(today - CHARTED + 1, today + 1)
    labels = [f"{datetime.fromtimestamp(day * 86_400, UTC):%b %d}" for day in days]
    day_rows = [rows.get(day) for day in days]
    trusted = [float(row["trusted_jobs"]) if row else 0.0 for row in day_rows]
    others = [float(row["jobs"] - row["trusted_jobs"]) if row else 0.0 for row in day_rows]
    pulls = [float(row["prs"]) if row else 0.0 for row in day_rows]
    return [
        chart("Jobs", labels, [("trusted", trusted), ("others", others)], show=_count),
        chart("Pull requests", labels, [("pull requests", pulls)], show=_count),
    ]


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _date(day: int) -> str:
    return f"{datetime.fromtimestamp(day * 86_400, UTC):%Y-%m-%d}"


FAILURE_VIEWS = (
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
            topic=openapi.CI,
            link=lambda listed: {"days": listed.days, "kind": listed.kind, "repo": listed.repo},
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
            topic=openapi.CI,
            refusals=(NO_FAILURE,),
        ),
    ),
)


async def find_hits(query: Query, words: SearchWords, limit: int) -> list[Hit]:
    """Find failures, and link to the search of upstream's logs."""
    failures: list[SignatureRow] = []
    if words.sha:
        failures = await rows.failures_by_signature(query.tx, words.sha, limit=limit)
    elif words.number is None:
        failures = await rows.failures_by_words(query.tx, words.text, limit=limit)
    logs = [
        _log_search_hit(repo, words.text)
        for repo in query.settings.upstream_repo
        if await job_reads.visible_ids_of(query, repo)
    ]
    return [*(_failure_hit(row, words) for row in failures), *logs]


def _failure_hit(row: SignatureRow, words: SearchWords) -> Hit:
    return Hit(
        kind="failure",
        title=row["title"],
        path=f"/failures/{row['signature']}",
        detail=f"{row['kind']}, {plural(row['jobs_total'], 'job')}",
        exact=row["signature"] == words.sha,
    )


def _log_search_hit(repo: str, text: str) -> Hit:
    pattern = re.sub(r"([^\w\s])", r"\\\1", text)  # so that every character stands for itself
    query = urlencode({"q": pattern, "days": 7})
    return Hit(kind="logs", title=f"Search logs for “{text}”", path=f"/{repo}/logs?{query}", repo=repo)
