"""What is known of a commit that backends may be sent, read from its event and, once per head, from GitHub.

What GitHub does not say keeps no backend from running.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import structlog

from bot.core.errors import GitHubRefused
from bot.core.json_fields import Kind, read_member
from bot.oot.allowlist.globs import find_match
from bot.oot.dispatch import changed_files, rows_commits
from bot.oot.dispatch.changed_files import MOST_FILES, Head
from bot.oot.dispatch.decide import NO_MATCHES, Commit, SameTree, heeds_paths
from bot.oot.results.store import dispatches
from bot.oot.verdict.facts import answered_pushes, merge_facts, newest, of_own_events, read_facts
from bot.oot.verdict.verdict import State, state_of
from bot.oot.verdict.view import anchor_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bot.context import Context
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.ingest.rows import PullRow
    from bot.oot.allowlist.allowlist import Allowlist, Entry
    from bot.oot.dispatch.decide import Match

log = structlog.get_logger("bot.oot.dispatch.commits")

PUSHED_MOST = 2_048  # commits that GitHub lists of a push: there may be more
HEADS, NO_COMMIT = "refs/heads/", "0" * 40


async def read_commit(
    context: Context, allowlist: Allowlist | None, event: str, body: dict[str, Any]
) -> Commit | None:
    """Return what is known of an event's commit; None where no entry is selective, or nothing is to be run.

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


async def match_all(entries: Iterable[Entry], paths: Sequence[str]) -> Mapping[tuple[str, ...], Match | None]:
    """Return what the globs of entries choose of all changed files, in a thread: there may be thousands."""
    globs = {entry.paths for entry in entries if heeds_paths(entry)}
    return await asyncio.to_thread(lambda: {some: find_match(some, paths) for some in globs})


async def read_same(
    tx: Transaction, settings: Settings, entries: Iterable[Entry], repo: str, sha: str
) -> dict[str, SameTree]:
    """Return, by backend, the newest commit with the files of this one on which it has passed."""
    wanted = {entry.key: entry for entry in entries if entry.skip_if_same_tree}
    tree = await rows_commits.get_tree(tx, repo, sha) if wanted else None
    found: dict[str, SameTree] = {}
    for other in await rows_commits.commits_of_tree(tx, repo, tree, but=sha) if tree else ():
        rows = [
            row for row in await dispatches.read_for_head(tx, repo, other) if row["backend_key"] in wanted
        ]
        counting, pushed = newest(of_own_events(rows)), answered_pushes(rows)
        known = await read_facts(tx, [*counting.values(), *pushed])
        for facts in merge_facts(known, counting, pushed).values():
            key, number = facts.dispatch["backend_key"], facts.dispatch["pr_number"]
            if key not in found and state_of(facts, wanted[key], now=tx.now) is State.SUCCESS:
                page = f"{settings.url}/{repo}/commit/{other}"
                if number is not None:
                    page = f"{settings.url}/{repo}/pull/{number}?sha={other}#{anchor_of(key)}"
                found[key] = SameTree(sha=other, url=page)
    return found


async def known_commit(tx: Transaction, allowlist: Allowlist, record: PullRow) -> Commit:
    """Return what is known of a pull request's newest head, by our records."""
    repo, number, sha, base = (
        record["repo"],
        record["number"] or 0,
        record["head_sha"] or "",
        record["base_ref"],
    )
    row = await rows_commits.get_changed_files(tx, repo, number, sha, base_ref=base or "")
    paths = changed_files.all_paths(row)
    return Commit(
        event="pull_request",
        sha=sha,
        branch=base,
        labels=frozenset(record["labels"] or ()),
        draft=bool(record["draft"]),
        matches=NO_MATCHES if paths is None else await match_all(allowlist.entries, paths),
    )


async def _pushed(entries: Sequence[Entry], body: dict[str, Any]) -> Commit:
    ref: str = body["ref"]
    branch = ref.removeprefix(HEADS) if ref.startswith(HEADS) else None
    commit = Commit(event="push", sha=body["after"], branch=branch)
    paths = pushed_paths(body) if any(map(heeds_paths, entries)) else None
    return commit if paths is None else replace(commit, matches=await match_all(entries, paths))


def pushed_paths(body: dict[str, Any]) -> list[str] | None:
    """Return the files that a push changed; None where its commits do not tell all of them."""
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


async def _head(context: Context, entries: Sequence[Entry], repo: str, pull: dict[str, Any]) -> Commit:
    labels = frozenset(label["name"] for label in pull.get("labels") or ())
    head = Head(repo, pull["number"], pull["head"]["sha"], pull["base"]["ref"])
    commit = Commit(
        event="pull_request", sha=head.sha, branch=head.base_ref, labels=labels, draft=bool(pull.get("draft"))
    )
    # when its newest commit was announced, at the latest: it may be younger than the pull request
    since = read_member(pull, ("updated_at",), Kind.TIME)
    if any(map(heeds_paths, entries)):
        paths = await _paths(context, head, pull.get("changed_files"), since=since)
        commit = commit if paths is None else replace(commit, matches=await match_all(entries, paths))
    if any(entry.skip_if_same_tree for entry in entries):
        await _ask_for_tree(context, repo, head.sha, since=since)
    return commit


async def _paths(context: Context, head: Head, counted: object, *, since: int | None) -> list[str] | None:
    """Return all files that a head changes; None where they cannot be known."""
    if isinstance(counted, int) and counted > MOST_FILES:
        return None
    try:
        paths, complete = await changed_files.read_changed_files(context, head, since=since, certain=True)
    except GitHubRefused as error:
        log.warning("changed files cannot be read", repo=head.repo, pull=head.number, reason=str(error))
        return None
    return paths if complete else None


async def _ask_for_tree(context: Context, repo: str, sha: str, *, since: int | None) -> None:
    """Store the tree of a commit, which GitHub is asked for once."""
    async with context.store.read() as tx:
        if await rows_commits.get_tree(tx, repo, sha) is not None:
            return
    client = context.github.client(repo, since=since, contents="read")
    try:
        found = await client.getitem(client.path("commits/{sha}"), {"sha": sha})
    except GitHubRefused as error:
        log.warning("the tree of a commit cannot be read", repo=repo, sha=sha, reason=str(error))
        return
    if tree := read_member(found, ("commit", "tree", "sha"), Kind.TEXT):
        async with context.store.transaction() as tx:
            await rows_commits.store_tree(tx, repo, sha, tree)
