"""How many columns of the watched branches are broken, for the operator's metrics."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.ci.trunk.settings import BRANCHES_MOST
from bot.ci.trunk.store import branches, rows
from bot.ci.trunk.tables import ci_broken
from bot.core import metrics
from bot.ingest import watched

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bot.ci.trunk.reading import Branch
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.web.access import Hidden

BROKEN = ci_broken.c
Labels = tuple[str, str, str]  # repository, branch, group


async def store_counts(tx: Transaction, branch: Branch, counts: Mapping[str, int]) -> None:
    """Replace what was counted of a branch."""
    key = {"repository_id": branch.repository["repository_id"], "branch": branch.name}
    same = [BROKEN[name] == value for name, value in key.items()]
    await tx.run(sa.delete(ci_broken).where(*same))
    if counts:
        made = [{**key, "column_group": group, "broken": number} for group, number in sorted(counts.items())]
        await tx.run(sa.insert(ci_broken), made)


async def measure_broken(tx: Transaction, settings: Settings, hidden: Hidden) -> Callable[[], None]:
    """Return what shows how many columns are broken."""
    return partial(metrics.show_broken, await read_counts(tx, settings, hidden))


async def read_counts(tx: Transaction, settings: Settings, hidden: Hidden) -> dict[Labels, int]:
    """Return what was counted of the watched branches that exist and may be shown."""
    found: dict[Labels, int] = {}
    for repo in settings.upstream_repo:
        ids = set() if hidden.has(repo) else await watched.ids(tx, repo)
        repository = await rows.repository(tx, ids) if ids else None
        if repository is None or hidden.has(repository["full_name"], repository["repository_id"]):
            continue
        identifier = repository["repository_id"]
        query = sa.select(BROKEN.branch, BROKEN.column_group, BROKEN.broken)
        query = query.where(BROKEN.repository_id == identifier).order_by(BROKEN.branch)
        counted = (await tx.run(query)).all()
        wanted = {row.branch for row in counted if branches.watched(settings, repository, row.branch)}
        names = sorted(wanted)[:BRANCHES_MOST]
        shown = set(names) - await branches.deleted(tx, identifier, names)
        found |= {
            (repository["full_name"], row.branch, row.column_group): row.broken
            for row in counted
            if row.branch in shown
        }
    return found
