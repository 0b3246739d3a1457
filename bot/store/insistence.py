"""How is something stored that must not be lost because the database refuses it for a moment?"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from bot.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bot.clock import Clock

T = TypeVar("T")
WAITS = (1.0, 5.0, 15.0)  # seconds


async def insist(clock: Clock, write: Callable[[], Awaitable[T]]) -> T:
    """Return what `write` returns, tried four times; raises StoreUnavailable when the last was in vain, too."""
    for wait in WAITS:
        try:
            return await write()
        except StoreUnavailable:
            await clock.sleep(wait)
    return await write()
