"""What backends call their jobs: kept as their days are counted, so that a search need not read all their reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.db.rows import select
from bot.ingest.prune import delete_rows
from bot.oot.results.tables import oot_workflow_job
from bot.oot.statistics.days import DAY
from bot.oot.statistics.store.countable_jobs import flagged
from bot.oot.statistics.tables import JobNameRow, oot_job_name

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.queue.sums import Place

JOB, NAME = oot_workflow_job.c, oot_job_name.c
KEY = ("backend_key", "upstream_key", "workflow", "job")
MOST = 2_000  # names of one backend: the newest; it can call its jobs whatever it likes
SCANNED = 20_000  # names that a search looks through, the newest


async def keep_names(tx: Transaction, place: Place) -> None:
    """Keep the names of a backend's jobs of a day, of those that were reported since they were kept last."""
    (backend,), day = place
    newest = sa.select(sa.func.max(NAME.last_at)).where(NAME.backend_key == backend)
    since = max((await tx.run(newest)).scalar() or 0, day * DAY)
    upstream = sa.func.lower(JOB.upstream_repo)
    query = sa.select(
        upstream.label("upstream_key"),
        JOB.workflow_name.label("workflow"),
        JOB.job_name.label("job"),
        sa.func.max(JOB.downstream_repo).label("backend"),
        sa.func.max(JOB.received_at).label("last_at"),
    ).where(
        sa.func.lower(JOB.downstream_repo) == backend,
        JOB.received_at.between(since, (day + 1) * DAY - 1),
        ~flagged("refused"),
    )
    found = (await tx.run(query.group_by(upstream, JOB.workflow_name, JOB.job_name))).mappings()
    if not found:
        return
    rows = sorted(
        ({"backend_key": backend, **row} for row in found), key=lambda row: [row[name] for name in KEY]
    )
    await tx.upsert(oot_job_name, rows, replaced=("backend",), greatest=("last_at",))
    mine = sa.select(NAME.last_at).where(NAME.backend_key == backend)
    last = (await tx.run(mine.order_by(NAME.last_at.desc()).offset(MOST).limit(1))).scalar()
    if last is not None:
        await tx.run(sa.delete(oot_job_name).where(NAME.backend_key == backend, NAME.last_at <= last))


async def find_names(
    tx: Transaction, words: Sequence[str], *, hidden: Collection[str], limit: int
) -> list[JobNameRow]:
    """Return jobs in whose workflow or name each of these words stands, those reported last first.

    `hidden` are upstream repositories, in lower case, whose jobs may not be shown.
    """
    newest = sa.select(oot_job_name).where(NAME.upstream_key.not_in(sorted(hidden)))
    some = newest.order_by(NAME.last_at.desc()).limit(SCANNED).subquery()
    name = some.c.workflow + sa.literal(" / ") + some.c.job
    query = select(JobNameRow, some).where(*(name.icontains(word, autoescape=True) for word in words))
    return await tx.fetch(query.order_by(some.c.last_at.desc(), some.c.workflow, some.c.job).limit(limit))


async def forget_names(context: Context) -> dict[str, int]:
    """Delete the names of jobs that were reported last before records are kept."""
    before = context.clock.now() - context.settings.record_retention_days * DAY
    return {"names of jobs": await delete_rows(context, oot_job_name, NAME.last_at < before)}
