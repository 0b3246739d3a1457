"""Transactions that tasks share: what several of them write at the same moment costs one commit.

A commit waits for the disk, and each writes the same pages of the queue and its indexes once more. Twenty tasks that
run at once make most of their small changes at about the same time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from bot.db.group_commit import GroupCommit
from bot.db.transaction import Transaction

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

T = TypeVar("T")
Work = Callable[[Transaction], Awaitable[T]]
MOST = 50  # pieces of work in one transaction


class SharedTransactions:
    """Runs work in transactions, as many pieces in each as came while the one before was running."""

    def __init__(self, transaction: Callable[[], AbstractAsyncContextManager[Transaction]]) -> None:
        self._transaction = transaction
        self._group: GroupCommit[Work[Any], Any] = GroupCommit(
            self._write, max_items=MOST, max_size=MOST, size=lambda _work: 1, answer_within=None
        )

    async def run(self, work: Work[T]) -> T:
        """Return what `work` returns, once it is committed; raises what it raises, and nothing of it is stored then.

        It does nothing but read and write rows. It runs once more, alone, where other work in its transaction has
        failed; and what it logged would carry the names of another's task.
        """
        return cast("T", await self._group.put(work))

    async def drain(self) -> None:
        """Return once nothing is being written."""
        await self._group.drain()

    async def _write(self, pieces: Sequence[Work[Any]]) -> list[Any]:
        async with self._transaction() as tx:
            return [await work(tx) for work in pieces]
