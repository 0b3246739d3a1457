"""Commits of branches: pushed, folded into a push, or listed by GitHub; their words, and deleting what is old."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.core import escaping
from bot.db import word_index
from bot.db.rows import select
from bot.db.statements import RowStatement, Statement
from bot.db.word_index import title
from bot.ingest.retention import delete_rows
from bot.ingest.tables import records
from bot.jobs import branches
from bot.jobs.branches import HEADS
from bot.jobs.tables import (
    ColumnRow,
    CommitRow,
    FoldedCommitRow,
    branch_commit,
    ci_broken,
    ci_cell,
    ci_column,
    ci_commit,
    ci_day,
    ci_line,
    ci_runner_day,
    folded_commit,
    trunk_branch,
    trunk_event,
)
from bot.queue.sums import DAY

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.db.word_index import Title
    from bot.ingest.record_rows import PushRow
    from bot.jobs.tables import BranchKey, ListedCommit

COMMIT_WORDS = "commit"
SCANNED = 20_000  # branches or jobs of a repository that are looked through, the newest ones
COMMIT, FOLDED, BRANCH = branch_commit.c, folded_commit.c, trunk_branch.c
PUSH, PULL, JOB = records["push"].c, records["pull_request"].c, records["workflow_job"].c
CELL, COLUMN, STORED, EVENT, TITLE = ci_cell.c, ci_column.c, ci_commit.c, trunk_event.c, title.c
HEADS_AT_ONCE = 200  # commits of one question
HeadOfCommit = tuple[str, FoldedCommitRow | None]  # a SHA, and what is known of its commit

_PUSHES = Statement(
    sa.select(PUSH.after, PUSH.commits).where(
        PUSH.after.in_(sa.bindparam("heads", expanding=True)),
        PUSH.repository_id == sa.bindparam("repository"),
        PUSH.ref == sa.bindparam("ref"),
    )
)
_NAMED = RowStatement(
    select(FoldedCommitRow, folded_commit).where(
        FOLDED.repository_id == sa.bindparam("repository"),
        FOLDED.branch == sa.bindparam("branch"),
        FOLDED.sha.in_(sa.bindparam("shas", expanding=True)),
    )
)
TITLE_MOST = 120  # characters
MERGE = "Merge pull request #"
_OF_COMMIT = ("at", "title", "author", "pr_number")
_OF_PUSH: Mapping[str, Any] = {"parent": "", "replaces": "", "folded": 0}
PULLS_NAMED = 100  # newest commits whose pull request is looked up
PUSHES = 500  # newest ones looked at for commits that came with another
MARGIN = 7  # days that columns are kept longer than cells: some of these go only after their records


async def keep_words(tx: Transaction, commits: Sequence[CommitRow | Mapping[str, Any]]) -> None:
    """Keep the words of some commits' titles and authors."""
    await word_index.put_titles(tx, [_title_words(commit) for commit in commits])


async def forget_words(context: Context) -> int:
    """Delete words of commits that are no longer kept; returns how many."""
    kept = sa.exists().where(COMMIT.sha == TITLE.ref, COMMIT.repository_id == TITLE.repository_id)
    async with context.store.transaction() as tx:
        return await word_index.forget_titles(tx, COMMIT_WORDS, kept=kept)


async def commits_by_words(
    tx: Transaction, owners: Collection[int], text: str, *, limit: int
) -> list[CommitRow]:
    """Return the commits whose title or author has, for each word of a text, a word that begins with it."""
    titles = await word_index.find_titles(tx, COMMIT_WORDS, text, owners=owners, limit=limit)
    keys = [(row["ref"], row["repository_id"]) for row in titles]
    if not keys:
        return []
    these = tx.among([COMMIT.sha, COMMIT.repository_id], keys)
    return await tx.fetch(select(CommitRow, branch_commit).where(these).order_by(COMMIT.at.desc()))


