"""Who was refused too often? Callers that are not listed are counted by address; listed ones never are."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from aiohttp import web
from cachetools import TTLCache

from bot.errors import Rejected
from bot.web.address import caller

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.clock import Clock
    from bot.parse import Network

WINDOW = 60  # seconds
MOST_ADDRESSES = 10_000
STRANGERS = frozenset({"invalid_token", "not_listed"})  # refusals that say: we do not know you


class Refusals:
    """Counts refusals by address over the last minute.

    A caller is asked who it is before it is counted: listed backends share the addresses of hosted runners with
    everybody else, and must get through whatever the others do.
    """

    def __init__(self, clock: Clock, *, most: int, proxies: Sequence[Network] = ()) -> None:
        self._clock = clock
        self._most = most
        self._proxies = proxies
        self._times: TTLCache[str, deque[float]] = TTLCache(MOST_ADDRESSES, WINDOW, timer=self._now)

    def answer(self, request: web.Request, refusal: Rejected) -> Rejected:
        """Return what to tell a refused caller: why, or that it should stop for a while."""
        wait = self._count(request) if refusal.code in STRANGERS else 0
        return self._too_many(wait, refusal.detail) if wait else refusal

    def ignored(self, request: web.Request) -> None:
        """Count a caller that is ignored kindly; raises Rejected 429 when it should stop for a while."""
        if wait := self._count(request):
            raise self._too_many(wait, "it is not listed here")

    def _count(self, request: web.Request) -> int:
        """Count a call that comes to nothing; returns the seconds until the next one is answered, 0 for now."""
        address, now = caller(request, self._proxies), self._now()
        times = self._times.get(address) or deque(maxlen=self._most)
        if len(times) == self._most and times[0] > now - WINDOW:
            return max(int(times[0] + WINDOW - now), 1)
        times.append(now)
        self._times[address] = times
        return 0

    def _too_many(self, wait: int, why: str) -> Rejected:
        detail = f"{self._most} calls a minute were refused already: come back in {wait} s. {why}"
        return Rejected(429, "rate_limited", detail, headers={"Retry-After": str(wait)})

    def _now(self) -> float:
        return self._clock.now() / 1000


REFUSALS: web.AppKey[Refusals] = web.AppKey("refusals", Refusals)
