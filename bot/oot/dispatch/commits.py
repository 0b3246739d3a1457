"""What is known of a commit that backends may be sent, from its event and, once per head, from GitHub."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import sqlalchemy as sa
import structlog

from bot.core.errors import GitHubRefused
from bot.core.json_fields import Kind, read_member
from bot.db.rows import select
from bot.oot.allowlist.yaml_document import find_match
from bot.oot.dispatch.decide import NO_MATCHES, Commit, SameTree, heeds_paths
from bot.oot.dispatch.rows import ChangedFilesRow, TreeRow, oot_changed_files, oot_tree
from bot.oot.results import dispatches
from bot.oot.verdict.verdict import (
    State,
    answered_pushes,
    merge_facts,
    newest_by_backend,
    of_own_events,
    read_facts,
    state_of,
)
from bot.oot.verdict.view import anchor_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bot.context import Context
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.github.client import Client
    from bot.ingest.record_rows import PullRow
    from bot.oot.allowlist.allowlist import Allowlist
    from bot.oot.allowlist.entry import Entry
    from bot.oot.dispatch.decide import Match

SAME_MOST = 20  # newest commits with one tree that are looked at
log = structlog.get_logger("bot.oot.dispatch.commits")

MOST_FILES = 3000  # GitHub lists no more files of a pull request
PUSHED_MOST = 2_048  # commits that GitHub lists of a push: there may be more
HEADS, NO_COMMIT = "refs/heads/", "0" * 40


class HeadFiles(NamedTuple):
    """A head of a pull request and its base branch."""

    repo: str
    number: int
    sha: str
    base_ref: str


async def get_changed_files(
    tx: Transaction, repo: str, number: int, head_sha: str, *, base_ref: str
) -> ChangedFilesRow | None:
    """Return the files that GitHub listed for a head and base; None if it was not asked yet."""
    files = oot_changed_files.c
    about = (files.upstream_repo == repo, files.pr_number == number, files.head_sha == head_sha)
    query = select(ChangedFilesRow, oot_changed_files).where(*about, files.base_ref == base_ref)
    return await tx.fetch_first(query)


async def store_changed_files(
    tx: Transaction,
    repo: str,
    number: int,
    head_sha: str,
    paths: Sequence[str],
    *,
    base_ref: str,
    complete: bool | None,
) -> None:
    """Store the files that GitHub listed for a head and base, replacing those of other heads."""
    files = oot_changed_files
    await tx.run(sa.delete(files).where(files.c.upstream_repo == repo, files.c.pr_number == number))
    values = {
        "upstream_repo": repo, "pr_number": number, "head_sha": head_sha, "base_ref": base_ref, "paths": list(paths),
        "complete": complete, "asked_at": tx.now,
    }  # fmt: skip
    await tx.run(tx.insert(files).values(values).on_conflict_do_nothing())


async def get_tree(tx: Transaction, repo: str, head_sha: str) -> str | None:
    """Return the tree of a commit; None if GitHub was not asked yet."""
    tree = oot_tree.c
    query = select(TreeRow, oot_tree).where(tree.upstream_repo == repo, tree.head_sha == head_sha)
    row = await tx.fetch_first(query)
    return row["tree_sha"] if row else None


async def store_tree(tx: Transaction, repo: str, head_sha: str, tree_sha: str) -> None:
    """Store the tree of a commit, which never changes."""
    values = {"upstream_repo": repo, "head_sha": head_sha, "tree_sha": tree_sha, "asked_at": tx.now}
    await tx.run(tx.insert(oot_tree).values(values).on_conflict_do_nothing())


async def commits_of_tree(tx: Transaction, repo: str, tree_sha: str, *, but: str) -> list[str]:
    """Return other dispatched commits with this tree, newest first."""
    tree = oot_tree.c
    query = sa.select(tree.head_sha).where(
        tree.upstream_repo == repo, tree.tree_sha == tree_sha, tree.head_sha != but
    )
    shas = await tx.run(query.order_by(tree.asked_at.desc(), tree.head_sha).limit(SAME_MOST))
    return list(shas.scalars())


async def read_changed_files(
    context: Context, head: HeadFiles, *, since: int | None, certain: bool
) -> tuple[list[str], bool]:
    """Return the files a head changes, with old names of renamed ones, and whether these are certainly all.

    With `certain`, GitHub is asked afterwards whether this is still the head, as it lists the newest head's files.
    Raises GitHubRefused, RetryLater.
    """
    async with context.store.read() as tx:
        known = await get_changed_files(tx, head.repo, head.number, head.sha, base_ref=head.base_ref)
    if known is not None and (known["complete"] is not None or not certain):
        return known["paths"], bool(known["complete"])
    client = context.github.client(head.repo, since=since, pull_requests="read")
    paths, counted = await _list_files(client, head.number)
    complete = await _is_all(client, head, counted) if certain else None
    async with context.store.transaction() as tx:
        await store_changed_files(
            tx, head.repo, head.number, head.sha, paths, base_ref=head.base_ref, complete=complete
        )
    return paths, bool(complete)


def all_paths(row: ChangedFilesRow | None) -> list[str] | None:
    """Return the files of a head; None unless all are known."""
    return row["paths"] if row is not None and row["complete"] else None


async def read_commit(
    context: Context, allowlist: Allowlist | None, event: str, body: dict[str, Any]
) -> Commit | None:
    """Return what is known of an event's commit; None where no entry is selective or nothing will run.

    Raises KeyError, TypeError or AttributeError for a body that lacks what a dispatch needs, and RetryLater.
    """
    repo = body["repository"]["full_name"]
    if allowlist is None or not context.settings.is_upstream(repo):
        return None
    entries = [entry for entry in allowlist.for_event(event) if entry.selective]
    if not entries:
        return None
    if event == "push":
        return await _pushed(entries, body)
    return None if body["action"] == "closed" else await _head(context, entries, repo, body["pull_request"])


async def match_backends(
    entries: Iterable[Entry], paths: Sequence[str]
) -> Mapping[tuple[str, ...], Match | None]:
    """Match the globs of entries against all changed files, in a thread: there may be thousands."""
    globs = {entry.paths for entry in entries if heeds_paths(entry)}
    return await asyncio.to_thread(lambda: {some: find_match(some, paths) for some in globs})


async def read_same(
    tx: Transaction, settings: Settings, entries: Iterable[Entry], repo: str, sha: str
) -> dict[str, SameTree]:
    """Return, for each backend, the newest commit with the same files on which it passed."""
    wanted = {entry.key: entry for entry in entries if entry.skip_if_same_tree}
    tree = await get_tree(tx, repo, sha) if wanted else None
    same: dict[str, SameTree] = {}
    for other in await commits_of_tree(tx, repo, tree, but=sha) if tree else ():
        rows = [
            row
            for row in await dispatches.read_dispatches_of_head(tx, repo, other)
            if row["backend_key"] in wanted
        ]
        counting, pushed = newest_by_backend(of_own_events(rows)), answered_pushes(rows)
        known = await read_facts(tx, [*counting.values(), *pushed])
        for facts in merge_facts(known, counting, pushed).values():
            key, number = facts.dispatch["backend_key"], facts.dispatch["pr_number"]
            if key not in same and state_of(facts, wanted[key], now=tx.now) is State.SUCCESS:
                page = f"{settings.url}/{repo}/commit/{other}"
                if number is not None:
                    page = f"{settings.url}/{repo}/pull/{number}?sha={other}#{anchor_of(key)}"
                same[key] = SameTree(sha=other, url=page)
    return same


async def known_commit(tx: Transaction, allowlist: Allowlist, record: PullRow) -> Commit:
    """Return what our records know of a pull request's newest head."""
    repo, number, sha, base = (
        record["repo"],
        record["number"] or 0,
        record["head_sha"] or "",
        record["base_ref"],
    )
    row = await get_changed_files(tx, repo, number, sha, base_ref=base or "")
    paths = all_paths(row)
    return Commit(
        event="pull_request",
        sha=sha,
        branch=base,
        labels=frozenset(record["labels"] or ()),
        draft=bool(record["draft"]),
        matches=NO_MATCHES if paths is None else await match_backends(allowlist.entries, paths),
    )


