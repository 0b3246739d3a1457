"""Rows of logs and verdicts, and the daily sums of failures that are counted from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.db import word_index
from bot.db.rows import select
from bot.db.word_index import title
from bot.evidence.logs.tables import (
    FIRST,
    PUBLIC,
    LogRow,
    SignatureRow,
    VerdictRow,
    ci_log,
    ci_signature,
    ci_signature_day,
    ci_verdict,
)
from bot.ingest.record_rows import WorkflowJobRow, WorkflowRunRow
from bot.ingest.tables import records
from bot.queue import sums
from bot.queue.sums import Sum, SumPlace

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.evidence.logs.tables import SignatureTitle
    from bot.queue.sums import CountedSum

DAY = 86_400_000  # milliseconds
PAUSE = 10.0  # seconds between two counts of a day
VERDICT = ci_verdict.c
FAILURES = Sum(
    name="failures",
    tables=(ci_signature_day,),
    group=("family", "signature"),
    count="bot.evidence.logs.rows:count_failures",
    after="bot.evidence.logs.rows:update_totals",
    pause=PAUSE,
)
WORDS_KIND, NO_REPOSITORY = "failure", 0
SIGNATURE, TITLE = ci_signature.c, title.c


def family_of(repository_id: int, *, private: bool) -> str:
    """Return the family that a repository's failures are counted in: public sums hold nothing private."""
    return f"private:{repository_id}" if private else PUBLIC


async def store_log(tx: Transaction, row: LogRow) -> None:
    """Store what is known of a log, replacing what was stored."""
    await tx.upsert(ci_log, [row], replaced=list(row))
    tx.note_changed("ci_log", [row])


async def store_first_error(
    tx: Transaction, repository_id: int, job_id: int, first_error: dict[str, Any] | None
) -> None:
    """Store the earliest line of a log that a rule for builds matches."""
    of_job = sa.and_(ci_log.c.repository_id == repository_id, ci_log.c.job_id == job_id)
    await tx.run(sa.update(ci_log).where(of_job).values(first_error=first_error))


async def find_log(tx: Transaction, repository_id: int, job_id: int) -> LogRow | None:
    """Return what is known of a job's log."""
    query = select(LogRow, ci_log)
    return await tx.fetch_first(
        query.where(ci_log.c.repository_id == repository_id, ci_log.c.job_id == job_id)
    )


async def lengths_of_logs(tx: Transaction, repository_id: int, job_ids: Iterable[int]) -> dict[int, int]:
    """Return how many lines the stored logs of some jobs have."""
    query = sa.select(ci_log.c.job_id, ci_log.c.lines).where(
        ci_log.c.repository_id == repository_id,
        ci_log.c.job_id.in_(sorted(job_ids)),
        ci_log.c.blob.is_not(None),
    )
    return {row.job_id: row.lines for row in await tx.run(query)}


async def verdicts_of_jobs(tx: Transaction, repository_id: int, job_ids: Iterable[int]) -> list[VerdictRow]:
    """Return the verdicts on some jobs of a repository, by job and rank."""
    query = select(VerdictRow, ci_verdict).where(
        ci_verdict.c.repository_id == repository_id,
        ci_verdict.c.job_id.in_(sorted(set(job_ids))),
        ci_verdict.c.current,
    )
    return await tx.fetch(query.order_by(ci_verdict.c.job_id, ci_verdict.c.rank))


async def move_verdicts(tx: Transaction, repository_id: int, job_id: int, ruleset: str) -> None:
    """Move the current verdicts on a job to another ruleset, which gives the same verdicts."""
    of_job = sa.and_(ci_verdict.c.repository_id == repository_id, ci_verdict.c.job_id == job_id)
    former = sa.and_(of_job, ci_verdict.c.ruleset == ruleset, sa.not_(ci_verdict.c.current))
    await tx.run(sa.delete(ci_verdict).where(former))
    await tx.run(sa.update(ci_verdict).where(of_job, ci_verdict.c.current).values(ruleset=ruleset))
    tx.note_changed("ci_verdict", [{"repository_id": repository_id, "job_id": job_id}])


async def replace_verdicts(
    tx: Transaction,
    repository_id: int,
    job_id: int,
    verdicts: Sequence[VerdictRow],
    titles: dict[str, SignatureTitle],
) -> None:
    """Store the verdicts of a ruleset on a job; verdicts of other rulesets are kept but no longer current.

    The days of the failures concerned are counted again.
    """
    of_job = sa.and_(ci_verdict.c.repository_id == repository_id, ci_verdict.c.job_id == job_id)
    before = await verdicts_of_jobs(tx, repository_id, [job_id])
    rulesets = {row["ruleset"] for row in verdicts}
    await tx.run(sa.delete(ci_verdict).where(of_job, ci_verdict.c.ruleset.in_(sorted(rulesets))))
    await tx.run(sa.update(ci_verdict).where(of_job).values(current=False))
    if verdicts:
        await tx.run(sa.insert(ci_verdict), [{**row} for row in verdicts])
    tx.note_changed("ci_verdict", [{"repository_id": repository_id, "job_id": job_id}])
    concerned = {
        (row["signature"], row["family"], row["day"])
        for row in (*before, *verdicts)
        if row["rank"] == 0 and row["signature"]
    }
    await request_count(tx, concerned, titles, dict.fromkeys(titles, verdicts[0]["at"]))


