"""Before a commit: what issues and pull requests that changed ask for."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from bot.ci.disabled import issue_text, pull_commits, pull_rows, rows

if TYPE_CHECKING:
    from bot.db.transaction import Changed, Transaction

TOGETHER = 2.0  # seconds: many issues may change at once
PREFIXES = (f"{issue_text.DISABLED} ", f"{issue_text.UNSTABLE} ")


async def note(tx: Transaction, changed: Changed) -> None:
    """Request the lists that may have changed, and the commits that may close issues."""
    await _issues(tx, changed)
    await _pulls(tx, changed)


async def _issues(tx: Transaction, changed: Changed) -> None:
    """Request the lists of repositories whose issues about CI have changed."""
    issues = changed.get("issue", ())
    concerned = {row["repository_id"] for row in issues if (row["title"] or "").startswith(PREFIXES)}
    others = {
        (row["repository_id"], row["number"]) for row in issues if row["repository_id"] not in concerned
    }
    keys = {(repository, number) for repository, number in others if number is not None}
    if keys:
        concerned |= {repository for repository, _ in await rows.known_numbers(tx, keys)}
    for identifier in sorted(concerned):
        tx.enqueue("disabled", str(identifier), delay=TOGETHER)


async def _pulls(tx: Transaction, changed: Changed) -> None:
    """Request the commits of pull requests with a new head, where something is disabled."""
    pulls: defaultdict[int, set[int]] = defaultdict(set)
    for row in changed.get("pull_request", ()):
        if row["state"] == "open" and row["number"] is not None:
            pulls[row["repository_id"]].add(row["number"])
    for repository_id, numbers in sorted(pulls.items()):
        for pull in await pull_rows.unread(tx, repository_id, numbers):
            pull_commits.request(tx, repository_id, pull["number"])
