"""Limits for strangers, by IP address: how many refusals they get, and how many log lines their requests may cause."""

from __future__ import annotations

import logging
from collections import Counter, deque
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING

import structlog
from aiohttp import web
from cachetools import TTLCache

from bot.core.errors import Rejected
from bot.core.log_output import ErrorLog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.core.clock import Clock
    from bot.core.errors import StoreUnavailable
    from bot.core.setting_types import Network

SUBSCRIBER_BITS = 64  # of an IPv6 address: subscribers choose the rest themselves
REFUSAL_WINDOW = 60  # seconds
IGNORED_MOST = 600  # deliveries a minute of an address from which nothing follows
MOST_ADDRESSES = 10_000
COUNTED_STATUSES = frozenset({"invalid_token", "not_listed"})  # refusals of unknown callers
MOST_LOG_LINES = 10  # lines a minute of one kind
LOG_WINDOW = 60_000  # milliseconds

log = structlog.get_logger("bot.web")


def client_ip(request: web.Request, trusted: Sequence[Network]) -> str:
    """Return the client's address, of IPv6 its /64.

    X-Forwarded-For is read from its end, only as far as trusted proxies wrote it: senders can forge the rest.
    """
    address, _ = _walk(request, trusted)
    if isinstance(address, IPv6Address):
        return str(IPv6Network((address, SUBSCRIBER_BITS), strict=False))
    return str(address or request.remote or "")


def is_shared(request: web.Request, trusted: Sequence[Network]) -> bool:
    """Whether that address says that it forwards for another one: a proxy that is not listed, or a forgery."""
    return bool(_walk(request, trusted)[1])


class RefusalLimiter:
    """Counts refusals by address over the last minute.

    A caller is counted only after it could not be authenticated: listed backends share the addresses of hosted runners
    with all others, and must get through whatever the others do.
    """

    def __init__(self, clock: Clock, *, most: int, proxies: Sequence[Network] = ()) -> None:
        self._clock = clock
        self._most = most
        self._proxies = proxies
        self._times: TTLCache[str, deque[float]] = TTLCache(MOST_ADDRESSES, REFUSAL_WINDOW, timer=self._now)

    def answer(self, request: web.Request, refusal: Rejected) -> Rejected:
        """Return the refusal as it is, or 429 once the address was refused too often."""
        wait = self._count(request) if refusal.code in COUNTED_STATUSES else 0
        return self._too_many(wait, refusal.detail) if wait else refusal

    def ignored(self, request: web.Request, why: str = "it is not listed here") -> None:
        """Count a caller that is answered 200 and ignored; raises Rejected 429 after too many."""
        if wait := self._count(request):
            raise self._too_many(wait, why)

    def _count(self, request: web.Request) -> int:
        """Count a refused call; returns the seconds until the next one is answered, 0 for now."""
        address, now = client_ip(request, self._proxies), self._now()
        times = self._times.get(address) or deque(maxlen=self._most)
        if len(times) == self._most and times[0] > now - REFUSAL_WINDOW:
            return max(int(times[0] + REFUSAL_WINDOW - now), 1)
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


class LogLimiter:
    """Logs refusals; those beyond the limit are logged at debug level and counted in the next line of their kind."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._minute = 0
        self._logged: Counter[str] = Counter()
        self._left_out: Counter[str] = Counter()
        self._errors = ErrorLog(log, now=lambda: clock.now() / 1000)

    def refused(self, error: Rejected) -> None:
        """Log that a caller was refused, and why."""
        self._log(logging.INFO, "refused", error.code, status=error.status, code=error.code)

    def unavailable(self, error: StoreUnavailable) -> None:
        """Log that a caller was refused because the database cannot be used."""
        self._log(logging.WARNING, "store unavailable", "store_unavailable", reason=str(error))

    def failed(self, error: BaseException) -> None:
        """Log the traceback of a bug of ours."""
        self._errors.write("a request failed", error)

    def _log(self, level: int, event: str, kind: str, **more: object) -> None:
        minute = self._clock.now() // LOG_WINDOW
        if minute != self._minute:
            self._minute, self._logged = minute, Counter()
        self._logged[kind] += 1
        if self._logged[kind] > MOST_LOG_LINES:
            self._left_out[kind] += 1
            log.debug(event, **more)
            return
        left_out = self._left_out.pop(kind, 0)
        log.log(level, event, **more, **({"not_logged_before": left_out} if left_out else {}))


LOG_LIMITER: web.AppKey[LogLimiter] = web.AppKey("log_limiter", LogLimiter)


def _walk(
    request: web.Request, trusted: Sequence[Network]
) -> tuple[IPv4Address | IPv6Address | None, list[str]]:
    """Return the first address from the end that is no trusted proxy's, and the hops before it."""
    address = _parse_address(request.remote or "")
    hops = ",".join(request.headers.getall("X-Forwarded-For", [])).split(",")
    while address is not None and hops and any(address in network for network in trusted):
        before = _parse_address(hops[-1])
        if before is None:
            break
        address = before
        hops.pop()
    return address, [hop for hop in hops if hop.strip()]


def _parse_address(text: str) -> IPv4Address | IPv6Address | None:
    """Return an address, with or without a port, None for anything else; IPv4-mapped IPv6 is IPv4."""
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
