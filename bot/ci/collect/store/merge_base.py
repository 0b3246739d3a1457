"""What a commit of a pull request is to be compared with: the trusted branch it is meant for, and commits of that."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import sqlalchemy as sa

from bot.ci.collect.settings import CollectSettings, is_trusted_branch
from bot.ci.collect.store import runs
from bot.ingest.tables import records
from bot.oot.verdict import rows as verdict_rows

if TYPE_CHECKING:
    from collections.abc import Collection

    from bot.core.settings import Settings
    from bot.db.transaction import Transaction

PULLS = 10  # that share a head
HEAD = records["pull_head"].c


class MergedInto(NamedTuple):
    """Where a commit is to be merged."""

    branch: str  # the default branch where no pull request says otherwise; empty where that is not known
    commits: frozenset[str]  # the merge base, and the branch's head when the commit was pushed


async def merged_into(
    tx: Transaction, settings: Settings, repo: str, repository_ids: Collection[int], sha: str
) -> MergedInto:
    """Return where a commit is to be merged, by pull requests to trusted branches alone."""
    of_head = sa.select(HEAD.base_ref, HEAD.base_sha).where(
        HEAD.repository_id.in_(sorted(repository_ids)), HEAD.head_sha == sha
    )
    pulls = (await tx.run(of_head.order_by(HEAD.number).limit(PULLS))).all()
    facts = [await runs.repository_facts(tx, one) for one in sorted(repository_ids)]
    default = next((one.default_branch for one in facts if one.default_branch), None)
    patterns = settings.of(CollectSettings).ci_trusted_branches
    trusted = [
        one for one in pulls
        if one.base_ref and is_trusted_branch(one.base_ref, default_branch=default, patterns=patterns)
    ]  # fmt: skip
    branch = next((one.base_ref for one in trusted), default) or ""
    found = {one.base_sha for one in trusted}
    if trusted:
        found |= set((await verdict_rows.merge_bases(tx, repo, [sha], base_ref=branch)).values())
    return MergedInto(branch, frozenset(one for one in found if one))
