"""The rate limiter: holds a call to GitHub back until it may go, within budgets that all processes share."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from bot.core import metrics
from bot.core.errors import OverBudget, RetryLater, StoreUnavailable
from bot.github.rate_budget import (
    DISPATCHES_PER_MIN,
    HOUR,
    MAX_BLOCK,
    MINUTE,
    Allowance,
    Deferral,
    RateBudget,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bot.core.clock import Clock

T = TypeVar("T")
SEEN_FOR = 1_000  # milliseconds until another process's block is looked for again before a call that reads
WRITES = frozenset({"POST", "PATCH", "PUT", "DELETE"})


class Budgets(Protocol):
    """The storage of rate budgets, by account. Every method may raise StoreUnavailable."""

    async def change(self, account: str, change: Callable[[RateBudget], T]) -> T:
        """Return what `change` returns for a budget; its changes are stored, and no other caller changes it meanwhile.

        It may be called twice, each time with the budget as it is stored, and raises nothing.
        """
        ...

    async def blocked_until(self, account: str) -> int:
        """Return until when GitHub wants no calls, epoch milliseconds."""
        ...

    async def all(self) -> Mapping[str, RateBudget]:
        """Return every budget."""
        ...


class LocalBudgets:
    """Budgets of this process alone: for commands that have no database and write nothing."""

    def __init__(self) -> None:
        self._budgets: dict[str, RateBudget] = {}

    async def change(self, account: str, change: Callable[[RateBudget], T]) -> T:
        """Return what `change` returns for a budget."""
        return change(self._budgets.setdefault(account, RateBudget()))

    async def blocked_until(self, account: str) -> int:
        """Return until when GitHub wants no calls."""
        return self._budgets.get(account, RateBudget()).blocked_until

    async def all(self) -> Mapping[str, RateBudget]:
        """Return every budget."""
        return self._budgets


@dataclass(frozen=True, kw_only=True)
class BudgetUsage:
    """The use of one installation's limits."""

    account: str
    creations: int  # checks and comments made in the last hour
    max_creations: int
    dispatches: int  # in the last minute
    max_dispatches: int
    blocked_until: int  # epoch milliseconds; in the past: not blocked


class RateLimiter:
    """Keeps calls within GitHub's limits."""

    def __init__(self, clock: Clock, *, writes_per_min: int, budgets: Budgets | None = None) -> None:
        self._clock = clock
        self._allowed = Allowance(per_minute=writes_per_min)
        self._budgets = budgets or LocalBudgets()
        self._blocked: dict[
            str, int
        ] = {}  # what this process was told itself, should the database be unavailable
        # when the database was asked until when GitHub wants no calls, and what it answered
        self._seen: dict[str, tuple[int, int]] = {}
        self._waiting: dict[str, int] = {}  # calls of this process that wait for their turn

    async def block(self, account: str, seconds: float) -> None:
        """Stop all calls of every process for a while: GitHub has asked for that."""
        now = self._clock.now()
        until = now + round(seconds * 1000)
        # a time stored while the clock was ahead must not hide a later block
        self._blocked[account] = max(until, min(self._blocked.get(account, 0), now + MAX_BLOCK))

        def blocked(budget: RateBudget) -> None:
            budget.blocked_until = max(until, budget.blocked_until)

        with contextlib.suppress(StoreUnavailable):
            await self._budgets.change(account, blocked)

    async def usage(self) -> list[BudgetUsage]:
        """Return the use of each installation's limits."""
        now = self._clock.now()
        return [
            BudgetUsage(
                account=account,
                creations=sum(at > now - HOUR for at in budget.creations),
                max_creations=self._allowed.per_hour,
                dispatches=sum(at > now - MINUTE for at in budget.dispatches),
                max_dispatches=DISPATCHES_PER_MIN,
                blocked_until=budget.blocked_until,
            )
            for account, budget in sorted((await self._budgets.all()).items())
            if account != "app"
        ]

    async def acquire(self, account: str, method: str, url: str, *, low_priority: bool) -> None:
        """Return when a call may go. With `low_priority` only while there is budget to spare.

        Raises RetryLater when that is not soon, or cannot be known; nothing was sent then.
        """
        try:
            if method not in WRITES or account == "app":
                self._require_unblocked(account, await self._blocked_until(account))
                return
            at = await self._reserve(account, method, url, low_priority=low_priority)
            if (wait := at - self._clock.now()) > 0:
                await self._wait(account, wait)
                self._require_unblocked(account, await self._budgets.blocked_until(account))
        except StoreUnavailable as error:
            raise RetryLater(f"GitHub's remaining budget cannot be read: {error}") from error

    async def _blocked_until(self, account: str) -> int:
        """Return until when GitHub wants no calls, as any process was told up to a second ago; epoch milliseconds."""
        now = self._clock.now()
        read_at, until = self._seen.get(account, (0, 0))
        if not 0 <= now - read_at < SEEN_FOR:
            until = await self._budgets.blocked_until(account)
            self._seen[account] = now, until
        return until

    async def _reserve(self, account: str, method: str, url: str, *, low_priority: bool) -> int:
        now = self._clock.now()

        def reserve(budget: RateBudget) -> int | Deferral:
            budget.drop_impossible_times(now)
            if block := self._block(account, budget.blocked_until):
                return block
            if url.endswith("/dispatches"):
                return budget.reserve_dispatch(now)
            found = budget.reserve_write(
                now,
                self._allowed,
                creating=_creates(method, url),
                low_priority=low_priority,
                waiting=self._waiting.get(account, 0),
            )
            self._show(account, budget, now)
            return found

        found = await self._budgets.change(account, reserve)
        if isinstance(found, Deferral):
            raise _over_budget(found)
        metrics.WRITE_WAIT.observe((found - now) / 1000)
        return found

    async def _wait(self, account: str, milliseconds: int) -> None:
        self._waiting[account] = self._waiting.get(account, 0) + 1
        try:
            await self._clock.sleep(milliseconds / 1000)
        finally:
            self._waiting[account] -= 1

    def _require_unblocked(self, account: str, blocked_until: int) -> None:
        """Raise RetryLater while GitHub wants no calls, whichever process it told."""
        if block := self._block(account, blocked_until):
            raise _over_budget(block)

    def _block(self, account: str, blocked_until: int) -> Deferral | None:
        wait = max(blocked_until, self._blocked.get(account, 0)) - self._clock.now()
        if not 0 < wait <= MAX_BLOCK:  # the clock was ahead when that was stored
            return None
        return Deferral(kind="asked", reason=f"GitHub asked us to wait with {account}", after=wait)

    def _show(self, account: str, budget: RateBudget, now: int) -> None:
        last_minute = sum(one > now - MINUTE for one in budget.creations)
        metrics.BUDGET_LEFT.labels(account, "minute").set(self._allowed.per_minute - last_minute)
        metrics.BUDGET_LEFT.labels(account, "hour").set(self._allowed.per_hour - len(budget.creations))


def _over_budget(deferral: Deferral) -> OverBudget:
    metrics.WRITES_DEFERRED.labels(deferral.kind).inc()
    return OverBudget(deferral.reason, after=deferral.after / 1000)


def _creates(method: str, url: str) -> bool:
    """Whether a call creates what GitHub counts as content; re-runs and cancellations do not."""
    return method == "POST" and "/actions/" not in url
