"""Merge queues: the commits that wait for a gate, and the pull requests each of them builds on."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import sqlalchemy as sa
import structlog

from bot.core.errors import GitHubRefused, RetryLater
from bot.db.rows import select
from bot.db.statements import RowStatement
from bot.ingest.retention import BATCH, DAY, delete_in_batches
from bot.ingest.tables import records
from bot.oot.publish.tables import MergeGroupRow, oot_merge_group
from bot.oot.results.task_keys import request_publish

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.ingest.reconcile import Window
    from bot.oot.verdict.pull_state import PullState

GROUP = oot_merge_group.c
OF_PULL = RowStatement(
    select(MergeGroupRow, oot_merge_group).where(
        GROUP.upstream_repo == sa.bindparam("of_repo"),
        GROUP.pr_number == sa.bindparam("of_number"),
        GROUP.ended_at.is_(None),
    )
)
WAITING = RowStatement(
    select(MergeGroupRow, oot_merge_group)
    .where(GROUP.upstream_repo == sa.bindparam("of_repo"), GROUP.ended_at.is_(None))
    .order_by(GROUP.created_at, GROUP.head_sha)
)
GROUP_KEY = ["upstream_repo", "head_sha"]
CHAIN_LONGEST = 200  # commits in a queue that build on one another
RETENTION = 30 * DAY  # also of groups whose end was never delivered
log = structlog.get_logger("bot.oot.publish.merge_queue")

BASES_ASKED_FOR = 86_400_000  # milliseconds a group is asked about: no queue waits longer
BASES_ASKED_MOST = 50  # groups at once
CONTAINS = frozenset({"ahead", "identical"})  # GitHub's words on a branch compared with a commit of its own


@dataclass(frozen=True, kw_only=True)
class Chain:
    """The pull requests in a commit of a queue: its own first, then those it builds on."""

    numbers: list[int]
    # the last of their groups, if what it builds on is neither a known group nor known to be on the base branch
    unknown: MergeGroupRow | None = None


async def record_group(
    tx: Transaction, repo: str, head_sha: str, *, base_sha: str | None, base_ref: str | None, number: int
) -> None:
    """Record that a queue waits for the gate on a commit; a group that has ended stays ended."""
    insert = tx.insert(oot_merge_group).values(
        upstream_repo=repo,
        head_sha=head_sha,
        base_sha=base_sha,
        base_ref=base_ref,
        pr_number=number,
        created_at=tx.now,
    )
    known = {name: sa.func.coalesce(GROUP[name], insert.excluded[name]) for name in ("base_sha", "base_ref")}
    await tx.run(insert.on_conflict_do_update(index_elements=GROUP_KEY, set_=known))


async def record_end_of_group(
    tx: Transaction, repo: str, head_sha: str, *, number: int, merged: bool
) -> None:
    """Record that a commit was merged or left the queue; this event may arrive before the one that adds it."""
    insert = tx.insert(oot_merge_group).values(
        upstream_repo=repo,
        head_sha=head_sha,
        pr_number=number,
        created_at=tx.now,
        ended_at=tx.now,
        merged=merged,
    )
    over = {name: insert.excluded[name] for name in ("ended_at", "merged")}
    await tx.run(insert.on_conflict_do_update(index_elements=GROUP_KEY, set_=over))


async def waiting_groups(tx: Transaction, repo: str) -> list[MergeGroupRow]:
    """Return the commits on which the queues of a repository wait, oldest first."""
    return await tx.fetch(WAITING, {"of_repo": repo})


async def groups_of_pull(tx: Transaction, repo: str, number: int) -> list[MergeGroupRow]:
    """Return the commits on which queues wait for a pull request."""
    return await tx.fetch(OF_PULL, {"of_repo": repo, "of_number": number})


async def pulls_building_on(tx: Transaction, repo: str, sha: str) -> set[int]:
    """Return the pull requests whose commits in a queue build directly on a commit."""
    return {group["pr_number"] for group in await waiting_groups(tx, repo) if group["base_sha"] == sha}


async def read_chain(tx: Transaction, group: MergeGroupRow) -> Chain:
    """Return the pull requests in a commit of a queue, down to the base branch."""
    numbers: list[int] = []
    seen: set[str] = set()
    while len(numbers) < CHAIN_LONGEST:
        numbers.append(group["pr_number"])
        seen.add(group["head_sha"])
        if await _is_base_on_branch(tx, group):
            return Chain(numbers=numbers)
        below = await _get(tx, group["upstream_repo"], group["base_sha"])
        if below is None or below["head_sha"] in seen:
            break
        if below["merged"]:
            return Chain(numbers=numbers)
        group = below
    return Chain(numbers=numbers, unknown=group)


async def unknown_bases(tx: Transaction, groups: Sequence[MergeGroupRow]) -> list[MergeGroupRow]:
    """Return, once each, the groups at the ends of these chains that GitHub should be asked about."""
    ends = [(await read_chain(tx, group)).unknown for group in groups]
    return list({group["head_sha"]: group for group in ends if group is not None}.values())


async def note_base(tx: Transaction, group: MergeGroupRow, *, known: bool) -> None:
    """Record GitHub's answer on a group's base."""
    same = (GROUP.upstream_repo == group["upstream_repo"], GROUP.head_sha == group["head_sha"])
    change = {"asked_at": tx.now} | ({"base_known": True} if known else {})
    await tx.run(sa.update(oot_merge_group).where(*same).values(change))


def pulls_behind(groups: Sequence[MergeGroupRow], number: int) -> set[int]:
    """Return the pull requests whose commits build directly on one of this pull request's."""
    mine = {group["head_sha"] for group in groups if group["pr_number"] == number}
    return {group["pr_number"] for group in groups if group["base_sha"] in mine} - {number}


