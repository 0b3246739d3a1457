"""Which runs are trusted: may feed baselines, test times and the like. Absence of data is never trust."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.ci.collect.settings import is_trusted_branch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.ingest.rows import WorkflowRunRow

OWN_EVENTS = frozenset({"push", "schedule", "workflow_dispatch", "merge_group"})
QUEUE = "gh-readonly-queue/"  # begins the branch of a merge group: gh-readonly-queue/{base}/pr-{n}-{sha}


def is_trusted(run: WorkflowRunRow, *, default_branch: str | None, patterns: Sequence[str]) -> bool:
    """Whether a run is the repository's own, on a trusted branch, by GitHub's word alone.

    A fork may call its branch `main`: the head repository has to be this one, by id, since names change hands.
    """
    if run["head_repository_id"] is None or run["head_repository_id"] != run["repository_id"]:
        return False
    if run["event"] not in OWN_EVENTS or not run["head_branch"]:
        return False
    branch = _base(run["head_branch"]) if run["event"] == "merge_group" else run["head_branch"]
    return branch is not None and is_trusted_branch(branch, default_branch=default_branch, patterns=patterns)


def _base(branch: str) -> str | None:
    """Return the base branch in a merge group's branch name."""
    base, slash, last = branch.removeprefix(QUEUE).rpartition("/")
    return base if branch.startswith(QUEUE) and slash and last.startswith("pr-") else None