async def find_job(tx: Transaction, repository_id: int, job_id: int) -> WorkflowJobRow | None:
    """Return GitHub's record of a job."""
    table = records["workflow_job"]
    query = select(WorkflowJobRow, table)
    return await tx.fetch_first(query.where(table.c.repository_id == repository_id, table.c.id == job_id))


async def find_run(tx: Transaction, repository_id: int, run_id: int, attempt: int) -> WorkflowRunRow | None:
    """Return GitHub's record of an attempt of a run."""
    table = records["workflow_run"]
    query = select(WorkflowRunRow, table).where(
        table.c.repository_id == repository_id, table.c.id == run_id, table.c.run_attempt == attempt
    )
    return await tx.fetch_first(query)


async def logs_with_former_verdicts(tx: Transaction, *, before: int, limit: int) -> list[tuple[int, int]]:
    """Return logs fetched before a time that have verdicts of former rulesets."""
    former = sa.exists().where(
        ci_verdict.c.repository_id == ci_log.c.repository_id,
        ci_verdict.c.job_id == ci_log.c.job_id,
        sa.not_(ci_verdict.c.current),
    )
    query = sa.select(ci_log.c.repository_id, ci_log.c.job_id).where(ci_log.c.fetched_at < before, former)
    return [tuple(row) for row in (await tx.run(query.limit(limit))).all()]


async def delete_former_verdicts(tx: Transaction, keys: Sequence[tuple[int, int]]) -> None:
    """Delete verdicts of former rulesets."""
    columns = (ci_verdict.c.repository_id, ci_verdict.c.job_id)
    await tx.run(sa.delete(ci_verdict).where(tx.among(columns, keys), sa.not_(ci_verdict.c.current)))


async def logs_before(tx: Transaction, *, before: int, limit: int) -> list[tuple[int, int]]:
    """Return logs fetched before a time."""
    query = sa.select(ci_log.c.repository_id, ci_log.c.job_id).where(ci_log.c.fetched_at < before)
    return [tuple(row) for row in (await tx.run(query.limit(limit))).all()]


async def delete_logs(tx: Transaction, keys: Sequence[tuple[int, int]]) -> None:
    """Delete what is known of logs, verdicts included."""
    for table in (ci_verdict, ci_log):
        await tx.run(sa.delete(table).where(tx.among((table.c.repository_id, table.c.job_id), keys)))


async def request_count(
    tx: Transaction,
    concerned: Iterable[tuple[str, str, int]],
    titles: Mapping[str, SignatureTitle],
    seen: Mapping[str, int],
) -> None:
    """Request a new count of signatures, families and days.

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
        await keep_words(tx, {signature: titles[signature]["title"] for signature in shown})
    sums.request(tx, FAILURES, (SumPlace((whose, signature), day) for signature, whose, day in places))


async def count_failures(context: Context, place: SumPlace) -> CountedSum:
    """Count the jobs that had a failure on a day."""
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


async def update_totals(tx: Transaction, place: SumPlace) -> None:
    """Write the totals of a signature; delete one that no job has any more, unless it is tied to an issue.

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


async def keep_words(tx: Transaction, titles: Mapping[str, str]) -> None:
    """Keep the words of failures' titles, by signature."""
    await word_index.put_titles(
        tx,
        [
            {"kind": WORDS_KIND, "repository_id": NO_REPOSITORY, "ref": signature, "text": text}
            for signature, text in titles.items()
        ],
    )


async def forget_words(context: Context) -> int:
    """Delete words of failures that are no longer kept; returns how many."""
    kept = sa.exists().where(SIGNATURE.signature == TITLE.ref, SIGNATURE.family == PUBLIC)
    async with context.store.transaction() as tx:
        return await word_index.forget_titles(tx, WORDS_KIND, kept=kept)


async def failures_by_words(tx: Transaction, text: str, *, limit: int) -> list[SignatureRow]:
    """Find failures whose title has words that begin with each word of a text, the latest first."""
    titles = await word_index.find_titles(tx, WORDS_KIND, text, owners={NO_REPOSITORY}, limit=limit)
    these = SIGNATURE.signature.in_([row["ref"] for row in titles])
    return await _signature_rows(tx, these, limit) if titles else []


async def failures_by_signature(tx: Transaction, start: str, *, limit: int) -> list[SignatureRow]:
    """Find failures by the beginning of their signature."""
    return await _signature_rows(
        tx, sa.and_(SIGNATURE.signature >= start, SIGNATURE.signature < start + "g"), limit
    )


async def _signature_rows(tx: Transaction, these: sa.ColumnElement[bool], limit: int) -> list[SignatureRow]:
    query = select(SignatureRow, ci_signature).where(these, SIGNATURE.family == PUBLIC)
    return await tx.fetch(query.order_by(SIGNATURE.last_at.desc(), SIGNATURE.signature).limit(limit))