async def prune_groups(context: Context) -> dict[str, int]:
    """Delete groups that are too old for any queue to wait for."""
    find = functools.partial(_old, before=context.clock.now() - RETENTION, limit=BATCH)
    return {"merge_groups": await delete_in_batches(context, find, _delete)}


async def read_queue_bases(context: Context, state: PullState) -> None:
    """Ask now what a pull request's groups build on, if that was never asked; reconciling asks again."""
    async with context.store.read() as tx:
        mine = [row for row in await groups_of_pull(tx, state.repo, state.number) if row["ended_at"] is None]
        unknown = await unknown_bases(tx, mine)
    try:
        await _ask(context, [row for row in unknown if row["asked_at"] is None])
    except RetryLater as error:
        log.info("what a queue builds on is asked for later", repo=state.repo, reason=str(error))


async def reconcile_queue_bases(context: Context, repo: str, _window: Window) -> int:
    """Ask about every group whose base is unknown; returns how many are known now."""
    async with context.store.read() as tx:
        recent = [
            row for row in await waiting_groups(tx, repo) if row["created_at"] > tx.now - BASES_ASKED_FOR
        ]
        unknown = await unknown_bases(tx, recent)
    return await _ask(context, unknown[:BASES_ASKED_MOST])


async def _get(tx: Transaction, repo: str, head_sha: str | None) -> MergeGroupRow | None:
    same = (GROUP.upstream_repo == repo, GROUP.head_sha == head_sha)
    return await tx.fetch_first(select(MergeGroupRow, oot_merge_group).where(*same))


async def _is_base_on_branch(tx: Transaction, group: MergeGroupRow) -> bool:
    """Whether a group's base is known to be on its base branch: by a push, its pull request, or GitHub's answer."""
    repo, base, branch = group["upstream_repo"], group["base_sha"], group["base_ref"]
    if group["base_known"] or base is None or branch is None:
        return bool(group["base_known"])
    push, pull = records["push"].c, records["pull_request"].c
    pushed = (push.after == base, push.ref == f"refs/heads/{branch}", push.deleted.is_not(True))
    based = (pull.number == group["pr_number"], pull.base_sha == base, pull.base_ref == branch)
    queries = [
        sa.select(sa.literal(1)).where(sa.func.lower(columns.repo) == repo.lower(), *conditions).limit(1)
        for columns, conditions in ((push, pushed), (pull, based))
    ]
    return any([await tx.row(query) is not None for query in queries])


async def _old(tx: Transaction, *, before: int, limit: int) -> list[tuple[str, str]]:
    query = sa.select(GROUP.upstream_repo, GROUP.head_sha).where(GROUP.created_at < before).limit(limit)
    return [(row.upstream_repo, row.head_sha) for row in await tx.run(query)]


async def _delete(tx: Transaction, keys: Sequence[tuple[str, str]]) -> None:
    await tx.run(sa.delete(oot_merge_group).where(tx.among([GROUP.upstream_repo, GROUP.head_sha], keys)))


async def _ask(context: Context, groups: Sequence[MergeGroupRow]) -> int:
    answered = 0
    for group in groups:
        known = await _is_on_branch(context, group)
        async with context.store.transaction() as tx:
            await note_base(tx, group, known=known)
            if known:
                request_publish(tx, group["upstream_repo"], group["pr_number"])
        answered += known
    return answered


async def _is_on_branch(context: Context, group: MergeGroupRow) -> bool:
    """Whether GitHub says that a group's base is a commit of its base branch."""
    repo, base, branch = group["upstream_repo"], group["base_sha"], group["base_ref"]
    if base is None or branch is None:
        return False
    client = context.github.client(repo, since=group["created_at"], contents="read")
    url = client.path("compare/{base}...{head}{?page,per_page}")  # the first page alone lists files
    try:
        compared = await client.getitem(url, {"base": base, "head": branch, "page": "2", "per_page": "1"})
    except GitHubRefused as error:
        log.warning("GitHub does not tell what a queue builds on", repo=repo, base=base, reason=str(error))
        return False
    return compared["status"] in CONTAINS