async def commits_by_sha(
    tx: Transaction, owners: Collection[int], sha: str, *, limit: int
) -> list[CommitRow]:
    """Return the commits of branches whose SHA begins with a prefix."""
    query = select(CommitRow, branch_commit).where(
        COMMIT.sha >= sha, COMMIT.sha < sha + "g", COMMIT.repository_id.in_(sorted(owners))
    )
    return await tx.fetch(query.order_by(COMMIT.sha, COMMIT.branch).limit(limit))


async def commit_of_pull(tx: Transaction, repository_id: int, number: int) -> str | None:
    """Return the newest commit of a branch that came from a pull request, None where none is known."""
    query = sa.select(COMMIT.sha).where(COMMIT.repository_id == repository_id, COMMIT.pr_number == number)
    sha: str | None = (await tx.run(query.order_by(COMMIT.at.desc(), COMMIT.sha).limit(1))).scalar()
    return sha


async def branches_by_name(
    tx: Transaction, owners: Collection[int], text: str, *, limit: int
) -> list[tuple[int, str]]:
    """Return repository and name of existing branches whose name contains a text, the last pushed first."""
    newest = sa.select(BRANCH.repository_id, BRANCH.branch, BRANCH.pushed_at).where(
        BRANCH.repository_id.in_(sorted(owners)), BRANCH.deleted_at <= BRANCH.pushed_at
    )
    some = newest.limit(SCANNED).subquery().c
    query = sa.select(some.repository_id, some.branch).where(some.branch.icontains(text, autoescape=True))
    rows = await tx.run(query.order_by(some.pushed_at.desc(), some.branch).limit(limit))
    return [(row.repository_id, row.branch) for row in rows]


async def jobs_by_name(
    tx: Transaction, owners: Collection[int], words: Sequence[str], *, limit: int
) -> list[ColumnRow]:
    """Return the jobs whose workflow or name contains all of these words, those that ran last first."""
    newest = sa.select(ci_column).where(COLUMN.repository_id.in_(sorted(owners)))
    some = newest.order_by(COLUMN.id.desc()).limit(SCANNED).subquery()
    name = some.c.workflow + sa.literal(" / ") + some.c.job
    query = select(ColumnRow, some).where(*(name.icontains(word, autoescape=True) for word in words))
    return await tx.fetch(query.order_by(some.c.seen.desc(), some.c.id).limit(limit))


async def commits_of_heads(
    tx: Transaction, repository_id: int, branch: str, heads: Sequence[str], *, most: int
) -> Mapping[str, list[HeadOfCommit]]:
    """Return the commits pushed together with some heads of a branch, newest first, at most `most` for each.

    A commit is its SHA, and its row once GitHub has listed it.
    """
    came: dict[str, list[str]] = {}
    values = {"repository": repository_id, "ref": f"{branches.HEADS}{branch}"}
    for start in range(0, len(heads), HEADS_AT_ONCE):
        pushes = await tx.run(_PUSHES, {**values, "heads": heads[start : start + HEADS_AT_ONCE]})
        for head, commits in pushes.all():
            shas = [sha for sha in reversed(commits or ()) if sha != head]
            came[head] = max(came.get(head, []), shas, key=lambda each: (len(each), each))
    kept = {head: shas[:most] for head, shas in came.items()}
    named = await _named_commit(
        tx, repository_id, branch, sorted({sha for shas in kept.values() for sha in shas})
    )
    return {head: [(sha, named.get(sha)) for sha in shas] for head, shas in kept.items()}


async def add_commits(tx: Transaction, rows: Collection[FoldedCommitRow]) -> None:
    """Store commits; those that are stored already stay as they are."""
    if rows:
        await tx.run(tx.insert(folded_commit).on_conflict_do_nothing(), [dict(row) for row in rows])


