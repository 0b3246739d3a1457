"""Branches: which are watched, which were deleted, and which checks GitHub requires on them."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.ci.trunk.settings import BRANCHES_MOST, TrunkSettings
from bot.ci.trunk.store import rows
from bot.ci.trunk.tables import BranchRuleRow, branch_rule, trunk_branch
from bot.db.rows import select

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from bot.ci.trunk.store.rows import RepositoryRow
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.ingest.rows import PushRow

HEADS = "refs/heads/"
BRANCH, RULE = trunk_branch.c, branch_rule.c


def watched(settings: Settings, repository: RepositoryRow, branch: str) -> bool:
    """Whether a branch is looked after: the default one, and those that CI_BRANCHES names."""
    globs = settings.of(TrunkSettings).ci_branches
    return branch == repository["default_branch"] or any(fnmatchcase(branch, glob) for glob in globs)


async def watched_names(tx: Transaction, settings: Settings, repository: RepositoryRow) -> list[str]:
    """Return the default branch, and those of the others that are watched and exist, the newest commits first."""
    default = repository["default_branch"]
    chosen = [default] if default else []
    if settings.of(TrunkSettings).ci_branches:
        async for name in rows.every_branch(tx, repository["repository_id"]):
            if name != default and watched(settings, repository, name):
                chosen.append(name)
                if len(chosen) > BRANCHES_MOST:
                    break
    gone = await deleted(tx, repository["repository_id"], chosen)
    return [name for name in chosen if name == default or name not in gone]


async def note_pushes(tx: Transaction, pushes: Iterable[PushRow]) -> None:
    """Note when branches were pushed to and deleted; of several times the latest counts, whatever their order."""
    rows: dict[tuple[int, str], dict[str, int]] = {}
    for push in pushes:
        reference = push["ref"] or ""
        if not reference.startswith(HEADS):
            continue
        place = (push["repository_id"], reference.removeprefix(HEADS))
        row = rows.setdefault(place, {"pushed_at": 0, "deleted_at": 0})
        name = "deleted_at" if push["deleted"] else "pushed_at"
        row[name] = max(row[name], push["received_at"])
    if not rows:
        return
    made = [{"repository_id": place[0], "branch": place[1], **rows[place]} for place in sorted(rows)]
    await tx.upsert(trunk_branch, made, greatest=("pushed_at", "deleted_at"))


async def deleted(tx: Transaction, repository_id: int, names: Collection[str]) -> frozenset[str]:
    """Return which of some branches of a repository were deleted and not made again."""
    query = sa.select(BRANCH.branch).where(
        BRANCH.repository_id == repository_id,
        BRANCH.branch.in_(sorted(names)),
        BRANCH.deleted_at > BRANCH.pushed_at,
    )
    return frozenset((await tx.run(query)).scalars())


async def deleted_at(tx: Transaction, repository_id: int, branch: str) -> int | None:
    """Return when it was heard that a branch was deleted, None where it was not."""
    query = sa.select(BRANCH.deleted_at).where(
        BRANCH.repository_id == repository_id, BRANCH.branch == branch, BRANCH.deleted_at > BRANCH.pushed_at
    )
    found: int | None = (await tx.run(query)).scalar()
    return found


async def rule_of_branch(tx: Transaction, repository_id: int, branch: str) -> BranchRuleRow | None:
    """Return what GitHub said of the checks that a branch requires, None before it was asked."""
    query = select(BranchRuleRow, branch_rule)
    return await tx.fetch_first(query.where(RULE.repository_id == repository_id, RULE.branch == branch))


async def store_rule(tx: Transaction, row: BranchRuleRow) -> None:
    """Store what GitHub said of the checks that a branch requires, or that it was asked."""
    await tx.upsert(branch_rule, [dict(row)], replaced=("contexts", "asked_at"))
