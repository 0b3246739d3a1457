"""The daily sum of failures that are the same, counted from the verdicts: storing twice counts once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.ci.logs.store import failure_words
from bot.ci.logs.tables import FIRST, PUBLIC, ci_signature, ci_signature_day, ci_verdict
from bot.queue import sums
from bot.queue.sums import Place, Sum

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bot.ci.logs.tables import SignatureTitle
    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.queue.sums import Counted

PAUSE = 10.0  # seconds between two counts of a day
VERDICT = ci_verdict.c
FAILURES = Sum(
    name="failures",
    tables=(ci_signature_day,),
    group=("family", "signature"),
    count="bot.ci.logs.store.failure_counts:count_day",
    after="bot.ci.logs.store.failure_counts:sum_up",
    pause=PAUSE,
)


async def request_count(
    tx: Transaction,
    concerned: Iterable[tuple[str, str, int]],
    titles: Mapping[str, SignatureTitle],
    seen: Mapping[str, int],
) -> None:
    """Have the sums of some signatures, families and days counted again.

    New signatures are stored with their title; `seen` has a time at which each was seen.
    """
    places = sorted(set(concerned))
    new = sorted({(signature, whose) for signature, whose, _ in places if signature in titles})
    if new:
        rows = [
            {"signature": signature, "family": whose, "jobs_total": 0, **titles[signature]}
            | dict.fromkeys(("first_at", "last_at"), seen[signature])
            for signature, whose in new
        ]
        await tx.run(tx.insert(ci_signature).on_conflict_do_nothing(), rows)
        shown = {signature for signature, whose in new if whose == PUBLIC}
        await failure_words.keep_words(tx, {one: titles[one]["title"] for one in shown})
    sums.request(tx, FAILURES, (Place((whose, signature), day) for signature, whose, day in places))


async def count_day(context: Context, place: Place) -> Counted:
    """Count the jobs that failed one way on a day."""
    whose, signature = place.group
    query = sa.select(
        sa.func.count().label("jobs"),
        sa.func.count(sa.distinct(VERDICT.change)).filter(sa.not_(VERDICT.trusted)).label("prs"),
        sa.func.count().filter(VERDICT.trusted).label("trusted_jobs"),
        sa.func.count(sa.distinct(VERDICT.repository_id)).label("repos"),
    ).where(FIRST, VERDICT.signature == signature, VERDICT.family == whose, VERDICT.day == place.day)
    async with context.store.read() as tx:
        rows = await tx.rows(query)
    return {ci_signature_day: [row for row in rows if row["jobs"]]}


async def sum_up(tx: Transaction, place: Place) -> None:
    """Write the totals of a signature; one that no job has any more goes, unless it is tied to an issue.

    One may have jobs whose day is still to be counted.
    """
    whose, signature = place.group
    days, named = ci_signature_day.c, ci_signature.c
    has_jobs = sa.exists().where(FIRST, VERDICT.signature == signature, VERDICT.family == whose)
    of_days = sa.and_(days.signature == signature, days.family == whose)
    of_signature = sa.and_(named.signature == signature, named.family == whose)
    total = (await tx.run(sa.select(sa.func.sum(days.jobs)).where(of_days))).scalar() or 0
    if not total:
        await tx.run(sa.delete(ci_signature).where(of_signature, named.issue_url.is_(None), ~has_jobs))
        await tx.run(sa.update(ci_signature).where(of_signature).values(jobs_total=0))
        return
    seen = sa.select(sa.func.min(VERDICT.at).label("first"), sa.func.max(VERDICT.at).label("last")).where(
        FIRST, VERDICT.signature == signature, VERDICT.family == whose
    )
    known = await tx.row(sa.select(named.first_at, named.last_at).where(of_signature))
    (times,) = await tx.rows(seen)
    at = [value for value in (*times.values(), *(known or {}).values()) if value is not None]
    values = {"first_at": min(at), "last_at": max(at), "jobs_total": int(total)}
    await tx.run(sa.update(ci_signature).where(of_signature).values(values))
