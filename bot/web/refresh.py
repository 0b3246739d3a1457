"""When does a page load itself anew? While something runs, or as its address says; it can always be told not to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from bot.errors import Rejected
from bot.web import parameters

if TYPE_CHECKING:
    from aiohttp import web

NAME, OFF = "refresh", "off"
FASTEST, SLOWEST = 15, 3_600  # seconds
WALL = 60  # seconds, of a page that is kept open
FAILED = 30  # seconds until a page that could not be made is tried again


@dataclass(frozen=True, kw_only=True)
class Refresh:
    """How one page is kept fresh."""

    seconds: int  # 0: it stays as it is
    chosen: str  # what its address says: seconds, `off`, or nothing
    turn: str  # leads to the same page, kept fresh if this one is not, else as it is

    @property
    def rest(self) -> str:
        """What links to the same page add to their query."""
        return f"&{NAME}={self.chosen}" if self.chosen else ""


def of(request: web.Request, *, unasked: int = 0) -> Refresh:
    """Return what the address says, or else every `unasked` seconds, 0 for never; raises Rejected 400."""
    chosen = request.query.get(NAME, "").strip()
    seconds = parameters.number(chosen)
    if chosen not in {"", OFF} and not FASTEST <= seconds <= SLOWEST:
        said = f"{NAME} must be {OFF} or a whole number of seconds from {FASTEST} to {SLOWEST:,}"
        raise Rejected(400, "invalid_parameter", said)
    return _made(request, chosen=chosen, seconds=seconds if chosen else unasked, unasked=unasked)


def of_failure(request: web.Request) -> Refresh:
    """Return when a page that could not be made is tried again: nobody stands beside a screen on a wall."""
    off = request.query.get(NAME) == OFF
    return _made(request, chosen=OFF if off else "", seconds=0 if off else FAILED, unasked=FAILED)


def _made(request: web.Request, *, chosen: str, seconds: int, unasked: int) -> Refresh:
    """Return the setting with the link that turns it on or off, whose query is as short as can be."""
    wanted = (OFF if unasked else "") if seconds else ("" if unasked else str(WALL))
    kept = [(name, value) for name, value in request.query.items() if name != NAME]
    query = urlencode([*kept, *([(NAME, wanted)] if wanted else [])], errors="replace")
    return Refresh(seconds=seconds, chosen=chosen, turn=f"?{query}")
