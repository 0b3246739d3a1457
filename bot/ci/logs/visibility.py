"""Keeping failures of repositories that turn private out of the public counts.

From the moment GitHub says so, signatures that contain their jobs are shown to nobody; a task then moves the jobs to
counts of their own, and the rest is shown again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.ci.logs import failed_jobs, failure_counts, rows
from bot.ci.logs.tables import FIRST, ci_signature, ci_verdict
from bot.core.errors import GiveUp
from bot.ingest.tables import records

if TYPE_CHECKING:
    from collections.abc import Collection

    from bot.ci.logs.failure_counts import SignatureTitle
    from bot.context import Context
    from bot.db.transaction import Changed, Transaction
    from bot.queue.tasks import Task

QUERIED = 1_000  # repositories named in one statement: an installation may bring very many
BATCH = 200  # jobs moved in one transaction
REPOSITORY, VERDICT, NAMED = records["repository"].c, ci_verdict.c, ci_signature.c


async def note(tx: Transaction, changed: Changed) -> None:
    """Before a commit: have the failures of repositories that are private now moved."""
    private = sorted({int(row["repository_id"]) for row in changed.get("repository", ()) if row["private"]})
    for start in range(0, len(private), QUERIED):
        for identifier in sorted(await counted_in_public(tx, private[start : start + QUERIED])):
            tx.enqueue("private_logs", str(identifier))


async def counted_in_public(tx: Transaction, repository_ids: Collection[int] | None = None) -> set[int]:
    """Return the repositories (None: of all, those now private) whose jobs still stand in public counts."""
    counted = sa.exists().where(
        FIRST, VERDICT.repository_id == REPOSITORY.repository_id, VERDICT.family == rows.PUBLIC
    )
    query = sa.select(REPOSITORY.repository_id).where(counted)
    if repository_ids is None:
        query = query.where(REPOSITORY.private.is_not(sa.false()))
    else:
        query = query.where(REPOSITORY.repository_id.in_(sorted(repository_ids)))
    return set((await tx.run(query)).scalars())


async def run(context: Context, task: Task) -> None:
    """Move the failures of a private repository to counts of their own (key: its id)."""
    if not task.key.isdigit():
        raise GiveUp(f"{task.key!r} is no repository's id")
    while True:
        async with context.store.transaction() as tx:
            if not await is_private(tx, int(task.key)) or not await _move(tx, int(task.key)):
                return


async def is_private(tx: Transaction, repository_id: int) -> bool:
    """Whether a repository is private, or nobody has said that it is not."""
    query = sa.select(REPOSITORY.private).where(REPOSITORY.repository_id == repository_id)
    return (await tx.run(query)).scalar() is not False


async def _move(tx: Transaction, repository_id: int) -> bool:
    """Move some jobs; returns whether there were any."""
    mine = sa.and_(VERDICT.repository_id == repository_id, VERDICT.family == rows.PUBLIC)
    jobs = (await tx.run(sa.select(VERDICT.job_id).where(mine).distinct().limit(BATCH))).scalars()
    if not jobs:
        return False
    these = sa.and_(mine, VERDICT.job_id.in_(jobs))
    query = sa.select(VERDICT.signature, VERDICT.day, sa.func.min(VERDICT.at)).where(
        these, FIRST, VERDICT.signature.is_not(None)
    )
    found = (await tx.run(query.group_by(VERDICT.signature, VERDICT.day))).all()
    seen = {signature: at for signature, _, at in found}
    titles = await _titles(tx, seen.keys())
    own = rows.family(repository_id, private=True)
    await tx.run(sa.update(ci_verdict).where(these).values(family=own))
    concerned = {(signature, whose, day) for signature, day, _ in found for whose in (rows.PUBLIC, own)}
    await failure_counts.request(tx, concerned, titles, seen)
    await failed_jobs.request_publish_of(tx, repository_id, jobs)
    return True


async def _titles(tx: Transaction, signatures: Collection[str]) -> dict[str, SignatureTitle]:
    query = sa.select(NAMED.signature, NAMED.title, NAMED.rule, NAMED.kind).where(
        NAMED.signature.in_(sorted(signatures)), NAMED.family == rows.PUBLIC
    )
    return {
        row.signature: {"title": row.title, "rule": row.rule, "kind": row.kind} for row in await tx.run(query)
    }