async def fold_lines(tx: Transaction, repository_id: int, branch: str, shas: Collection[str]) -> None:
    """Remove the lines of commits that were listed before the delivery of their push arrived."""
    here = sa.and_(
        COMMIT.repository_id == repository_id,
        COMMIT.branch == branch,
        COMMIT.sha.in_(sorted(shas)),
        COMMIT.listed,
    )
    listed = await tx.fetch(select(FoldedCommitRow, branch_commit).where(here))
    if listed:
        await add_commits(tx, listed)
        await tx.run(sa.delete(branch_commit).where(here))


async def write_commits(tx: Transaction, pushes: Sequence[PushRow]) -> None:
    """Write the head of each push to a branch; a branch that was deleted has none.

    A head may be pushed more than once: of two pushes the greater text counts, so that their order does not. What
    GitHub's list said before gives way to a push.
    """
    rows: dict[tuple[int, str, str], dict[str, Any]] = {}
    for push in pushes:
        if (row := _commit(push)) is not None:
            place = (row["repository_id"], row["branch"], row["sha"])
            rows[place] = _greater(rows[place], row) if place in rows else row
    if not rows:
        return
    statement = tx.insert(branch_commit)
    new = statement.excluded
    update: dict[str, Any] = {
        name: sa.case((COMMIT.listed, new[name]), else_=COMMIT[name]) for name in _OF_COMMIT
    }
    update |= {
        name: sa.case(
            (
                COMMIT.listed | (new[name] > sa.func.coalesce(COMMIT[name], least)),
                new[name],
            ),
            else_=COMMIT[name],
        )
        for name, least in _OF_PUSH.items()
    }
    keys = [column.name for column in branch_commit.primary_key.columns]
    ordered = [rows[place] for place in sorted(rows)]
    update["listed"] = sa.false()
    await tx.run(statement.on_conflict_do_update(index_elements=keys, set_=update), ordered)
    await keep_words(tx, ordered)
    for push in pushes:
        await _fold_pushes(tx, push)


def shorten_title(message: str) -> str:
    """Return the first line of a commit's message, shortened."""
    return escaping.one_line(message.partition("\n")[0])[:TITLE_MOST]


def pull_number(title: str) -> int | None:
    """Return the number of a commit's pull request, as read from the title that GitHub gave it.

    A squashed one ends with it, as in "... (#123)"; a merge begins with "Merge pull request #123 from".
    """
    _, opened, last = title.rpartition("(#")
    digits = last.removesuffix(")")
    if not (opened and last.endswith(")")):
        digits = title.removeprefix(MERGE).partition(" from ")[0] if title.startswith(MERGE) else ""
    return int(digits) if digits.isascii() and digits.isdecimal() and len(digits) < 10 else None


async def store_commits(
    tx: Transaction,
    repository_id: int,
    branch: str,
    commits: Sequence[ListedCommit],
    *,
    newest: bool,
    since: int,
) -> int:
    """Store commits that are in no push; returns how many. With `newest`, mark those missing in the list as gone.

    A commit that came with the push of another one has no line of its own. One from before `since` would be
    deleted again at once.
    """
    if not commits:
        return 0
    key: BranchKey = {"repository_id": repository_id, "branch": branch}
    shas = {commit["sha"] for commit in commits}
    folded = await _folded_shas(tx, repository_id, branch)
    lines = [commit for commit in commits if commit["sha"] not in folded]
    known = await _known_shas(tx, repository_id, branch, shas)
    made = [
        _listed_row(key, commit, parent["sha"] if parent else None)
        for commit, parent in zip(lines, [*lines[1:], None], strict=True)
        if commit["sha"] not in known and commit["at"] >= since
    ]
    if made:
        await tx.run(tx.insert(branch_commit).on_conflict_do_nothing(), made)
        await keep_words(tx, made)
    came = [commit for commit in commits if commit["sha"] in folded and commit["at"] >= since]
    await add_commits(tx, [{**key, **commit} for commit in came])
    here = (COMMIT.repository_id == repository_id, COMMIT.branch == branch)
    await tx.run(sa.update(branch_commit).where(*here, COMMIT.sha.in_(sorted(shas))).values(gone=False))
    if newest:
        later = COMMIT.at > min(commit["at"] for commit in commits)
        await tx.run(
            sa.update(branch_commit).where(*here, later, COMMIT.sha.not_in(sorted(shas))).values(gone=True)
        )
    branches.request_sums(tx, repository_id, [(branch, row["at"]) for row in made])
    return len(made)


