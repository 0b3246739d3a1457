"""Jobs that open issues call unstable: they are shown apart, and never alarm."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.ci.collect import job_names
from bot.ci.trunk.store import changed_days
from bot.ci.trunk.tables import branch_commit, ci_broken, ci_unstable

if TYPE_CHECKING:
    from collections.abc import Collection

    from bot.db.transaction import Transaction

UNSTABLE, BROKEN, COMMIT = ci_unstable.c, ci_broken.c, branch_commit.c
NAMES_MOST = 1_000
_ENDS = re.compile(r" / | \(")  # where the beginning of a name may end


async def replace_names(tx: Transaction, repository_id: int, names: Collection[str]) -> None:
    """Store the names of a repository's unstable jobs in place of those before."""
    wanted = frozenset(sorted(names)[:NAMES_MOST])
    if wanted == await unstable_names(tx, repository_id):
        return
    await tx.run(sa.delete(ci_unstable).where(UNSTABLE.repository_id == repository_id))
    if wanted:
        made = [{"repository_id": repository_id, "name": name} for name in sorted(wanted)]
        await tx.run(sa.insert(ci_unstable), made)
    await _count_again(tx, repository_id)


async def unstable_names(tx: Transaction, repository_id: int) -> frozenset[str]:
    """Return the names of a repository's unstable jobs, as issues have them."""
    query = sa.select(UNSTABLE.name).where(UNSTABLE.repository_id == repository_id)
    return frozenset((await tx.run(query)).scalars())


def plain_names(names: Collection[str]) -> frozenset[str]:
    """Return names, as issues have them, without shards and runners: as `covers` takes them."""
    found = set()
    for name in names:
        workflow, _, job = name.partition(" / ")
        found.add((job_names.parse_name(workflow, job).shard_free if job else workflow).casefold())
    return frozenset(found)


def covers(names: frozenset[str], workflow: str, job: str) -> bool:
    """Whether one of these names means a job, given without shard and runner.

    A name may be that of a job, or only its beginning: a workflow, a build, or a test without its configuration.
    """
    if not names:
        return False
    full = (f"{workflow} / {job}" if workflow else job).casefold()
    return full in names or any(full[: end.start()] in names for end in _ENDS.finditer(full))


async def _count_again(tx: Transaction, repository_id: int) -> None:
    """Have the newest day of each branch counted again, and with it what is broken."""
    counted = sa.select(BROKEN.branch).where(BROKEN.repository_id == repository_id).distinct()
    query = sa.select(COMMIT.branch, sa.func.max(COMMIT.at)).where(
        COMMIT.repository_id == repository_id, COMMIT.branch.in_(counted)
    )
    found = (await tx.run(query.group_by(COMMIT.branch))).all()
    changed_days.request(tx, repository_id, [(branch, at) for branch, at in found])
