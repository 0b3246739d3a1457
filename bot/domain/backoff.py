"""How long until something that failed is tried again?"""

from __future__ import annotations

STEPS = (1, 5, 15, 60, 120, 300, 600)  # seconds
MOST_ATTEMPTS = 12  # of a task that fails for a reason we do not know: about an hour


def delay(attempts: int) -> int:
    """Return milliseconds to wait after that many attempts (from 1)."""
    return STEPS[min(max(attempts, 1), len(STEPS)) - 1] * 1000


def wait(attempts: int, *, after: float | None, periodic: bool) -> int:
    """Return milliseconds to wait: `after` seconds where that is known.

    A periodic task waits no longer than the last step: what one account has to wait for keeps no other waiting.
    """
    known = delay(attempts) if after is None else max(round(after * 1000), 1)
    return min(known, STEPS[-1] * 1000) if periodic else known
