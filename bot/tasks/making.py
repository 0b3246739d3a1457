"""How is something made once that GitHub would make twice? It is announced, and made in bounded time."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.errors import GitHubAway, GitHubRefused, RetryLater
from bot.store import intents

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from bot.context import Context
    from bot.store import Transaction
    from bot.store.intents import Intent


@dataclass(kw_only=True)
class Making:
    """What this process alone may make now."""

    intent: Intent
    now: int  # epoch milliseconds
    asked: bool = False  # GitHub was asked for it

    @property
    def fresh(self) -> bool:
        """Whether nobody meant to make it before: it need not be looked for."""
        return self.intent.fresh

    async def make(self, create: Callable[[], Awaitable[int]]) -> int:
        """Make it; raises RetryLater while GitHub may still make what somebody asked for who got no answer."""
        if self.intent.lost_until > self.now:
            wait = (self.intent.lost_until - self.now) / 1000
            raise RetryLater("GitHub may still be making what it was asked for before", after=wait)
        self.asked = True
        return await create()


@contextlib.asynccontextmanager
async def making(
    context: Context, begin: Callable[[Transaction], Awaitable[Intent]]
) -> AsyncIterator[Making]:
    """Let the block look for something and make it while no other process does; `begin` announces it.

    Raises RetryLater while another may be at it, or when it takes too long. Whoever is cut off leaves the intent:
    GitHub may still be at what was asked of it.
    """
    async with context.store.transaction() as tx:
        intent = await begin(tx)
        one = Making(intent=intent, now=tx.now)
    try:
        async with asyncio.timeout(intents.CALL):
            yield one
    except TimeoutError as error:
        raise RetryLater(f"GitHub did not answer within {intents.CALL:.0f} s") from error
    except (GitHubRefused, RetryLater) as error:
        lost = one.asked and isinstance(error, GitHubAway)
        await _say(context, intents.lose if lost else intents.end, intent)
        raise
    await _say(context, intents.end, intent)


async def _say(
    context: Context, what: Callable[[Transaction, Intent], Awaitable[None]], intent: Intent
) -> None:
    async with context.store.transaction() as tx:
        await what(tx, intent)