def pushed_paths(body: dict[str, Any]) -> list[str] | None:
    """Return the files that a push changed; None where its commits do not list all."""
    commits = body.get("commits")
    unknown = body.get("forced") or body.get("created") or body.get("before") == NO_COMMIT
    if unknown or not isinstance(commits, list) or not 0 < len(commits) < PUSHED_MOST:
        return None
    paths: list[str] = []
    for commit in commits:
        changed = [path for kind in ("added", "modified", "removed") for path in commit.get(kind) or ()]
        if not 0 < len(changed) < MOST_FILES or not all(isinstance(path, str) for path in changed):
            return None  # a merge lists none
        paths += changed
    return list(dict.fromkeys(paths))


async def _list_files(client: Client, number: int) -> tuple[list[str], int]:
    """Return the listed files with former names, and their number without these."""
    url = client.path(f"pulls/{number}/files{{?per_page}}")
    paths: list[str] = []
    counted = 0
    async for listed in client.getiter(url, {"per_page": "100"}):
        paths += _names(listed)
        counted += 1
        if counted == MOST_FILES:
            break
    return paths, counted


def _names(listed: dict[str, Any]) -> list[str]:
    """Return the names of a changed file in a form that can be stored: they need not be UTF-8."""
    names = [listed["filename"], listed.get("previous_filename")]
    return [name.encode("utf-8", "replace").decode() for name in names if isinstance(name, str)]


