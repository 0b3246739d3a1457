"""Failures that are the same: how many jobs they cost, how often they happen, and the issues about them.

What pages show is of public repositories only; the operator's counts include private ones.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypedDict, cast

import sqlalchemy as sa
from cachetools import TTLCache

from bot.context import Resource
from bot.core import escaping, metrics
from bot.db.rows import Text, select
from bot.db.store import LOCK_TIMEOUT
from bot.evidence.collect.tables import ci_fetch
from bot.evidence.logs import follow_changes, rows
from bot.evidence.logs.rows import DAY
from bot.evidence.logs.tables import (
    FIRST,
    PUBLIC,
    DayRow,
    SignatureCost,
    SignatureTimes,
    SignatureTitle,
    SignatureTotal,
    ci_signature,
    ci_signature_day,
    ci_verdict,
)
from bot.ingest.retention import delete_in_batches
from bot.ingest.tables import records
from bot.jobs.cells import CONCLUSIONS, STATES
from bot.jobs.collection import FetchState
from bot.jobs.settings import CollectSettings
from bot.jobs.tables import ci_cell, ci_column
from bot.web.access import CONTEXT
from bot.web.blocks import AdminSection, FormDone

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from aiohttp import web

    from bot.context import Context
    from bot.core.settings import Settings
    from bot.db.rows import TypedSelect
    from bot.db.transaction import Transaction
    from bot.evidence.logs.failed_jobs import FailedJob
    from bot.web.access import Hidden

CELL, COLUMN, VERDICT, REPOSITORY = ci_cell.c, ci_column.c, ci_verdict.c, records["repository"].c
COMPLETED, SKIPPED = STATES.index("completed"), CONCLUSIONS.index("skipped")
JOBS_SHOWN = 15  # jobs of one failure
WINDOWS = (1, 7, 14, 30)  # days that runs are counted for
COUNTED_FOR = 60  # seconds
JobColumn = tuple[int, int]  # a repository and a column of its grid: a job, named without shard and runner


class Rate(NamedTuple):
    """Runs of some jobs, and how many of them had a failure."""

    jobs: int
    runs: int


class CountedRuns(NamedTuple):
    """The number of runs of each job since a day."""

    days: int
    since: int
    runs: dict[JobColumn, int]

    def runs_of(self, place: JobColumn, failed: int) -> int:
        """Return the runs of a job, at least those that failed: runs are counted only once a minute."""
        return max(self.runs.get(place, 0), failed)


class JobRate(TypedDict):
    """How often one job has a failure."""

    repo: str
    job: str  # without shard and runner
    jobs: int
    runs: int


class RunCounter:
    """Counts the runs of all jobs in a few windows, each once a minute."""

    def __init__(self, context: Context) -> None:
        self._clock = context.clock
        self._counted: TTLCache[int, dict[JobColumn, int]] = TTLCache(
            len(WINDOWS), COUNTED_FOR, timer=lambda: context.clock.now() / 1000
        )

    async def within(self, tx: Transaction, *, days: int) -> CountedRuns:
        """Return the runs of the shortest window of at least so many days, else of the longest."""
        window = next((length for length in WINDOWS if length >= days), WINDOWS[-1])
        since = self._clock.now() // DAY - window + 1
        if (runs := self._counted.get(since)) is None:
            runs = self._counted[since] = await _all_runs(tx, since=since)
        return CountedRuns(window, since, runs)

    async def close(self) -> None:
        """Do nothing: there is nothing to be released."""


RUN_COUNTER: Resource[RunCounter] = Resource("runs_of_jobs", RunCounter)
WITHOUT_LOG = [
    FetchState.ABSENT,
    FetchState.EXPIRED,
    FetchState.TOO_LARGE,
    FetchState.REFUSED,
    FetchState.BROKEN,
    FetchState.FORBIDDEN,
]
UNNAMED = ("generic", "none")  # kinds that do not say why a job failed
PRUNED_AT_ONCE = 200


class FailureRow(SignatureTimes, SignatureTitle, SignatureTotal, SignatureCost):
    """A signature and what it cost since a day; `repos` is the most on one day."""

    signature: Text
    rate: Rate | None  # None: of no run of its jobs there is a record


class Coverage(TypedDict):
    """How many failed jobs have a classified log, and for how many of them the reason is known."""

    jobs: int
    named: int


class LastDay(TypedDict):
    """Failed jobs of the last day: named, generic or without a match, without a log."""

    named: int
    generic: int
    no_log: int


async def rates_of_signatures(
    tx: Transaction, signatures: Collection[str], counted: CountedRuns
) -> dict[str, Rate]:
    """Return how often the jobs with each failure have it; nothing for jobs without records."""
    hit = await _failed_runs(tx, signatures, since=counted.since)
    return {
        signature: Rate(
            sum(places.values()), sum(counted.runs_of(place, jobs) for place, jobs in places.items())
        )
        for signature, places in hit.items()
    }


async def rates_of_jobs(tx: Transaction, signature: str, counted: CountedRuns) -> list[JobRate]:
    """Return how often each job has a failure, the jobs that have it most first."""
    hit = (await _failed_runs(tx, [signature], since=counted.since)).get(signature, {})
    most = sorted(hit, key=lambda place: (-hit[place], place))[:JOBS_SHOWN]
    names = await _names_of_jobs(tx, most)
    return [
        {
            "repo": names[place][0],
            "job": names[place][1],
            "jobs": hit[place],
            "runs": counted.runs_of(place, hit[place]),
        }
        for place in most
        if place in names
    ]


async def _failed_runs(
    tx: Transaction, signatures: Collection[str], *, since: int
) -> dict[str, dict[JobColumn, int]]:
    """Return how many runs of each job had each of these failures."""
    of_job = sa.and_(CELL.repository_id == VERDICT.repository_id, CELL.job_id == VERDICT.job_id)
    is_public = sa.and_(REPOSITORY.repository_id == VERDICT.repository_id, REPOSITORY.private.is_(False))
    query = (
        sa.select(VERDICT.signature, CELL.repository_id, CELL.column_id, sa.func.count().label("jobs"))
        .select_from(ci_verdict.join(ci_cell, of_job).join(records["repository"], is_public))
        .where(
            FIRST, VERDICT.family == PUBLIC, VERDICT.signature.in_(sorted(signatures)), VERDICT.day >= since
        )
        .where(_ended(since))
        .group_by(VERDICT.signature, CELL.repository_id, CELL.column_id)
    )
    failed: dict[str, dict[JobColumn, int]] = {}
    for row in await tx.run(query):
        failed.setdefault(row.signature, {})[row.repository_id, row.column_id] = row.jobs
    return failed


async def _all_runs(tx: Transaction, *, since: int) -> dict[JobColumn, int]:
    """Return how many runs each job had."""
    repositories = sa.select(COLUMN.repository_id).distinct()  # the index of times begins with them
    query = (
        sa.select(CELL.repository_id, CELL.column_id, sa.func.count().label("runs"))
        .where(CELL.repository_id.in_(repositories), _ended(since))
        .group_by(CELL.repository_id, CELL.column_id)
    )
    return {(row.repository_id, row.column_id): row.runs for row in await tx.run(query)}


async def _names_of_jobs(tx: Transaction, places: Collection[JobColumn]) -> dict[JobColumn, tuple[str, str]]:
    """Return the names of repositories and jobs, workflows included."""
    query = (
        sa.select(COLUMN.id, COLUMN.repository_id, REPOSITORY.full_name, COLUMN.workflow, COLUMN.job)
        .join(records["repository"], REPOSITORY.repository_id == COLUMN.repository_id)
        .where(COLUMN.id.in_(sorted(column for _, column in places)))
    )
    return {
        (row.repository_id, row.id): (
            row.full_name,
            f"{row.workflow} / {row.job}" if row.workflow else row.job,
        )
        for row in await tx.run(query)
    }


def _ended(since: int) -> sa.ColumnElement[bool]:
    """Whether a run was created since a day, began and ended."""
    return sa.and_(
        CELL.queued_at >= since * DAY,
        CELL.started_at.is_not(None),
        CELL.state == COMPLETED,
        CELL.conclusion != SKIPPED,
    )


async def failures_by_cost(
    tx: Transaction,
    *,
    since: int,
    kind: str | None,
    repository_ids: Collection[int] | None,
    counted: CountedRuns,
    limit: int,
) -> list[FailureRow]:
    """Return the failures that cost the most jobs since a day."""
    days, named = ci_signature_day.c, ci_signature.c
    jobs = sa.func.sum(days.jobs)
    same = sa.and_(named.signature == days.signature, named.family == days.family)
    query = select(
        FailureRow,
        ci_signature,
        jobs=sa.cast(jobs, sa.BigInteger),
        prs=sa.cast(sa.func.sum(days.prs), sa.BigInteger),
        trusted_jobs=sa.cast(sa.func.sum(days.trusted_jobs), sa.BigInteger),
        repos=sa.func.max(days.repos),
        rate=sa.null(),
    )
    query = query.select_from(ci_signature_day.join(ci_signature, same))
    query = query.group_by(*ci_signature.c).where(days.family == PUBLIC, days.day >= since, days.jobs > 0)
    if kind:
        query = query.where(named.kind == kind)
    if repository_ids is not None:
        query = query.where(_of_repositories(days.signature, repository_ids, since=since))
    if private := await follow_changes.counted_in_public(tx):
        query = query.where(sa.not_(_of_repositories(days.signature, private)))
    failures = await tx.fetch(query.order_by(jobs.desc(), named.last_at.desc()).limit(limit))
    rates = await rates_of_signatures(tx, [row["signature"] for row in failures], counted)
    for row in failures:
        row["rate"] = rates.get(row["signature"])
    return failures


async def find_failure(
    tx: Transaction, signature: str, *, since: int, counted: CountedRuns
) -> FailureRow | None:
    """Return one failure, unless it still counts private jobs."""
    named, days = ci_signature.c, ci_signature_day.c
    verdict = ci_verdict.c
    uncounted = sa.exists().where(FIRST, verdict.signature == signature, verdict.family == PUBLIC)
    has_jobs = sa.or_(named.jobs_total > 0, uncounted)  # its first day may still be to be counted
    of_signature = sa.and_(named.signature == signature, named.family == PUBLIC, has_jobs)
    uncosted = dict.fromkeys(("jobs", "prs", "trusted_jobs", "repos"), sa.literal(0))
    query = select(FailureRow, ci_signature, rate=sa.null(), **uncosted)
    failure = await tx.fetch_first(query.where(of_signature))
    private = await follow_changes.counted_in_public(tx)
    theirs = sa.select(_of_repositories(sa.literal(signature), private))
    if failure is None or (private and (await tx.run(theirs)).scalar()):
        return None
    for day in await tx.fetch(_days(signature).where(days.day >= since)):
        failure["jobs"] += day["jobs"]
        failure["prs"] += day["prs"]
        failure["trusted_jobs"] += day["trusted_jobs"]
        failure["repos"] = max(failure["repos"], day["repos"])
    failure["rate"] = (await rates_of_signatures(tx, [signature], counted)).get(signature)
    return failure


async def tie_issue(tx: Transaction, signature: str, issue_url: str | None) -> bool:
    """Store the address of the issue about a failure; return whether there is such a failure."""
    of_signature = ci_signature.c.signature == signature
    known = await tx.row(sa.select(ci_signature.c.signature).where(of_signature).limit(1))
    await tx.run(sa.update(ci_signature).where(of_signature).values(issue_url=issue_url))
    if issue_url is None:
        await tx.run(sa.delete(ci_signature).where(of_signature, ci_signature.c.jobs_total == 0))
    return known is not None


async def tied_issue(tx: Transaction, signature: str, family: str) -> str | None:
    """Return the address of the issue about a failure, tied for all public repositories or for this family."""
    named = ci_signature.c
    query = sa.select(named.issue_url).where(
        named.signature == signature, named.family.in_([PUBLIC, family]), named.issue_url.is_not(None)
    )
    url: str | None = (await tx.run(query.limit(1))).scalar()
    return url


async def cost_by_day(tx: Transaction, signature: str, *, since: int) -> list[DayRow]:
    """Return what a signature cost on each day, the newest first."""
    days = ci_signature_day.c
    return await tx.fetch(_days(signature).where(days.day >= since).order_by(days.day.desc()))


async def jobs_by_day(tx: Transaction, signatures: Sequence[str], *, days: range) -> dict[str, list[int]]:
    """Return how many jobs each signature cost on each of these days."""
    sums = ci_signature_day.c
    query = sa.select(sums.signature, sums.day, sums.jobs).where(
        sums.signature.in_(signatures), sums.family == PUBLIC, sums.day.between(days.start, days.stop - 1)
    )
    counts = {signature: [0] * len(days) for signature in signatures}
    for row in await tx.run(query):
        counts[row.signature][row.day - days.start] = row.jobs
    return counts


async def count_coverage(tx: Transaction, *, since: int) -> Coverage:
    """Count the classified jobs, and those for which the rules say why they failed."""
    verdict = ci_verdict.c
    query = sa.select(
        sa.func.count().label("jobs"),
        sa.func.count().filter(verdict.kind.not_in(UNNAMED)).label("named"),
    ).where(FIRST, verdict.family == PUBLIC, verdict.day >= since)
    if private := await follow_changes.counted_in_public(tx):
        query = query.where(verdict.repository_id.not_in(private))
    (coverage,) = await tx.rows_as(Coverage, query)
    return coverage


async def count_alike(tx: Transaction, failed: FailedJob) -> tuple[int, int]:
    """Count the other changes with the same failure within a day, and all jobs of trusted branches with it."""
    verdict, at = ci_verdict.c, failed["at"]
    others = sa.func.count(sa.distinct(verdict.change)).filter(
        verdict.at.between(at - DAY, at + DAY), verdict.change != failed["change"]
    )
    trusted = sa.func.count().filter(verdict.trusted)
    alike = sa.and_(FIRST, verdict.signature == failed["signature"], verdict.family == failed["family"])
    row = (await tx.run(sa.select(others, trusted).where(alike))).one()
    return row[0], row[1]


async def old_sums(tx: Transaction, *, before: int, limit: int) -> list[tuple[str, str, int]]:
    """Return the sums of days before one: once verdicts are gone, nobody knows whose failures they count."""
    days = ci_signature_day.c
    query = sa.select(days.signature, days.family, days.day).where(days.day < before).limit(limit)
    return [(row.signature, row.family, row.day) for row in await tx.run(query)]


async def delete_sums(tx: Transaction, keys: Sequence[tuple[str, str, int]]) -> None:
    """Delete sums of days, and signatures without any day left, unless they are tied to an issue."""
    days, named = ci_signature_day.c, ci_signature.c
    await tx.run(sa.delete(ci_signature_day).where(tx.among((days.signature, days.family, days.day), keys)))
    left = sa.exists().where(days.signature == named.signature, days.family == named.family)
    signatures = sorted({(signature, family) for signature, family, _ in keys})
    these = tx.among((named.signature, named.family), signatures)
    await tx.run(sa.delete(ci_signature).where(these, sa.not_(left), named.issue_url.is_(None)))
    await tx.run(sa.update(ci_signature).where(these, sa.not_(left)).values(jobs_total=0))


async def count_last_day(tx: Transaction) -> LastDay:
    """Count the failed jobs with and without a known reason, for the operator: private repositories count too."""
    verdict, fetch, since = ci_verdict.c, ci_fetch.c, tx.now - DAY
    recent = sa.and_(FIRST, verdict.day >= since // DAY, verdict.at >= since)
    named = sa.func.count().filter(verdict.kind.not_in(UNNAMED))
    counted = await tx.row(sa.select(sa.func.count().label("all"), named.label("named")).where(recent))
    fetched = sa.and_(fetch.kind == "log", fetch.asked_at >= since, fetch.state.in_(WITHOUT_LOG))
    no_log = (await tx.run(sa.select(sa.func.count()).select_from(ci_fetch).where(fetched))).scalar() or 0
    assert counted
    return {"named": counted["named"], "generic": counted["all"] - counted["named"], "no_log": no_log}


def _of_repositories(
    signature: sa.ColumnElement[str], repository_ids: Collection[int], *, since: int = 0
) -> sa.ColumnElement[bool]:
    """Whether one of these repositories has a job with that signature in public counts."""
    return sa.exists().where(
        FIRST,
        ci_verdict.c.signature == signature,
        ci_verdict.c.day >= since,
        ci_verdict.c.family == PUBLIC,
        ci_verdict.c.repository_id.in_(sorted(repository_ids)),
    )


def _days(signature: str) -> TypedSelect[DayRow]:
    days = ci_signature_day.c
    query = select(DayRow, ci_signature_day)
    return query.where(days.signature == signature, days.family == PUBLIC, days.jobs > 0)


async def admin_section(tx: Transaction, _settings: Settings) -> AdminSection:
    """Return the section about failures on the administrator's page."""
    return AdminSection(template="admin_failures.html", values=await count_last_day(tx))