async def name_pulls(tx: Transaction, repository_id: int, branch: str) -> None:
    """Write the pull requests of the newest commits whose titles do not name them."""
    here = (COMMIT.repository_id == repository_id, COMMIT.branch == branch)
    newest = (
        sa.select(COMMIT.sha)
        .where(*here, COMMIT.pr_number.is_(None))
        .order_by(COMMIT.at.desc())
        .limit(PULLS_NAMED)
    )
    shas = list((await tx.run(newest)).scalars())
    merged = (PULL.repository_id == repository_id, PULL.merged, PULL.merge_commit_sha.in_(shas))
    query = sa.select(PULL.merge_commit_sha, PULL.number).where(*merged).order_by(PULL.number.desc())
    for sha, number in (await tx.run(query)).all() if shas else ():  # of several the first one is kept
        await tx.run(sa.update(branch_commit).where(*here, COMMIT.sha == sha).values(pr_number=number))


async def delete_old_rows(context: Context) -> dict[str, int]:
    """Delete what is past the retention of records."""
    before = context.clock.now() - context.settings.record_retention_days * DAY
    first = before // DAY  # the oldest day that is kept
    return {
        "cells": await _delete_cells(context, before),
        "columns": await delete_rows(context, ci_column, COLUMN.seen.between(1, first - MARGIN - 1)),
        "commits of branches": sum(
            [
                await delete_rows(context, table, table.c.at < before)
                for table in (branch_commit, folded_commit)
            ]
        ),
        "words of commits": await forget_words(context),
        "branches": sum(
            [await delete_rows(context, table, ~_is_known(table)) for table in (ci_broken, trunk_branch)]
        ),
        "changes of jobs": await delete_rows(context, trunk_event, _old_event(before)),
        "sums of CI": sum(
            [
                await delete_rows(context, table, table.c.day < first)
                for table in (ci_day, ci_line, ci_runner_day)
            ]
        ),
    }


def _title_words(commit: CommitRow | Mapping[str, Any]) -> Title:
    return {
        "kind": COMMIT_WORDS,
        "repository_id": commit["repository_id"],
        "ref": commit["sha"],
        "text": " ".join(text for text in (commit["title"], commit["author"]) if text),
    }


async def _named_commit(
    tx: Transaction, repository_id: int, branch: str, shas: Sequence[str]
) -> dict[str, FoldedCommitRow]:
    named: dict[str, FoldedCommitRow] = {}
    values = {"repository": repository_id, "branch": branch}
    for start in range(0, len(shas), HEADS_AT_ONCE):
        rows = await tx.fetch(_NAMED, {**values, "shas": shas[start : start + HEADS_AT_ONCE]})
        named |= {row["sha"]: row for row in rows}
    return named


async def _fold_pushes(tx: Transaction, push: PushRow) -> None:
    """Fold the commits of a push under its head."""
    reference, came = push["ref"] or "", set(push["commits"] or ()) - {push["after"]}
    if came and reference.startswith(HEADS):
        await fold_lines(tx, push["repository_id"], reference.removeprefix(HEADS), came)


