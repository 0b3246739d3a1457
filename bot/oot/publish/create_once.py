"""Creation of objects that GitHub would create twice: check runs and comments.

An intent is recorded before the call. If it was never ended, because a process died, lost its lease or got no answer,
the next process waits until no call can still be in progress, then looks for the object before creating it.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.core.errors import GitHubRefused, GitHubUnavailable, RetryLater
from bot.oot.publish.intent_rows import end_intent, lose_intent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.oot.publish.intent_rows import Intent

CALL_TIMEOUT = 45.0  # seconds for all calls that find or create one object


@dataclass(kw_only=True)
class Creation:
    """One attempt to create an object."""

    intent: Intent
    now: int  # epoch milliseconds
    requested: bool = False  # the request was sent to GitHub

    @property
    def fresh(self) -> bool:
        """Whether it was never tried before: there is nothing to look for."""
        return self.intent.fresh

    async def create(self, request: Callable[[], Awaitable[int]]) -> int:
        """Create it; raises RetryLater while GitHub may still be executing an earlier request without an answer."""
        if self.intent.lost_until > self.now:
            wait = (self.intent.lost_until - self.now) / 1000
            raise RetryLater("GitHub may still be executing an earlier request", after=wait)
        self.requested = True
        return await request()


@contextlib.asynccontextmanager
async def creating(
    context: Context, begin: Callable[[Transaction], Awaitable[Intent]]
) -> AsyncIterator[Creation]:
    """Let the block look for an object and create it while no other process does; `begin` records the intent.

    Raises RetryLater while another process may be creating it, and on a timeout. On cancellation the intent stays:
    GitHub may still be executing the request.
    """
    async with context.store.transaction() as tx:
        intent = await begin(tx)
        one = Creation(intent=intent, now=tx.now)
    try:
        async with asyncio.timeout(CALL_TIMEOUT):
            yield one
    except TimeoutError as error:
        raise RetryLater(f"GitHub did not answer within {CALL_TIMEOUT:.0f} s") from error
    except (GitHubRefused, RetryLater) as error:
        lost = one.requested and isinstance(error, GitHubUnavailable)
        async with context.store.transaction() as tx:
            await (lose_intent if lost else end_intent)(tx, intent)
        raise
    async with context.store.transaction() as tx:
        await end_intent(tx, intent)
