"""What still goes on after a request was answered? Tasks that are waited for, never forgotten."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Coroutine


class Background:
    """Work under way, and what of it failed."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._failures: list[BaseException] = []

    def spawn(self, work: Coroutine[object, object, None]) -> None:
        """Start the work; its failure is raised by `settled` or `close`."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    async def settled(self) -> None:
        """Return when nothing is under way any more, also nothing that the work itself started."""
        while self._tasks:
            await asyncio.wait(self._tasks)
            await asyncio.sleep(0)  # the done callbacks run before the set is looked at again
        self._raise()

    async def close(self) -> None:
        """Cancel what is under way and wait until it is gone."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)
        self._raise()

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (failure := task.exception()):
            self._failures.append(failure)

    def _raise(self) -> None:
        if self._failures:
            raise self._failures.pop(0)
