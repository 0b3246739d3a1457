"""Whose verdicts decide on a merge queue's commit? It holds its own pull request and all those it builds on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

Row = dict[str, Any]


def chain(groups: Sequence[Row], head_sha: str) -> list[int]:
    """Return the pull requests in a commit of the queue, its own first, then what it builds on."""
    by_head = {group["head_sha"]: group for group in groups}
    numbers: list[int] = []
    at: str | None = head_sha
    while at is not None and (group := by_head.pop(at, None)):
        numbers.append(group["pr_number"])
        at = group["base_sha"]
    return numbers


def behind(groups: Sequence[Row], number: int) -> set[int]:
    """Return the pull requests whose commits build directly on one of this pull request's."""
    mine = {group["head_sha"] for group in groups if group["pr_number"] == number}
    return {group["pr_number"] for group in groups if group["base_sha"] in mine} - {number}
