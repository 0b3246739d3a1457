"""The sums over failures that are the same, made again from the verdicts: storing twice counts once."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

import sqlalchemy as sa

from bot.ci.logs.tables import ci_signature, ci_signature_day, ci_verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bot.db.transaction import Transaction


class SignatureTitle(TypedDict):
    """What a signature is called."""

    title: str
    rule: str
    kind: str


async def count_again(
    tx: Transaction, concerned: Iterable[tuple[str, str, int]], titles: Mapping[str, SignatureTitle]
) -> None:
    """Make the sums of some signatures, families and days again from their verdicts."""
    for signature, whose, day in sorted(concerned):
        await _count_day(tx, signature, whose, day)
        await _sum_up(tx, signature, whose, titles.get(signature))


async def _count_day(tx: Transaction, signature: str, whose: str, day: int) -> None:
    """Count the jobs that failed this way on a day."""
    verdict = ci_verdict.c
    query = sa.select(
        sa.func.count().label("jobs"),
        sa.func.count(sa.distinct(verdict.change)).filter(sa.not_(verdict.trusted)).label("prs"),
        sa.func.count().filter(verdict.trusted).label("trusted_jobs"),
        sa.func.count(sa.distinct(verdict.repository_id)).label("repos"),
    ).where(
        verdict.current,
        verdict.rank == 0,
        verdict.signature == signature,
        verdict.family == whose,
        verdict.day == day,
    )
    counts = await tx.row(query)
    assert counts
    key = {"signature": signature, "family": whose, "day": day}
    statement = tx.insert(ci_signature_day).values(key | counts)
    await tx.run(statement.on_conflict_do_update(index_elements=list(key), set_=counts))


async def _sum_up(tx: Transaction, signature: str, whose: str, title: SignatureTitle | None) -> None:
    """Write the totals of a signature; one that no job has any more goes, unless it is tied to an issue."""
    days, verdict, named = ci_signature_day.c, ci_verdict.c, ci_signature.c
    of_days = sa.and_(days.signature == signature, days.family == whose)
    of_signature = sa.and_(named.signature == signature, named.family == whose)
    total = (await tx.run(sa.select(sa.func.sum(days.jobs)).where(of_days))).scalar() or 0
    if not total:
        await tx.run(sa.delete(ci_signature_day).where(of_days))
        await tx.run(sa.delete(ci_signature).where(of_signature, named.issue_url.is_(None)))
        await tx.run(sa.update(ci_signature).where(of_signature).values(jobs_total=0))
        return
    seen = sa.select(sa.func.min(verdict.at).label("first"), sa.func.max(verdict.at).label("last")).where(
        verdict.current, verdict.rank == 0, verdict.signature == signature, verdict.family == whose
    )
    known = await tx.row(sa.select(named.first_at, named.last_at).where(of_signature))
    (times,) = await tx.rows(seen)
    at = [value for value in (*times.values(), *(known or {}).values()) if value is not None]
    values = {"first_at": min(at), "last_at": max(at), "jobs_total": int(total)}
    if known:
        await tx.run(sa.update(ci_signature).where(of_signature).values(values))
    elif title:
        await tx.run(sa.insert(ci_signature).values(signature=signature, family=whose, **values, **title))
