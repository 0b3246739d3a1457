"""How is something made once that GitHub would make twice? It is announced, and made in bounded time."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from bot.errors import GitHubRefused, RetryLater
from bot.store import intents

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from bot.context import Context
    from bot.store import Transaction
    from bot.store.intents import Intent


@contextlib.asynccontextmanager
async def making(
    context: Context, begin: Callable[[Transaction], Awaitable[Intent]]
) -> AsyncIterator[Intent]:
    """Let the block look for something and make it while no other process does; `begin` announces it.

    Raises RetryLater while another may be at it, or when it takes too long. Whoever is cut off leaves the intent:
    GitHub may still be at what was asked of it.
    """
    async with context.store.transaction() as tx:
        intent = await begin(tx)
    try:
        async with asyncio.timeout(intents.CALL):
            yield intent
    except TimeoutError as error:
        raise RetryLater(f"GitHub did not answer within {intents.CALL:.0f} s") from error
    except (GitHubRefused, RetryLater):
        await _end(context, intent)
        raise
    await _end(context, intent)


async def _end(context: Context, intent: Intent) -> None:
    async with context.store.transaction() as tx:
        await intents.end(tx, intent)
