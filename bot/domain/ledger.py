"""When may the next write go? What one installation has used of what GitHub allows it, and who goes first.

Nobody waits long: what cannot go within seconds is sent back to the queue, so that a burst of one kind never holds the
worker's slots while a gate waits for one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from bot.domain.throttle import AT_MOST

MINUTE, HOUR = 60_000, 3_600_000  # milliseconds
DISPATCHES_PER_MIN = 180  # at once or spread: what GitHub counts are minutes
CREATIONS_PER_HOUR = 400  # where 60 writes a minute are allowed; GitHub refuses the 501st
RESERVED = 4  # one creation of so many is kept for gates and verdicts
MOST_ASKED = round(AT_MOST * 1000)  # milliseconds: GitHub asks for no longer wait
SOON = 2_000  # milliseconds that anything may wait in its slot
LONGEST = 30_000  # milliseconds that gates and verdicts may wait for the writes before them
MOST_WAITING = 6  # calls of one installation that wait at once: each holds a slot of the worker's meanwhile


@dataclass(frozen=True, kw_only=True)
class Allowance:
    """How much one installation may be written to."""

    per_minute: int

    @property
    def per_hour(self) -> int:
        """New checks and comments in an hour."""
        return CREATIONS_PER_HOUR * self.per_minute // 60

    @property
    def interval(self) -> int:
        """Milliseconds between two writes."""
        return math.ceil(MINUTE / self.per_minute)


@dataclass(frozen=True, kw_only=True)
class SentBack:
    """A call may not go now, nor soon."""

    kind: str  # asked | budget | pace
    reason: str
    after: int  # milliseconds until it may be worth trying


@dataclass(kw_only=True)
class Ledger:
    """What one installation has used; times in epoch milliseconds, oldest first."""

    next_write: int = 0
    blocked_until: int = 0
    pressed_until: int = 0  # gates and verdicts were sent back until then: the rest lets them go first
    creations: list[int] = field(default_factory=list)
    dispatches: list[int] = field(default_factory=list)

    def heed_clock(self, now: int) -> None:
        """Forget times that no wait can have led to: the clock was ahead when they were written down."""
        latest = now + LONGEST + MINUTE
        if max(self.next_write, self.pressed_until) > latest:
            self.next_write = self.pressed_until = now
        if self.blocked_until > now + MOST_ASKED:
            self.blocked_until = now
        self.creations = [at for at in self.creations if at <= latest]
        self.dispatches = [at for at in self.dispatches if at <= latest]

    def reserve_dispatch(self, now: int) -> int | SentBack:
        """Return `now`, or that it is too soon: a dispatch never waits, what it is about may be overtaken meanwhile."""
        self.dispatches = self.dispatches[-DISPATCHES_PER_MIN:]
        full = len(self.dispatches) == DISPATCHES_PER_MIN
        if full and (wait := self.dispatches[0] + MINUTE - now) > 0:
            return SentBack(kind="budget", reason="the budget for dispatches is used up", after=wait)
        self.dispatches.append(now)
        return now

    def reserve_write(
        self, now: int, allowed: Allowance, *, creating: bool, spare: bool, waiting: int
    ) -> int | SentBack:
        """Return when a write may go, and count it; `spare`: only while there is budget to spare.

        `waiting` says how many calls wait for their turn in this process already.
        """
        at = max(now, self.next_write)
        room = self._until_room(at, allowed, spare=spare) if creating else 0
        if room > 0:
            reason = "the budget for new checks and comments is used up"
            return SentBack(kind="budget", reason=reason, after=at - now + room)
        if spare:
            late = max(self.pressed_until, at if at - now > SOON else 0)
        else:
            crowded = at - now > LONGEST or (at > now and waiting >= MOST_WAITING)
            late = at if crowded else 0
            self.pressed_until = max(self.pressed_until, late and late + SOON)
        if late > now:
            return SentBack(kind="pace", reason="writes before this one take their time", after=late - now)
        if creating:
            self.creations.append(at)
        self.next_write = at + allowed.interval
        return at

    def _until_room(self, at: int, allowed: Allowance, *, spare: bool) -> int:
        """Return the milliseconds until one more creation fits both budgets."""
        self.creations = [one for one in self.creations if one > at - HOUR]
        wait = 0
        for limit, window in ((allowed.per_minute, MINUTE), (allowed.per_hour, HOUR)):
            most = max(limit - limit // RESERVED, 1) if spare else limit
            if len(self.creations) >= most:
                wait = max(wait, self.creations[-most] + window - at)
        return wait
