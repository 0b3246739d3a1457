"""Which failures of private repositories still stand in public counts, and their move to counts of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.ci.logs.store import failed_jobs, failure_counts, log_rows
from bot.ci.logs.tables import FIRST, PUBLIC, ci_signature, ci_verdict
from bot.ingest.tables import records

if TYPE_CHECKING:
    from collections.abc import Collection

    from bot.ci.logs.tables import SignatureTitle
    from bot.db.transaction import Transaction

BATCH = 200  # jobs moved in one transaction
REPOSITORY, VERDICT, NAMED = records["repository"].c, ci_verdict.c, ci_signature.c


async def counted_in_public(tx: Transaction, repository_ids: Collection[int] | None = None) -> set[int]:
    """Return the repositories (None: of all, those now private) whose jobs still stand in public counts."""
    counted = sa.exists().where(
        FIRST, VERDICT.repository_id == REPOSITORY.repository_id, VERDICT.family == PUBLIC
    )
    query = sa.select(REPOSITORY.repository_id).where(counted)
    if repository_ids is None:
        query = query.where(REPOSITORY.private.is_not(sa.false()))
    else:
        query = query.where(REPOSITORY.repository_id.in_(sorted(repository_ids)))
    return set((await tx.run(query)).scalars())


async def is_private(tx: Transaction, repository_id: int) -> bool:
    """Whether a repository is private, or GitHub has not said that it is public."""
    query = sa.select(REPOSITORY.private).where(REPOSITORY.repository_id == repository_id)
    return (await tx.run(query)).scalar() is not False


async def move_batch(tx: Transaction, repository_id: int) -> bool:
    """Move some jobs of a private repository to counts of their own; returns whether there were any."""
    mine = sa.and_(VERDICT.repository_id == repository_id, VERDICT.family == PUBLIC)
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
    own = log_rows.family_of(repository_id, private=True)
    await tx.run(sa.update(ci_verdict).where(these).values(family=own))
    concerned = {(signature, whose, day) for signature, day, _ in found for whose in (PUBLIC, own)}
    await failure_counts.request_count(tx, concerned, titles, seen)
    await failed_jobs.request_publish_of(tx, repository_id, jobs)
    return True


async def _titles(tx: Transaction, signatures: Collection[str]) -> dict[str, SignatureTitle]:
    query = sa.select(NAMED.signature, NAMED.title, NAMED.rule, NAMED.kind).where(
        NAMED.signature.in_(sorted(signatures)), NAMED.family == PUBLIC
    )
    return {
        row.signature: {"title": row.title, "rule": row.rule, "kind": row.kind} for row in await tx.run(query)
    }
