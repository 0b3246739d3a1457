"""How many calls does an installation have left? GitHub's hourly budget and its headers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.demo.github.accounts import App, Token
from bot.demo.github.refusals import Refused

if TYPE_CHECKING:
    from collections.abc import Callable

HOUR = 3_600_000  # milliseconds


class Limits:
    """The primary rate limit: so many calls in an hour for each App and each installation."""

    def __init__(self, now: Callable[[], int], per_hour: int = 5_000) -> None:
        self.per_hour = per_hour
        self._now = now
        self._used: dict[int, tuple[int, int]] = {}  # whose: (window's end, calls)

    def check(self, caller: App | Token) -> None:
        """Refuse a caller that has used its hour up."""
        ends, used = self._window(caller)
        if used >= self.per_hour:
            raise Refused(403, f"API rate limit exceeded for installation; try again at {ends // 1000}")

    def count(self, caller: App | Token | None, *, free: bool) -> dict[str, str]:
        """Count a call, unless it was free, and return the headers that tell how it stands."""
        ends, used = self._window(caller)
        if not free:
            used = min(used + 1, self.per_hour)
            self._used[_whose(caller)] = (ends, used)
        return {
            "X-RateLimit-Limit": str(self.per_hour),
            "X-RateLimit-Remaining": str(self.per_hour - used),
            "X-RateLimit-Used": str(used),
            "X-RateLimit-Reset": str(ends // 1000),
            "X-RateLimit-Resource": "core",
        }

    def _window(self, caller: App | Token | None) -> tuple[int, int]:
        now = self._now()
        ends, used = self._used.get(_whose(caller), (0, 0))
        return (ends, used) if ends > now else (now + HOUR, 0)


def _whose(caller: App | Token | None) -> int:
    if caller is None:
        return 0
    return caller.installation.id if isinstance(caller, Token) else caller.app_id
