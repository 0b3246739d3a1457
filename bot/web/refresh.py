"""Automatic refresh of pages: while something runs, or as ?refresh= says; readers can always turn it off."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from bot.core.errors import Rejected
from bot.web import parameters

if TYPE_CHECKING:
    from aiohttp import web

NAME, OFF = "refresh", "off"
FASTEST, SLOWEST = 15, 3_600  # seconds
SUGGESTED = 60  # seconds, where a reader turns it on
FAILED = 30  # seconds until a failed page is tried again


@dataclass(frozen=True, kw_only=True)
class Refresh:
    """How one page refreshes."""

    seconds: int  # 0: never
    chosen: str  # what its address says: seconds, `off`, or nothing
    toggle: str  # a link to the same page with refreshing turned on or off

    @property
    def rest(self) -> str:
        """The suffix of queries in links to the same page, so that they keep the choice."""
        return f"&{NAME}={self.chosen}" if self.chosen else ""


def of(request: web.Request, *, default: int = 0) -> Refresh:
    """Return what the address says, else every `default` seconds, 0 for never; raises Rejected 400."""
    chosen = request.query.get(NAME, "").strip()
    seconds = parameters.number(chosen)
    if chosen not in {"", OFF} and not FASTEST <= seconds <= SLOWEST:
        detail = f"{NAME} must be {OFF} or a whole number of seconds from {FASTEST} to {SLOWEST:,}"
        raise Rejected(400, "invalid_parameter", detail)
    return _made(request, chosen=chosen, seconds=seconds if chosen else default, default=default)


def of_failure(request: web.Request) -> Refresh:
    """Return when a failed page is tried again: nobody watches over a screen on a wall."""
    off = request.query.get(NAME) == OFF
    return _made(request, chosen=OFF if off else "", seconds=0 if off else FAILED, default=FAILED)


def _made(request: web.Request, *, chosen: str, seconds: int, default: int) -> Refresh:
    """Return the setting and the link that toggles it, with the shortest query."""
    wanted = (OFF if default else "") if seconds else ("" if default else str(SUGGESTED))
    kept = [(name, value) for name, value in request.query.items() if name != NAME]
    query = urlencode([*kept, *([(NAME, wanted)] if wanted else [])], errors="replace")
    return Refresh(seconds=seconds, chosen=chosen, toggle=f"?{query}")
