"""A rate limit on refusals, by address: unlisted callers are counted, listed backends never are."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from aiohttp import web
from cachetools import TTLCache

from bot.core.errors import Rejected
from bot.web.client_ip import client_ip

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.core.clock import Clock
    from bot.core.setting_types import Network

WINDOW = 60  # seconds
IGNORED_MOST = 600  # deliveries a minute of an address from which nothing follows
MOST_ADDRESSES = 10_000
COUNTED = frozenset({"invalid_token", "not_listed"})  # refusals of unknown callers


class RefusalLimiter:
    """Counts refusals by address over the last minute.

    A caller is counted only after it could not be authenticated: listed backends share the addresses of hosted runners
    with all others, and must get through whatever the others do.
    """

    def __init__(self, clock: Clock, *, most: int, proxies: Sequence[Network] = ()) -> None:
        self._clock = clock
        self._most = most
        self._proxies = proxies
        self._times: TTLCache[str, deque[float]] = TTLCache(MOST_ADDRESSES, WINDOW, timer=self._now)

    def answer(self, request: web.Request, refusal: Rejected) -> Rejected:
        """Return the refusal as it is, or 429 once the address was refused too often."""
        wait = self._count(request) if refusal.code in COUNTED else 0
        return self._too_many(wait, refusal.detail) if wait else refusal

    def ignored(self, request: web.Request, why: str = "it is not listed here") -> None:
        """Count a caller that is answered 200 and ignored; raises Rejected 429 after too many."""
        if wait := self._count(request):
            raise self._too_many(wait, why)

    def _count(self, request: web.Request) -> int:
        """Count a refused call; returns the seconds until the next one is answered, 0 for now."""
        address, now = client_ip(request, self._proxies), self._now()
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


IGNORED_LIMITER: web.AppKey[RefusalLimiter] = web.AppKey("ignored_limiter", RefusalLimiter)
REFUSAL_LIMITER: web.AppKey[RefusalLimiter] = web.AppKey("refusal_limiter", RefusalLimiter)