def _greater(known: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    chosen = {
        name: max(known[name] or least, other[name] or least) or known[name]
        for name, least in _OF_PUSH.items()
    }
    return {**known, **chosen}


def _commit(push: PushRow) -> dict[str, Any] | None:
    """Return the row of a push's head, None where the push is not to a branch."""
    reference, sha = push["ref"] or "", push["after"]
    if push["deleted"] or not sha or not reference.startswith(HEADS):
        return None
    title = shorten_title(push["head_commit_message"] or "")
    before = push["before"] if push["before"] and push["before"].strip("0") else None
    return {
        "repository_id": push["repository_id"],
        "branch": reference.removeprefix(HEADS),
        "sha": sha,
        "parent": None if push["forced"] else before,
        "replaces": before if push["forced"] else None,
        "at": push["head_commit_timestamp"] or push["received_at"],
        "title": title,
        "author": push["pusher_name"],
        "pr_number": pull_number(title),
        "folded": max(0, len(push["commits"] or []) - 1),
        "gone": False,
        "listed": False,
    }


def _listed_row(key: BranchKey, commit: ListedCommit, parent: str | None) -> CommitRow:
    return {
        **key,
        "sha": commit["sha"],
        "parent": parent,
        "replaces": None,
        "at": commit["at"],
        "title": commit["title"],
        "author": commit["author"],
        "pr_number": pull_number(commit["title"]),
        "folded": 0,
        "gone": False,
        "listed": True,
    }


async def _known_shas(tx: Transaction, repository_id: int, branch: str, shas: set[str]) -> set[str]:
    query = sa.select(COMMIT.sha).where(
        COMMIT.repository_id == repository_id,
        COMMIT.branch == branch,
        COMMIT.sha.in_(sorted(shas)),
    )
    return set((await tx.run(query)).scalars())


async def _folded_shas(tx: Transaction, repository_id: int, branch: str) -> set[str]:
    """Return the commits that were pushed together with a newer one."""
    query = sa.select(PUSH.commits, PUSH.after).where(
        PUSH.repository_id == repository_id,
        PUSH.ref == f"{branches.HEADS}{branch}",
    )
    pushes = (await tx.run(query.order_by(PUSH.received_at.desc()).limit(PUSHES))).all()
    heads = {after for _, after in pushes}
    return {sha for commits, _ in pushes for sha in commits or () if sha not in heads}


async def _delete_cells(context: Context, before: int) -> int:
    """Delete old cells, repository by repository: the index of their times begins with it."""
    async with context.store.read() as tx:
        query = sa.select(COLUMN.repository_id).distinct().order_by(COLUMN.repository_id)
        repositories = list((await tx.run(query)).scalars())
    deleted = 0
    for repository in repositories:
        for old in (CELL.queued_at < before, sa.and_(CELL.queued_at.is_(None), _old_otherwise(before))):
            deleted += await delete_rows(context, ci_cell, sa.and_(CELL.repository_id == repository, old))
    await delete_rows(context, ci_commit, ~_has_cells())
    return deleted


def _has_cells() -> sa.ColumnElement[bool]:
    """Whether any job is kept that ran on a commit."""
    return sa.exists().where(CELL.repository_id == STORED.repository_id, CELL.head_sha == STORED.head_sha)


def _old_otherwise(before: int) -> sa.ColumnElement[bool]:
    """Whether a cell is old whose job has no creation time; without any time, its record decides."""
    recorded = sa.exists().where(JOB.repository_id == CELL.repository_id, JOB.id == CELL.job_id)
    at = sa.func.coalesce(CELL.completed_at, CELL.started_at)
    return sa.or_(at < before, sa.and_(at.is_(None), ~recorded))


def _old_event(before: int) -> sa.ColumnElement[bool]:
    """Whether a change is old; one without a time is as old as its first commit."""
    known = sa.exists().where(
        COMMIT.repository_id == EVENT.repository_id,
        COMMIT.branch == EVENT.branch,
        COMMIT.sha == EVENT.first_bad,
    )
    return sa.or_(EVENT.at < before, sa.and_(EVENT.at.is_(None), ~known))


def _is_known(table: sa.Table, *also: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    """Whether any commit of a row's branch is kept."""
    same = (COMMIT.repository_id == table.c.repository_id, COMMIT.branch == table.c.branch)
    return sa.exists().where(*same, *also)