async def _is_all(client: Client, head: HeadFiles, counted: int) -> bool:
    """Return whether the listed files are all of this head's."""
    try:
        pull = await client.getitem(client.path(f"pulls/{head.number}"))
    except GitHubRefused as error:
        log.info("whose files these are is unknown", pull=head.number, reason=str(error))
        return False
    total = pull.get("changed_files")
    at_head = (pull["head"]["sha"], pull["base"]["ref"]) == (head.sha, head.base_ref)
    return at_head and (total == counted if isinstance(total, int) else counted < MOST_FILES)


async def _pushed(entries: Sequence[Entry], body: dict[str, Any]) -> Commit:
    ref: str = body["ref"]
    branch = ref.removeprefix(HEADS) if ref.startswith(HEADS) else None
    commit = Commit(event="push", sha=body["after"], branch=branch)
    paths = pushed_paths(body) if any(map(heeds_paths, entries)) else None
    return commit if paths is None else replace(commit, matches=await match_backends(entries, paths))


async def _head(context: Context, entries: Sequence[Entry], repo: str, pull: dict[str, Any]) -> Commit:
    labels = frozenset(label["name"] for label in pull.get("labels") or ())
    head = HeadFiles(repo, pull["number"], pull["head"]["sha"], pull["base"]["ref"])
    commit = Commit(
        event="pull_request", sha=head.sha, branch=head.base_ref, labels=labels, draft=bool(pull.get("draft"))
    )
    # when its newest commit was announced, at the latest: it may be younger than the pull request
    since = read_member(pull, ("updated_at",), Kind.TIME)
    if any(map(heeds_paths, entries)):
        paths = await _paths(context, head, pull.get("changed_files"), since=since)
        commit = commit if paths is None else replace(commit, matches=await match_backends(entries, paths))
    if any(entry.skip_if_same_tree for entry in entries):
        await _ask_for_tree(context, repo, head.sha, since=since)
    return commit


async def _paths(
    context: Context, head: HeadFiles, counted: object, *, since: int | None
) -> list[str] | None:
    """Return all files that a head changes; None where they cannot be learned."""
    if isinstance(counted, int) and counted > MOST_FILES:
        return None
    try:
        paths, complete = await read_changed_files(context, head, since=since, certain=True)
    except GitHubRefused as error:
        log.warning("changed files cannot be read", repo=head.repo, pull=head.number, reason=str(error))
        return None
    return paths if complete else None


async def _ask_for_tree(context: Context, repo: str, sha: str, *, since: int | None) -> None:
    """Ask GitHub once for the tree of a commit, and store it."""
    async with context.store.read() as tx:
        if await get_tree(tx, repo, sha) is not None:
            return
    client = context.github.client(repo, since=since, contents="read")
    try:
        commit = await client.getitem(client.path("commits/{sha}"), {"sha": sha})
    except GitHubRefused as error:
        log.warning("the tree of a commit cannot be read", repo=repo, sha=sha, reason=str(error))
        return
    if tree := read_member(commit, ("commit", "tree", "sha"), Kind.TEXT):
        async with context.store.transaction() as tx:
            await store_tree(tx, repo, sha, tree)
