"""How is a call to GitHub held back until it may go? Budgets of each installation, shared by all processes."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from bot import metrics
from bot.domain.ledger import DISPATCHES_PER_MIN, HOUR, MINUTE, MOST_ASKED, Allowance, Ledger, SentBack
from bot.errors import NoRoom, RetryLater, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from contextlib import AbstractAsyncContextManager

    from bot.clock import Clock

WRITES = frozenset({"POST", "PATCH", "PUT", "DELETE"})


class Books(Protocol):
    """Where the ledgers are kept, by installation. Every method may raise StoreUnavailable."""

    def open(self, who: str) -> AbstractAsyncContextManager[Ledger]:
        """Hand out a ledger; what changes in it is kept at the end, and nobody else changes it meanwhile."""
        ...

    async def blocked_until(self, who: str) -> int:
        """Return until when GitHub wants no calls, epoch milliseconds."""
        ...

    async def all(self) -> Mapping[str, Ledger]:
        """Return every ledger as it is."""
        ...


class OwnBooks:
    """Ledgers of this process alone: for commands that have no database and write nothing."""

    def __init__(self) -> None:
        self._ledgers: dict[str, Ledger] = {}

    @contextlib.asynccontextmanager
    async def open(self, who: str) -> AsyncIterator[Ledger]:
        """Hand out a ledger."""
        yield self._ledgers.setdefault(who, Ledger())

    async def blocked_until(self, who: str) -> int:
        """Return until when GitHub wants no calls."""
        return self._ledgers.get(who, Ledger()).blocked_until

    async def all(self) -> Mapping[str, Ledger]:
        """Return every ledger."""
        return self._ledgers


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What one installation has used of what GitHub allows it."""

    who: str
    creations: int  # checks and comments made in the last hour
    most_creations: int
    dispatches: int  # in the last minute
    most_dispatches: int
    blocked_until: int  # epoch milliseconds; in the past: not blocked


class Pace:
    """How fast GitHub is written to."""

    def __init__(self, clock: Clock, *, writes_per_min: int, books: Books | None = None) -> None:
        self._clock = clock
        self._allowed = Allowance(per_minute=writes_per_min)
        self._books = books or OwnBooks()
        self._banned: dict[str, int] = {}  # what this process was told itself, should the database be away
        self._waiting: dict[str, int] = {}  # calls of this process whose turn is a moment off

    async def block(self, who: str, seconds: float) -> None:
        """Let nothing go for a while, from whatever process: GitHub has asked for that."""
        now = self._clock.now()
        until = now + round(seconds * 1000)
        # what was noted while the clock was ahead hides no later one
        self._banned[who] = max(until, min(self._banned.get(who, 0), now + MOST_ASKED))
        with contextlib.suppress(StoreUnavailable):
            async with self._books.open(who) as ledger:
                ledger.blocked_until = max(until, ledger.blocked_until)

    async def budgets(self) -> list[Budget]:
        """Return what is used of each installation's budget."""
        now = self._clock.now()
        return [
            Budget(
                who=who,
                creations=sum(at > now - HOUR for at in ledger.creations),
                most_creations=self._allowed.per_hour,
                dispatches=sum(at > now - MINUTE for at in ledger.dispatches),
                most_dispatches=DISPATCHES_PER_MIN,
                blocked_until=ledger.blocked_until,
            )
            for who, ledger in sorted((await self._books.all()).items())
            if who != "app"
        ]

    async def turn(self, who: str, method: str, url: str, *, spare: bool) -> None:
        """Return when a call may go. `spare`: only while there is budget to spare, gates and verdicts go first.

        Raises RetryLater when that is not soon, or when nobody knows; nothing was sent then.
        """
        try:
            if method not in WRITES or who == "app":
                self._heed(who, await self._books.blocked_until(who))
                return
            at = await self._reserve(who, method, url, spare=spare)
            if (wait := at - self._clock.now()) > 0:
                await self._wait(who, wait)
                self._heed(who, await self._books.blocked_until(who))
        except StoreUnavailable as error:
            raise RetryLater(f"nobody knows what GitHub still allows: {error}") from error

    async def _reserve(self, who: str, method: str, url: str, *, spare: bool) -> int:
        now = self._clock.now()
        async with self._books.open(who) as ledger:
            ledger.heed_clock(now)
            self._heed(who, ledger.blocked_until)
            if url.endswith("/dispatches"):
                found = ledger.reserve_dispatch(now)
            else:
                found = ledger.reserve_write(
                    now,
                    self._allowed,
                    creating=_creates(method, url),
                    spare=spare,
                    waiting=self._waiting.get(who, 0),
                )
                self._show(who, ledger, now)
        if isinstance(found, SentBack):
            raise _sent_back(found)
        metrics.WRITE_WAIT.observe((found - now) / 1000)
        return found

    async def _wait(self, who: str, milliseconds: int) -> None:
        self._waiting[who] = self._waiting.get(who, 0) + 1
        try:
            await self._clock.sleep(milliseconds / 1000)
        finally:
            self._waiting[who] -= 1

    def _heed(self, who: str, blocked_until: int) -> None:
        """Raise RetryLater while GitHub wants no calls, whoever it told so."""
        wait = max(blocked_until, self._banned.get(who, 0)) - self._clock.now()
        if 0 < wait <= MOST_ASKED:  # or the clock was ahead when that was noted
            raise _sent_back(SentBack(kind="asked", reason=f"GitHub asked us to wait with {who}", after=wait))

    def _show(self, who: str, ledger: Ledger, now: int) -> None:
        lately = sum(one > now - MINUTE for one in ledger.creations)
        metrics.BUDGET_LEFT.labels(who, "minute").set(self._allowed.per_minute - lately)
        metrics.BUDGET_LEFT.labels(who, "hour").set(self._allowed.per_hour - len(ledger.creations))


def _sent_back(found: SentBack) -> NoRoom:
    metrics.WRITES_SENT_BACK.labels(found.kind).inc()
    return NoRoom(found.reason, after=found.after / 1000)


def _creates(method: str, url: str) -> bool:
    """Whether a call makes something that GitHub counts as content; re-runs and cancellations do not."""
    return method == "POST" and "/actions/" not in url
