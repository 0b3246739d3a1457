"""A limit on log lines about refused and failed requests, by kind and minute: strangers must not fill the disk."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING

import structlog
from aiohttp import web

from bot.core.log_output import ErrorLog

if TYPE_CHECKING:
    from bot.core.clock import Clock
    from bot.core.errors import Rejected, StoreUnavailable

MOST = 10  # lines a minute of one kind
MINUTE = 60_000  # milliseconds

log = structlog.get_logger("bot.web")


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
        minute = self._clock.now() // MINUTE
        if minute != self._minute:
            self._minute, self._logged = minute, Counter()
        self._logged[kind] += 1
        if self._logged[kind] > MOST:
            self._left_out[kind] += 1
            log.debug(event, **more)
            return
        left_out = self._left_out.pop(kind, 0)
        log.log(level, event, **more, **({"not_logged_before": left_out} if left_out else {}))


LOG_LIMITER: web.AppKey[LogLimiter] = web.AppKey("log_limiter", LogLimiter)
