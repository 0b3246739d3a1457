"""Who was refused too often? Callers that are not listed are counted by address; listed ones never are."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from aiohttp import web
from cachetools import TTLCache

from bot.errors import Rejected

if TYPE_CHECKING:
    from bot.clock import Clock

WINDOW = 60  # seconds
MOST_ADDRESSES = 10_000
STRANGERS = frozenset({"invalid_token", "not_listed"})  # refusals that say: we do not know you


class Refusals:
    """Counts refusals by address over the last minute.

    A caller is asked who it is before it is counted: listed backends share the addresses of hosted runners with
    everybody else, and must get through whatever the others do.
    """

    def __init__(self, clock: Clock, *, most: int) -> None:
        self._clock = clock
        self._most = most
        self._times: TTLCache[str, deque[float]] = TTLCache(MOST_ADDRESSES, WINDOW, timer=self._now)

    def answer(self, request: web.Request, refusal: Rejected) -> Rejected:
        """Return what to tell a refused caller: why, or that it should stop for a while."""
        if refusal.code not in STRANGERS:
            return refusal
        address, now = request.remote or "", self._now()
        times = self._times.get(address) or deque(maxlen=self._most)
        if len(times) == self._most and times[0] > now - WINDOW:
            wait = max(int(times[0] + WINDOW - now), 1)
            detail = (
                f"{self._most} calls a minute were refused already: come back in {wait} s. {refusal.detail}"
            )
            return Rejected(429, "rate_limited", detail, headers={"Retry-After": str(wait)})
        times.append(now)
        self._times[address] = times
        return refusal

    def _now(self) -> float:
        return self._clock.now() / 1000


REFUSALS: web.AppKey[Refusals] = web.AppKey("refusals", Refusals)