async def measure_coverage(tx: Transaction, _settings: Settings, _hidden: Hidden) -> Callable[[], None]:
    """Return a function that sets the gauges of failed jobs with and without a known reason."""
    failed = await count_last_day(tx)

    def show() -> None:
        for verdict, number in failed.items():
            metrics.FAILED_JOBS.labels(verdict).set(cast("int", number))

    return show


async def answer_issue_form(request: web.Request, fields: Mapping[str, str]) -> FormDone:
    """Tie a failure to an issue, or untie it where no address is given."""
    signature, address = fields.get("signature", "").strip().lower(), fields.get("issue_url", "").strip()
    url = escaping.url(address)
    if address and url is None:
        return FormDone(
            words="that is not the address of an issue: it begins with https:// and has no spaces"
        )
    async with request.app[CONTEXT].store.transaction(lock_timeout=LOCK_TIMEOUT) as tx:
        known = await tie_issue(tx, signature, url)
    if not known:
        where = "it is the end of the address of the failure's page"
        return FormDone(words=f"no failure has that signature: {where}")
    return FormDone(
        words="the failure is tied to the issue" if address else "the failure is tied to no issue"
    )


async def prune_logs(context: Context) -> dict[str, int]:
    """Delete what is past its retention."""
    now, settings = context.clock.now(), context.settings
    logs_before = now - settings.of(CollectSettings).ci_log_retention_days * rows.DAY
    records_before = now - settings.record_retention_days * rows.DAY
    former = partial(rows.logs_with_former_verdicts, before=logs_before, limit=PRUNED_AT_ONCE)
    oldest = partial(rows.logs_before, before=records_before, limit=PRUNED_AT_ONCE)
    sums = partial(old_sums, before=records_before // rows.DAY, limit=PRUNED_AT_ONCE)
    return {
        "former verdicts": await delete_in_batches(context, former, rows.delete_former_verdicts),
        "verdicts": await delete_in_batches(context, oldest, rows.delete_logs),
        "words of failures": await rows.forget_words(context),
        "days of failures": await delete_in_batches(context, sums, delete_sums),
    }
