"""How many refusals are logged? A few of each kind a minute: most are strangers', who must not fill the disk."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import structlog
from aiohttp import web

if TYPE_CHECKING:
    from bot.clock import Clock
    from bot.errors import Rejected

MOST = 10  # lines a minute of one code
MINUTE = 60_000  # milliseconds

log = structlog.get_logger("bot.web")


class Remarks:
    """Logs refusals; those beyond the limit are counted in the next line of their code, and logged for who debugs."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._minute = 0
        self._logged: Counter[str] = Counter()
        self._left_out: Counter[str] = Counter()

    def refused(self, error: Rejected) -> None:
        """Log that a caller was refused, and why."""
        minute = self._clock.now() // MINUTE
        if minute != self._minute:
            self._minute, self._logged = minute, Counter()
        self._logged[error.code] += 1
        if self._logged[error.code] > MOST:
            self._left_out[error.code] += 1
            log.debug("refused", status=error.status, code=error.code)
            return
        left_out = self._left_out.pop(error.code, 0)
        more = {"not_logged_before": left_out} if left_out else {}
        log.info("refused", status=error.status, code=error.code, **more)


REMARKS: web.AppKey[Remarks] = web.AppKey("remarks", Remarks)
