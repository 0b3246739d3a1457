"""The commits of a branch in order: as they were pushed, whatever their own clocks say."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.ci.trunk.tables import CommitRow


def order_commits(commits: Sequence[CommitRow]) -> list[CommitRow]:
    """Return commits newest first: each before its parent, else by their times and names.

    The parent is the head before the push. Where it is not known the times decide, which authors choose.
    """
    known = {row["sha"]: row for row in commits}
    children: defaultdict[str, list[CommitRow]] = defaultdict(list)
    for row in commits:
        if row["parent"] in known and row["parent"] != row["sha"]:
            children[row["parent"]].append(row)
    ordered: list[CommitRow] = []
    seen: set[str] = set()
    for start in sorted(commits, key=_newest_first, reverse=True):
        _add(start, children, ordered, seen)
    return ordered


def gone_commits(commits: Sequence[CommitRow]) -> frozenset[str]:
    """Return the commits that are no longer on the branch: found so by GitHub's list, or replaced by a forced push."""
    replaced = {row["replaces"] for row in commits if row["replaces"]}
    parents = {row["parent"] for row in commits if row["parent"]}
    return frozenset(
        row["sha"] for row in commits if row["gone"] or (row["sha"] in replaced and row["sha"] not in parents)
    )


def _add(
    start: CommitRow, children: dict[str, list[CommitRow]], ordered: list[CommitRow], seen: set[str]
) -> None:
    """Add a commit after everything that was pushed onto it; a circle, which only forged data has, is cut."""
    stack = [(start, False)]
    while stack:
        row, ready = stack.pop()
        if ready:
            ordered.append(row)
        elif row["sha"] not in seen:
            seen.add(row["sha"])
            stack.append((row, True))
            stack += [(child, False) for child in sorted(children.get(row["sha"], ()), key=_newest_first)]


def _newest_first(row: CommitRow) -> tuple[int, str]:
    return (row["at"], row["sha"])
