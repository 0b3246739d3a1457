"""Were culprits reverted or fixed later, by a commit that says so? The measure of how often searches are right."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from bot.ci.trunk import branch_history
from bot.oot.culprits import rows, rows_mended

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bot.db.transaction import Transaction
    from bot.oot.culprits.rows_mended import LaterCommit
    from bot.oot.culprits.tables import BisectRow

WITHIN = 60 * 86_400_000  # milliseconds after a find
SHORT = 10  # digits of a SHA that name a commit in a message


class Measures(NamedTuple):
    """How searches did."""

    found: int  # those that named one commit
    mended: int  # of these culprits
    median_hours: float | None  # from the request to the find


async def note_mended(tx: Transaction, repo: str) -> None:
    """Note of a repository's culprits which later commit reverts or fixes them."""
    branch = await branch_history.find_branch(tx, repo, "")
    if branch is None:
        return
    identifier = branch.repository["repository_id"]
    for search in await rows.found_since(tx, identifier, tx.now - WITHIN):
        if search["mended_sha"] is None:
            later = await rows_mended.later_commits(tx, search)
            if mending := find_mending(search, later):
                await rows.change_search(tx, search["id"], mended_sha=mending)


def find_mending(search: BisectRow, later: Iterable[LaterCommit]) -> str | None:
    """Return the first commit that says that it reverts or fixes the culprit."""
    sha, number = (search["culprit_sha"] or "")[:SHORT], search["pr_number"]
    title = (search["title"] or "").removesuffix(f" (#{number})").casefold()
    for one in later:
        words, message = one.title.casefold(), one.message.casefold()
        reverts = words.startswith("revert") and (bool(title) and title in words)
        names_sha = bool(sha) and (f"reverts commit {sha}" in message or f"fixes {sha}" in message)
        names_pull = bool(number) and any(
            f"{verb} #{number}" in f"{words} {message}"
            and not f"{words} {message}".split(f"{verb} #{number}")[1][:1].isdigit()
            for verb in ("reverts", "revert")
        )
        if reverts or names_sha or names_pull:
            return one.sha
    return None


async def read_measures(tx: Transaction, repository_id: int | None) -> Measures:
    """Return how the searches of a year did."""
    found = await rows.found_since(tx, repository_id, tx.now - rows.RECENT)
    hours = sorted((row["ended_at"] - row["created_at"]) / 3_600_000 for row in found if row["ended_at"])
    middle = len(hours) // 2
    median = None
    if hours:
        median = hours[middle] if len(hours) % 2 else (hours[middle - 1] + hours[middle]) / 2
    return Measures(
        found=len(found), mended=sum(row["mended_sha"] is not None for row in found), median_hours=median
    )
