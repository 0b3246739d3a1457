"""branch: compares the newest commits of watched branches with GitHub's list, for lost pushes. Key: nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
import structlog

from bot.ci.collect import budget, collection_scope
from bot.ci.trunk import branches, cell_index, changed_days, folded_commits, required_checks, rows
from bot.ci.trunk.settings import BRANCHES_MOST, TrunkSettings
from bot.ci.trunk.tables import branch_commit
from bot.core.errors import GitHubRefused
from bot.core.json_fields import Kind, read_member
from bot.ingest import watched
from bot.ingest.tables import records
from bot.queue.sums import DAY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.ci.trunk.rows import RepositoryRow
    from bot.context import Context
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.queue.tasks import Task

log = structlog.get_logger("bot.ci.trunk.list_branch")

PAGE = 100  # commits of one call
PUSHES = 500  # newest ones looked at for commits that came with another
COMMIT, PUSH, PULL = branch_commit.c, records["push"].c, records["pull_request"].c


@dataclass(frozen=True, kw_only=True)
class Listed:
    """A commit as GitHub lists it."""

    sha: str
    at: int  # epoch milliseconds
    title: str
    author: str | None


async def run(context: Context, _task: Task) -> None:
    """List the watched branches of every upstream."""
    for repo in context.settings.upstream_repo:
        async with context.store.read() as tx:
            if await collection_scope.run_refusal(tx, context.settings, repo, workflow=None):
                continue
            repository = await rows.repository(tx, await watched.ids(tx, repo))
            names = await _watched(tx, context.settings, repository) if repository else []
        for branch in names:
            assert repository is not None
            try:
                found = await listed(context, repo, branch, page=1)
            except (
                GitHubRefused
            ) as error:  # deleted meanwhile, or not granted: the others can still be listed
                log.warning("a branch cannot be listed", repo=repo, branch=branch, reason=str(error))
                continue
            async with context.store.transaction() as tx:
                since = tx.now - context.settings.record_retention_days * DAY
                await store(tx, repository["repository_id"], branch, found, newest=True, since=since)
                await name_pulls(tx, repository["repository_id"], branch)
            await required_checks.refresh(context, repo, repository["repository_id"], branch)


async def listed(context: Context, repo: str, branch: str, *, page: int) -> list[Listed]:
    """Return one page of a branch's commits, newest first; raises GitHubRefused and OverBudget."""
    await budget.spend_call(context, repo)
    client = context.app_for(repo).client(repo, contents="read")
    url = client.path("commits{?sha,per_page,page}")
    found = await client.getitem(url, {"sha": branch, "per_page": str(PAGE), "page": str(page)})
    return [made for one in found if isinstance(one, dict) and (made := _commit(one))]


def _commit(one: dict[str, Any]) -> Listed | None:
    sha, at = (
        read_member(one, ("sha",), Kind.TEXT),
        read_member(one, ("commit", "committer", "date"), Kind.TIME),
    )
    if sha is None or at is None:
        return None
    author = read_member(one, ("author", "login"), Kind.TEXT) or read_member(
        one, ("commit", "author", "name"), Kind.TEXT
    )
    title = cell_index.title_of(read_member(one, ("commit", "message"), Kind.TEXT) or "")
    return Listed(sha=sha, at=at, title=title, author=author)


