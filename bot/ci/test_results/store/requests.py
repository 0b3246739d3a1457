"""What asks for the tasks that compare the results of several jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bot.db.transaction import Transaction

VERDICTS_SOON, VERDICTS_AT_LATEST = 10.0, 120.0  # seconds in which further results of the commit are awaited
LOSSES_TOGETHER, LOSSES_AT_LATEST = 120.0, 900.0  # seconds in which further jobs are awaited


def request_verdicts(tx: Transaction, shas: Iterable[str]) -> None:
    """Have the failing tests of some commits judged again."""
    for sha in shas:
        if sha:
            tx.enqueue("test_verdicts", sha, delay=VERDICTS_SOON, max_wait=VERDICTS_AT_LATEST)


def request_losses(tx: Transaction, repository_id: int, run_id: int) -> None:
    """Have a run compared with the one before it; it is unknown when runs of another CI are complete."""
    if run_id > 0:
        tx.enqueue(
            "test_losses", f"{repository_id}/{run_id}", delay=LOSSES_TOGETHER, max_wait=LOSSES_AT_LATEST
        )
