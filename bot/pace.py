"""When may the next call to GitHub go? Budgets of each installation, and who goes first when they are short.

Nobody waits long here: what cannot go within seconds is sent back to the queue, so that a burst of one kind never
holds the worker's slots while a gate waits for one.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bot import metrics
from bot.errors import RetryLater

if TYPE_CHECKING:
    from bot.clock import Clock

MINUTE, HOUR = 60_000, 3_600_000  # milliseconds
DISPATCHES_PER_MIN = 180  # at once or spread: what GitHub counts are minutes
CREATIONS_PER_HOUR = 400  # where 60 writes a minute are allowed; GitHub refuses the 501st
RESERVED = 4  # one creation of so many is kept for gates and verdicts
SOON = 2_000  # milliseconds that anything may wait in its slot
LONGEST = 30_000  # milliseconds that gates and verdicts may wait for the writes before them
MOST_WAITING = 6  # calls of one installation that wait at once: each holds a slot of the worker's meanwhile
WRITES = frozenset({"POST", "PATCH", "PUT", "DELETE"})


@dataclass(kw_only=True)
class _Ledger:
    """What one installation has used; times in epoch milliseconds, oldest first."""

    next_write: float = 0.0
    blocked_until: float = 0.0
    waiting: int = 0  # calls whose turn is a moment off
    pressed_until: float = 0.0  # gates and verdicts were sent back until then: the rest lets them go first
    creations: deque[float] = field(default_factory=deque)
    dispatches: deque[float] = field(default_factory=lambda: deque(maxlen=DISPATCHES_PER_MIN))


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What one installation has used of what GitHub allows it, as this process knows."""

    who: str
    creations: int  # checks and comments made in the last hour
    most_creations: int
    dispatches: int  # in the last minute
    most_dispatches: int
    blocked_until: int  # epoch milliseconds; in the past: not blocked


class Pace:
    """How fast GitHub is written to."""

    def __init__(self, clock: Clock, *, writes_per_min: int) -> None:
        self._clock = clock
        self._interval = MINUTE / writes_per_min
        self._per_minute = writes_per_min
        self._per_hour = CREATIONS_PER_HOUR * writes_per_min // 60
        self._ledgers: dict[str, _Ledger] = {}

    def block(self, who: str, seconds: float) -> None:
        """Let nothing go for a while: GitHub has asked for that."""
        self._ledger(who).blocked_until = self._clock.now() + round(seconds * 1000)

    def budgets(self) -> list[Budget]:
        """Return what is used of each installation's budget."""
        now = self._clock.now()
        return [
            Budget(
                who=who,
                creations=sum(at > now - HOUR for at in ledger.creations),
                most_creations=self._per_hour,
                dispatches=sum(at > now - MINUTE for at in ledger.dispatches),
                most_dispatches=DISPATCHES_PER_MIN,
                blocked_until=int(ledger.blocked_until),
            )
            for who, ledger in sorted(self._ledgers.items())
            if who != "app"
        ]

    async def turn(self, who: str, method: str, url: str, *, spare: bool) -> None:
        """Return when a call may go. `spare`: only while there is budget to spare, gates and verdicts go first.

        Raises RetryLater when that is not soon; nothing was sent then.
        """
        ledger, now = self._ledger(who), self._clock.now()
        if ledger.blocked_until > now:
            reason = f"GitHub asked us to wait with {who}"
            raise _sent_back("asked", reason, after=ledger.blocked_until - now)
        if method not in WRITES or who == "app":
            return
        if url.endswith("/dispatches"):
            at = float(_reserve_dispatch(ledger, now))
        else:
            at = self._reserve_write(who, now, creating=_creates(method, url), spare=spare)
        metrics.WRITE_WAIT.observe((at - now) / 1000)
        if at > now:
            ledger.waiting += 1
            try:
                await self._clock.sleep((at - now) / 1000)
            finally:
                ledger.waiting -= 1

    def _reserve_write(self, who: str, now: int, *, creating: bool, spare: bool) -> float:
        ledger = self._ledger(who)
        at = max(float(now), ledger.next_write)
        room = self._until_room(ledger.creations, at, spare=spare) if creating else 0.0
        if room > 0:
            reason = "the budget for new checks and comments is used up"
            raise _sent_back("budget", reason, after=at - now + room)
        if spare:
            late = max(ledger.pressed_until, at if at - now > SOON else 0.0)
        else:
            crowded = at - now > LONGEST or (at > now and ledger.waiting >= MOST_WAITING)
            late = at if crowded else 0.0
            ledger.pressed_until = max(ledger.pressed_until, late and late + SOON)
        if late > now:
            raise _sent_back("pace", "writes before this one take their time", after=late - now)
        if creating:
            ledger.creations.append(at)
            self._show(who, ledger.creations, at)
        ledger.next_write = at + self._interval
        return at

    def _until_room(self, creations: deque[float], at: float, *, spare: bool) -> float:
        """Return the milliseconds until one more creation fits both budgets."""
        while creations and creations[0] <= at - HOUR:
            creations.popleft()
        wait = 0.0
        for limit, window in ((self._per_minute, MINUTE), (self._per_hour, HOUR)):
            most = max(limit - limit // RESERVED, 1) if spare else limit
            if len(creations) >= most:
                wait = max(wait, creations[-most] + window - at)
        return wait

    def _show(self, who: str, creations: deque[float], at: float) -> None:
        lately = sum(one > at - MINUTE for one in creations)
        metrics.BUDGET_LEFT.labels(who, "minute").set(self._per_minute - lately)
        metrics.BUDGET_LEFT.labels(who, "hour").set(self._per_hour - len(creations))

    def _ledger(self, who: str) -> _Ledger:
        return self._ledgers.setdefault(who, _Ledger())


def _sent_back(kind: str, reason: str, *, after: float) -> RetryLater:
    """Return what sends a call back for so many milliseconds."""
    metrics.WRITES_SENT_BACK.labels(kind).inc()
    return RetryLater(reason, after=after / 1000)


def _reserve_dispatch(ledger: _Ledger, now: int) -> int:
    """Return `now`, or raise: a dispatch never waits here, what it is about may be overtaken meanwhile."""
    wait = ledger.dispatches[0] + MINUTE - now if len(ledger.dispatches) == DISPATCHES_PER_MIN else 0
    if wait > 0:
        raise _sent_back("budget", "the budget for dispatches is used up", after=wait)
    ledger.dispatches.append(now)
    return now


def _creates(method: str, url: str) -> bool:
    """Whether a call makes something that GitHub counts as content; re-runs and cancellations do not."""
    return method == "POST" and "/actions/" not in url
