"""Pushes that are about a pull request: its merge bot pushes `ciflow/trunk/<number>` to have the head validated.

Results of such a push count for the pull request's head, beside those of the pull request's own dispatches. A push
that names a closed pull request, or a commit that was never its head, is a push as any other: it counts for nothing
there, whoever pushed it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.core.errors import RetryLater
from bot.ingest import inbox, record_reads
from bot.oot.results.store import dispatches

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.ingest.rows import PullRow

ARRIVES_WITHIN = 60_000  # milliseconds: GitHub sends the event of a new head and that of its tag in any order
ASK_AGAIN = 5.0  # seconds
MOST_DIGITS = 9


def named_number(patterns: Iterable[str], ref: str) -> int | None:
    """Return the number of the pull request that a ref names."""
    for pattern in patterns:
        before, _, after = pattern.partition("{number}")
        number = ref.removeprefix(before).removesuffix(after)
        if ref == before + number + after and number.isascii() and number.isdigit():
            return int(number) if len(number) <= MOST_DIGITS and number[0] != "0" else None
    return None


async def find_pull(
    tx: Transaction, settings: Settings, guid: str, *, repo: str, ref: str, sha: str
) -> PullRow | None:
    """Return the open pull request that a push is about, locked: its ref names it, its commit is or was its head.

    Raises RetryLater while the commit may still turn out to be one.
    """
    number = named_number(settings.pull_refs, ref)
    if number is None:
        return None
    await dispatches.lock_pull(tx, repo, number)
    pull = await record_reads.get(tx, repo, number)
    if pull is not None and pull["state"] != "open":
        return None
    if pull is not None and (pull["head_sha"] == sha or sha in await record_reads.heads(tx, pull)):
        return pull
    delivery = await inbox.find(tx, guid)
    if delivery is not None and tx.now - delivery["received_at"] < ARRIVES_WITHIN:
        raise RetryLater(f"{ref} may name a head that is not known yet", after=ASK_AGAIN)
    return None
