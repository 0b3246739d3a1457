"""Git operations on a repository: new commits, refs, history, merge bases."""

from __future__ import annotations

import secrets
from collections import deque
from typing import TYPE_CHECKING

from bot.demo.github.models import Commit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bot.demo.github.models import Repo

SHORTEST = 7  # characters of an abbreviated SHA
NONE = "0" * 40  # before a branch is made, and after it is deleted


def commit(
    repo: Repo,
    *,
    at: int,
    message: str,
    author: str,
    parents: tuple[str, ...] = (),
    files: Mapping[str, bytes] | None = None,
) -> Commit:
    """Create a commit on these parents that writes these files."""
    tree = dict(repo.commits[parents[0]].tree) if parents else {}
    tree |= files or {}
    created = Commit(
        sha=secrets.token_hex(20),
        message=message,
        author=author,
        at=at,
        parents=parents,
        tree=tree,
        changed=tuple(files or ()),
    )
    repo.commits[created.sha] = created
    return created


def resolve(repo: Repo, ref: str) -> Commit | None:
    """Return the commit of a SHA, branch or pull request ref; None for an unknown one."""
    name = ref.removeprefix("refs/").removeprefix("heads/")
    parts = name.split("/")
    if len(parts) == 3 and parts[0] == "pull" and parts[1].isdigit():
        pull = repo.pulls.get(int(parts[1]))
        return repo.commits[pull.head_sha] if pull else None
    return repo.commits.get(repo.branches.get(name, name))


def history(repo: Repo, sha: str) -> Iterator[Commit]:
    """Yield a commit and its ancestors, nearest first."""
    visited: set[str] = set()
    waiting = deque([sha])
    while waiting:
        current = waiting.popleft()
        if current not in visited:
            visited.add(current)
            yield repo.commits[current]
            waiting.extend(repo.commits[current].parents)


def merge_base(repo: Repo, one: str, other: str) -> Commit | None:
    """Return the nearest common ancestor; None for unrelated histories."""
    ancestors = {each.sha for each in history(repo, one)}
    return next((each for each in history(repo, other) if each.sha in ancestors), None)


def only_in(repo: Repo, sha: str, without: str) -> list[Commit]:
    """Return the commits reachable from `sha` but not from `without`, oldest first."""
    known = {each.sha for each in history(repo, without)}
    return [each for each in history(repo, sha) if each.sha not in known][::-1]


def holds(repo: Repo, sha: str, earlier: str) -> bool:
    """Whether a commit is, or comes after, an earlier one."""
    return any(each.sha == earlier for each in history(repo, sha))


def forget_unreachable(repo: Repo) -> list[str]:
    """Delete the commits that no branch, tag, pull request or run leads to, as GitHub does in time; returns them."""
    heads = [*repo.branches.values(), *(sha for pull in repo.pulls.values() for sha in pull.commits)]
    heads += [run.head_sha for run in repo.runs.values()]
    kept = {each.sha for head in heads for each in history(repo, head)}
    gone = [sha for sha in repo.commits if sha not in kept]
    for sha in gone:
        del repo.commits[sha]
    return gone
