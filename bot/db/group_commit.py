"""Group commit: what arrives, or what tasks write, while one commit runs is stored together by the next."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from bot.core.errors import StoreUnavailable
from bot.db.transaction import Transaction

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

Item = TypeVar("Item")
Result = TypeVar("Result")

ANSWER_WITHIN = 8.0  # seconds until a caller is answered, whatever the items before its own wait for
T = TypeVar("T")
Work = Callable[[Transaction], Awaitable[T]]
MOST = 50  # pieces of work in one transaction


class GroupCommit(Generic[Item, Result]):
    """Writes items in batches, one batch at a time. `write` stores all of its items or none, one result each."""

    def __init__(
        self,
        write: Callable[[Sequence[Item]], Awaitable[Sequence[Result]]],
        *,
        max_items: int,
        max_size: int,
        size: Callable[[Item], int],
        pause: float | None = None,
        answer_within: float | None = ANSWER_WITHIN,
    ) -> None:
        self._write = write
        self._answer_within = answer_within  # seconds; None: however long it takes
        self._pause = pause  # seconds between two batches under load; None: no pause
        self._max_items = max_items
        self._max_size = max_size  # of a batch, as `size` measures its items
        self._size = size
        self._waiting: list[tuple[Item, asyncio.Future[Result]]] = []
        self._unanswered: deque[tuple[float, asyncio.Future[Result]]] = (
            deque()
        )  # and by when they are answered
        self._deadline: asyncio.TimerHandle | None = None  # of the first of them
        self._writer: asyncio.Task[None] | None = None

    def put(self, item: Item) -> asyncio.Future[Result]:
        """Store an item; the future has its result after the commit.

        Its error is StoreUnavailable where it was not stored, or where the database did not answer.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        self._waiting.append((item, future))
        if self._answer_within is not None:
            self._limit(future, self._answer_within)
        if self._writer is None:
            self._writer = asyncio.create_task(self._write_batches())
        return future

    def _limit(self, future: asyncio.Future[Result], seconds: float) -> None:
        loop = asyncio.get_running_loop()
        while self._unanswered and self._unanswered[0][1].done():
            self._unanswered.popleft()
        self._unanswered.append((loop.time() + seconds, future))
        if self._deadline is None:
            self._deadline = loop.call_later(seconds, self._refuse_late)

    async def drain(self) -> None:
        """Wait until everything that waits is stored."""
        while self._writer is not None:
            await asyncio.shield(self._writer)

    def _refuse_late(self) -> None:
        """Answer those that have waited for too long, by one timer for all: one each would cost more than the item."""
        loop = asyncio.get_running_loop()
        self._deadline = None
        while self._unanswered:
            at, future = self._unanswered[0]
            if not future.done():
                if at > loop.time():
                    self._deadline = loop.call_at(at, self._refuse_late)
                    return
                reason = f"the database has kept others waiting for over {self._answer_within:g} s"
                future.set_exception(StoreUnavailable(reason))
            self._unanswered.popleft()

    async def _write_batches(self) -> None:
        try:
            while batch := self._next_batch():
                outcomes = await self._outcomes([item for item, _ in batch])
                for (_, future), outcome in zip(batch, outcomes, strict=True):
                    if future.done():
                        continue
                    if isinstance(outcome, BaseException):
                        future.set_exception(outcome)
                    else:
                        future.set_result(outcome)
                if self._waiting and self._pause is not None:
                    await asyncio.sleep(0)  # until the answers are sent
                    await asyncio.sleep(self._pause)  # with 0, until what has come meanwhile is read
        finally:
            self._writer = None

    def _next_batch(self) -> list[tuple[Item, asyncio.Future[Result]]]:
        """Take the first item and those that fit beside it: small ones overtake a large one that has to wait."""
        batch: list[tuple[Item, asyncio.Future[Result]]] = []
        rest, total = [], 0
        for item, future in self._waiting:
            if future.done():  # its caller has been refused
                continue
            size = self._size(item)
            if not batch or (total + size <= self._max_size and len(batch) < self._max_items):
                batch.append((item, future))
                total += size
            else:
                rest.append((item, future))
        self._waiting = rest
        return batch

    async def _outcomes(self, items: Sequence[Item]) -> Sequence[Result | BaseException]:
        """Write items; where one of them breaks the batch, each is written alone, so that only its caller fails."""
        # every error belongs to the callers: nothing else would end their waiting
        (written,) = await asyncio.gather(self._write(items), return_exceptions=True)
        if not isinstance(written, BaseException):
            return written
        if isinstance(written, StoreUnavailable) or len(items) == 1:
            return [written] * len(items)
        return [outcome for item in items for outcome in await self._outcomes([item])]


class SharedTransactions:
    """Runs work in transactions; what arrives while one runs shares the next."""

    def __init__(self, transaction: Callable[[], AbstractAsyncContextManager[Transaction]]) -> None:
        self._transaction = transaction
        self._group: GroupCommit[Work[Any], Any] = GroupCommit(
            self._write, max_items=MOST, max_size=MOST, size=lambda _work: 1, answer_within=None
        )

    async def run(self, work: Work[T]) -> T:
        """Return what `work` returns, once committed; whatever it raises is raised here, and nothing is stored then.

        It does nothing but read and write rows. It runs once more, alone, where other work in its transaction has
        failed; and what it logged would carry the names of another's task.
        """
        return cast("T", await self._group.put(work))

    async def drain(self) -> None:
        """Wait until nothing is being written."""
        await self._group.drain()

    async def _write(self, pieces: Sequence[Work[Any]]) -> list[Any]:
        async with self._transaction() as tx:
            return [await work(tx) for work in pieces]