async def store(
    tx: Transaction, repository_id: int, branch: str, found: Sequence[Listed], *, newest: bool, since: int
) -> int:
    """Store commits that no push told of; returns how many. With `newest` those missing in the list are gone.

    A commit that came with the push of another is none of the branch's lines. One from before `since` would be
    deleted again at once.
    """
    if not found:
        return 0
    shas = {one.sha for one in found}
    folded = await _folded(tx, repository_id, branch)
    lines = [one for one in found if one.sha not in folded]
    known = await _known(tx, repository_id, branch, shas)
    made = [
        _row(repository_id, branch, one, parent.sha if parent else None)
        for one, parent in zip(lines, [*lines[1:], None], strict=True)
        if one.sha not in known and one.at >= since
    ]
    if made:
        await tx.run(tx.insert(branch_commit).on_conflict_do_nothing(), made)
    came = [one for one in found if one.sha in folded and one.at >= since]
    await folded_commits.add(tx, [_folded_row(repository_id, branch, one) for one in came])
    here = (COMMIT.repository_id == repository_id, COMMIT.branch == branch)
    await tx.run(sa.update(branch_commit).where(*here, COMMIT.sha.in_(sorted(shas))).values(gone=False))
    if newest:
        later = COMMIT.at > min(one.at for one in found)
        await tx.run(
            sa.update(branch_commit).where(*here, later, COMMIT.sha.not_in(sorted(shas))).values(gone=True)
        )
    changed_days.request(tx, repository_id, [(branch, int(row["at"])) for row in made])
    return len(made)


async def name_pulls(tx: Transaction, repository_id: int, branch: str) -> None:
    """Write which pull requests the newest commits came from whose titles do not tell."""
    here = (COMMIT.repository_id == repository_id, COMMIT.branch == branch)
    newest = (
        sa.select(COMMIT.sha).where(*here, COMMIT.pr_number.is_(None)).order_by(COMMIT.at.desc()).limit(PAGE)
    )
    shas = list((await tx.run(newest)).scalars())
    merged = (PULL.repository_id == repository_id, PULL.merged, PULL.merge_commit_sha.in_(shas))
    query = sa.select(PULL.merge_commit_sha, PULL.number).where(*merged).order_by(PULL.number.desc())
    for sha, number in (await tx.run(query)).all() if shas else ():  # of several the first one is kept
        await tx.run(sa.update(branch_commit).where(*here, COMMIT.sha == sha).values(pr_number=number))


def _row(repository_id: int, branch: str, one: Listed, parent: str | None) -> dict[str, Any]:
    return {
        "repository_id": repository_id,
        "branch": branch,
        "sha": one.sha,
        "parent": parent,
        "replaces": None,
        "at": one.at,
        "title": one.title,
        "author": one.author,
        "pr_number": cell_index.pull_number(one.title),
        "folded": 0,
        "gone": False,
        "listed": True,
    }


def _folded_row(repository_id: int, branch: str, one: Listed) -> dict[str, Any]:
    return {
        "repository_id": repository_id,
        "branch": branch,
        "sha": one.sha,
        "at": one.at,
        "title": one.title,
        "author": one.author,
    }


async def _known(tx: Transaction, repository_id: int, branch: str, shas: set[str]) -> set[str]:
    query = sa.select(COMMIT.sha).where(
        COMMIT.repository_id == repository_id, COMMIT.branch == branch, COMMIT.sha.in_(sorted(shas))
    )
    return set((await tx.run(query)).scalars())


async def _folded(tx: Transaction, repository_id: int, branch: str) -> set[str]:
    """Return the commits that came with the push of another one."""
    query = sa.select(PUSH.commits, PUSH.after).where(
        PUSH.repository_id == repository_id, PUSH.ref == f"{branches.HEADS}{branch}"
    )
    pushes = (await tx.run(query.order_by(PUSH.received_at.desc()).limit(PUSHES))).all()
    heads = {after for _, after in pushes}
    return {sha for commits, _ in pushes for sha in commits or () if sha not in heads}


async def _watched(tx: Transaction, settings: Settings, repository: RepositoryRow) -> list[str]:
    """Return the default branch, and those of the others that are watched and exist, the newest commits first."""
    default = repository["default_branch"]
    chosen = [default] if default else []
    if settings.of(TrunkSettings).ci_branches:
        async for name in rows.every_branch(tx, repository["repository_id"]):
            if name != default and branches.watched(settings, repository, name):
                chosen.append(name)
                if len(chosen) > BRANCHES_MOST:
                    break
    gone = await branches.deleted(tx, repository["repository_id"], chosen)
    return [name for name in chosen if name == default or name not in gone]
