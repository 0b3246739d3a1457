"""Whose clock is wrong? A machine's that nobody set."""

from __future__ import annotations

from bot.core.clock import SystemClock


class Off(SystemClock):
    """A clock that goes right, and stands wrong."""

    def __init__(self, minutes):
        self.minutes = minutes  # that it is ahead

    def now(self):
        """Return the wrong time."""
        return super().now() + round(self.minutes * 60_000)
