"""Bringing up to date what comment and check runs of pull requests say of backends' tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.ci.test_results.store.rows import DAY, JOB
from bot.oot.results.task_keys import request_publish

if TYPE_CHECKING:
    from bot.db.transaction import Changed, Transaction

RECENT = 14 * DAY  # milliseconds; comments that are older stay as they are
MOST = 500  # pull requests of one commit or repository
QUERIED = 500  # repositories named in one statement: an installation may bring very many


async def request_publish_of_commit(tx: Transaction, upstream_sha: str) -> None:
    """Publish the pull requests for which backends tested a commit; results of upstream alone change nothing there."""
    await _request(tx, JOB.upstream_sha == upstream_sha)


async def note(tx: Transaction, changed: Changed) -> None:
    """Before a commit: where repositories are private now, have their tests taken out of comments."""
    private = sorted({int(row["repository_id"]) for row in changed.get("repository", ()) if row["private"]})
    for start in range(0, len(private), QUERIED):
        recent = JOB.at >= tx.now - RECENT
        await _request(tx, sa.and_(JOB.repository_id.in_(private[start : start + QUERIED]), recent))


async def _request(tx: Transaction, which: sa.ColumnElement[bool]) -> None:
    query = sa.select(JOB.upstream_repo, JOB.pr_number).where(
        which, JOB.backend.is_not(None), JOB.upstream_repo.is_not(None), JOB.pr_number.is_not(None)
    )
    for row in await tx.run(query.distinct().limit(MOST)):
        request_publish(tx, row.upstream_repo, row.pr_number)
