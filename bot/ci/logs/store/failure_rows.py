"""Reading failures that are the same: how many jobs they cost, by day. Public repositories only."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

import sqlalchemy as sa

from bot.ci.collect.states import State
from bot.ci.collect.tables import ci_fetch
from bot.ci.logs.store import failure_rates, private_failures
from bot.ci.logs.store.log_rows import DAY
from bot.ci.logs.tables import (
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
from bot.db.rows import Text, select

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from bot.ci.logs.store.failed_jobs import FailedJob
    from bot.ci.logs.store.failure_rates import Counted
    from bot.db.rows import Query
    from bot.db.transaction import Transaction

WITHOUT_LOG = [
    State.ABSENT,
    State.EXPIRED,
    State.TOO_LARGE,
    State.REFUSED,
    State.BROKEN,
    State.FORBIDDEN,
]
UNNAMED = ("generic", "none")  # kinds that do not say why a job failed


class FailureRow(SignatureTimes, SignatureTitle, SignatureTotal, SignatureCost):
    """A signature and what it cost since a day; `repos` is the most on one day."""

    signature: Text
    rate: failure_rates.Rate | None  # None: of no run of its jobs there is a record


class Coverage(TypedDict):
    """How many failed jobs have a log that was classified, and of how many it is known why."""

    jobs: int
    named: int


class LastDay(TypedDict):
    """Failed jobs of the last day: named, generic or without a match, without a log."""

    named: int
    generic: int
    no_log: int


async def failures_by_cost(
    tx: Transaction,
    *,
    since: int,
    kind: str | None,
    repository_ids: Collection[int] | None,
    counted: Counted,
    limit: int,
) -> list[FailureRow]:
    """Return signatures by the jobs they cost since a day."""
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
    if private := await private_failures.counted_in_public(tx):
        query = query.where(sa.not_(_of_repositories(days.signature, private)))
    found = await tx.fetch(query.order_by(jobs.desc(), named.last_at.desc()).limit(limit))
    rates = await failure_rates.rates_of_signatures(tx, [row["signature"] for row in found], counted)
    for row in found:
        row["rate"] = rates.get(row["signature"])
    return found


async def find_failure(tx: Transaction, signature: str, *, since: int, counted: Counted) -> FailureRow | None:
    """Return one signature."""
    named, days = ci_signature.c, ci_signature_day.c
    verdict = ci_verdict.c
    uncounted = sa.exists().where(FIRST, verdict.signature == signature, verdict.family == PUBLIC)
    has_jobs = sa.or_(named.jobs_total > 0, uncounted)  # its first day may still be to be counted
    of_signature = sa.and_(named.signature == signature, named.family == PUBLIC, has_jobs)
    uncosted = dict.fromkeys(("jobs", "prs", "trusted_jobs", "repos"), sa.literal(0))
    query = select(FailureRow, ci_signature, rate=sa.null(), **uncosted)
    found = await tx.fetch_first(query.where(of_signature))
    private = await private_failures.counted_in_public(tx)
    theirs = sa.select(_of_repositories(sa.literal(signature), private))
    if found is None or (private and (await tx.run(theirs)).scalar()):
        return None
    for day in await tx.fetch(_days(signature).where(days.day >= since)):
        found["jobs"] += day["jobs"]
        found["prs"] += day["prs"]
        found["trusted_jobs"] += day["trusted_jobs"]
        found["repos"] = max(found["repos"], day["repos"])
    found["rate"] = (await failure_rates.rates_of_signatures(tx, [signature], counted)).get(signature)
    return found


async def tie_issue(tx: Transaction, signature: str, issue_url: str | None) -> bool:
    """Store the address of the issue about a failure; returns whether there is such a failure."""
    of_signature = ci_signature.c.signature == signature
    known = await tx.row(sa.select(ci_signature.c.signature).where(of_signature).limit(1))
    await tx.run(sa.update(ci_signature).where(of_signature).values(issue_url=issue_url))
    if issue_url is None:
        await tx.run(sa.delete(ci_signature).where(of_signature, ci_signature.c.jobs_total == 0))
    return known is not None


async def tied_issue(tx: Transaction, signature: str, family: str) -> str | None:
    """Return the address of the issue about a failure, as tied for all public repositories or for this family."""
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
    """Return by signature how many jobs it cost on each of these days."""
    sums = ci_signature_day.c
    query = sa.select(sums.signature, sums.day, sums.jobs).where(
        sums.signature.in_(signatures), sums.family == PUBLIC, sums.day.between(days.start, days.stop - 1)
    )
    found = {signature: [0] * len(days) for signature in signatures}
    for row in await tx.run(query):
        found[row.signature][row.day - days.start] = row.jobs
    return found


async def count_coverage(tx: Transaction, *, since: int) -> Coverage:
    """Return of how many classified jobs the rules say why they failed."""
    verdict = ci_verdict.c
    query = sa.select(
        sa.func.count().label("jobs"),
        sa.func.count().filter(verdict.kind.not_in(UNNAMED)).label("named"),
    ).where(FIRST, verdict.family == PUBLIC, verdict.day >= since)
    if private := await private_failures.counted_in_public(tx):
        query = query.where(verdict.repository_id.not_in(private))
    (found,) = await tx.rows_as(Coverage, query)
    return found


async def count_alike(tx: Transaction, failed: FailedJob) -> tuple[int, int]:
    """Return how many other changes failed alike within a day, and how many jobs of trusted branches ever."""
    verdict, at = ci_verdict.c, failed["at"]
    others = sa.func.count(sa.distinct(verdict.change)).filter(
        verdict.at.between(at - DAY, at + DAY), verdict.change != failed["change"]
    )
    trusted = sa.func.count().filter(verdict.trusted)
    alike = sa.and_(FIRST, verdict.signature == failed["signature"], verdict.family == failed["family"])
    row = (await tx.run(sa.select(others, trusted).where(alike))).one()
    return row[0], row[1]


async def old_sums(tx: Transaction, *, before: int, limit: int) -> list[tuple[str, str, int]]:
    """Return sums of days before one: without their verdicts it is not known whose failures they count."""
    days = ci_signature_day.c
    query = sa.select(days.signature, days.family, days.day).where(days.day < before).limit(limit)
    return [(row.signature, row.family, row.day) for row in await tx.run(query)]


async def delete_sums(tx: Transaction, keys: Sequence[tuple[str, str, int]]) -> None:
    """Delete sums of days, and signatures that no day is left of, unless they are tied to an issue."""
    days, named = ci_signature_day.c, ci_signature.c
    await tx.run(sa.delete(ci_signature_day).where(tx.among((days.signature, days.family, days.day), keys)))
    left = sa.exists().where(days.signature == named.signature, days.family == named.family)
    signatures = sorted({(signature, family) for signature, family, _ in keys})
    these = tx.among((named.signature, named.family), signatures)
    await tx.run(sa.delete(ci_signature).where(these, sa.not_(left), named.issue_url.is_(None)))
    await tx.run(sa.update(ci_signature).where(these, sa.not_(left)).values(jobs_total=0))


async def count_last_day(tx: Transaction) -> LastDay:
    """Return of how many failed jobs it is known why, for the operator: private repositories count too."""
    verdict, fetch, since = ci_verdict.c, ci_fetch.c, tx.now - DAY
    recent = sa.and_(FIRST, verdict.day >= since // DAY, verdict.at >= since)
    named = sa.func.count().filter(verdict.kind.not_in(UNNAMED))
    counted = await tx.row(sa.select(sa.func.count().label("all"), named.label("named")).where(recent))
    asked = sa.and_(fetch.kind == "log", fetch.asked_at >= since, fetch.state.in_(WITHOUT_LOG))
    no_log = (await tx.run(sa.select(sa.func.count()).select_from(ci_fetch).where(asked))).scalar() or 0
    assert counted
    return {"named": counted["named"], "generic": counted["all"] - counted["named"], "no_log": no_log}


def _of_repositories(
    signature: sa.ColumnElement[str], repository_ids: Collection[int], *, since: int = 0
) -> sa.ColumnElement[bool]:
    """Whether one of these repositories has a job of that signature in the public counts."""
    return sa.exists().where(
        FIRST,
        ci_verdict.c.signature == signature,
        ci_verdict.c.day >= since,
        ci_verdict.c.family == PUBLIC,
        ci_verdict.c.repository_id.in_(sorted(repository_ids)),
    )


def _days(signature: str) -> Query[DayRow]:
    days = ci_signature_day.c
    query = select(DayRow, ci_signature_day)
    return query.where(days.signature == signature, days.family == PUBLIC, days.jobs > 0)
