"""The rate limiter: holds a call to GitHub back until it may go, within budgets that all processes share.

A budget says how much of GitHub's limits an installation has used, and when its next write may go.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypedDict, TypeVar

import sqlalchemy as sa

from bot.core import metrics
from bot.core.errors import OverBudget, RetryLater, StoreUnavailable
from bot.db.rows import BigType, JsonType, metadata, must
from bot.db.statements import Statement
from bot.github.responses import MAX_WAIT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bot.core.clock import Clock
    from bot.db.store import Store
    from bot.db.transaction import Transaction

T = TypeVar("T")
MINUTE, HOUR = 60_000, 3_600_000  # milliseconds
DISPATCHES_PER_MIN = 180  # at once or spread out: GitHub counts by the minute
CREATIONS_PER_HOUR = 400  # where 60 writes a minute are allowed; GitHub refuses the 501st
RESERVED = 4  # one creation in so many is reserved for gates and verdicts
MAX_BLOCK = round(MAX_WAIT * 1000)  # milliseconds: GitHub asks for no longer wait
SHORT_WAIT = 2_000  # milliseconds that any write may wait in its slot
LONG_WAIT = 30_000  # milliseconds that gates and verdicts may wait for the writes before them
MAX_WAITING = 6  # calls of one installation that wait at once: each occupies a slot of the worker
oot_budget = sa.Table(
    "oot_budget",
    metadata,
    must("app_id", BigType),
    must("account", sa.Text),  # whose installation; app: the App itself
    must("next_write", BigType),  # the earliest time of the write after those reserved
    must("blocked_until", BigType),  # GitHub asked for it
    must("pressed_until", BigType),  # until then gates and verdicts take precedence
    # times of the last hour: a sliding hour needs every single one
    must("creations", JsonType),
    must("dispatches", JsonType),  # times of the last minute
    sa.PrimaryKeyConstraint("app_id", "account", name="pk_oot_budget"),
)

OF_ACCOUNT = (
    oot_budget.c.app_id == sa.bindparam("of_app"),
    oot_budget.c.account == sa.bindparam("of_account"),
)
BLOCKED_UNTIL = Statement(sa.select(oot_budget.c.blocked_until).where(*OF_ACCOUNT))
# SQLite ignores FOR UPDATE: a writer there is the only one anyway
LOCKED = Statement(sa.select(oot_budget).where(*OF_ACCOUNT).with_for_update())
CHANGE = Statement(sa.update(oot_budget).where(*OF_ACCOUNT))
SEEN_FOR = 1_000  # milliseconds until another process's block is looked for again before a call that reads
WRITES = frozenset({"POST", "PATCH", "PUT", "DELETE"})


@dataclass(frozen=True, kw_only=True)
class Allowance:
    """The writes one installation may make."""

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
class Deferral:
    """A call may go neither now nor soon."""

    kind: str  # asked | budget | pace
    reason: str
    after: int  # milliseconds until it is worth trying


class BudgetRow(TypedDict):
    """A rate budget; times are epoch milliseconds."""

    app_id: int
    account: str
    next_write: int
    blocked_until: int
    pressed_until: int
    creations: list[int]
    dispatches: list[int]


class Budgets(Protocol):
    """The storage of rate budgets, by account. Every method may raise StoreUnavailable."""

    async def change(self, account: str, change: Callable[[RateBudget], T]) -> T:
        """Change a budget, which no other caller changes meanwhile, and return the result of `change`.

        It may be called twice, each time with the budget as it is stored, and raises nothing.
        """
        ...

    async def blocked_until(self, account: str) -> int:
        """Return when GitHub accepts calls again, in epoch milliseconds."""
        ...

    async def all(self) -> Mapping[str, RateBudget]:
        """Return every budget."""
        ...


@dataclass(frozen=True, kw_only=True)
class BudgetUsage:
    """The use of one installation's limits."""

    account: str
    creations: int  # checks and comments made in the last hour
    max_creations: int
    dispatches: int  # in the last minute
    max_dispatches: int
    blocked_until: int  # epoch milliseconds; in the past: not blocked


@dataclass(kw_only=True)
class RateBudget:
    """The use of one installation; times in epoch milliseconds, oldest first."""

    next_write: int = 0
    blocked_until: int = 0
    precedence_until: int = 0  # gates and verdicts were deferred until then: the rest lets them go first
    creations: list[int] = field(default_factory=list)
    dispatches: list[int] = field(default_factory=list)

    def drop_impossible_times(self, now: int) -> None:
        """Forget times too far ahead to wait for: the clock was ahead when they were stored."""
        latest = now + LONG_WAIT + MINUTE
        if max(self.next_write, self.precedence_until) > latest:
            self.next_write = self.precedence_until = now
        if self.blocked_until > now + MAX_BLOCK:
            self.blocked_until = now
        self.creations = [at for at in self.creations if at <= latest]
        self.dispatches = [at for at in self.dispatches if at <= latest]

    def reserve_dispatch(self, now: int) -> int | Deferral:
        """Return `now`, or a deferral: a dispatch never waits for a slot, since its subject may be outdated by then."""
        self.dispatches = self.dispatches[-DISPATCHES_PER_MIN:]
        full = len(self.dispatches) == DISPATCHES_PER_MIN
        if full and (wait := self.dispatches[0] + MINUTE - now) > 0:
            return Deferral(kind="budget", reason="the budget for dispatches is used up", after=wait)
        self.dispatches.append(now)
        return now

    def reserve_write(
        self, now: int, allowed: Allowance, *, creating: bool, low_priority: bool, waiting: int
    ) -> int | Deferral:
        """Reserve a write and return when it may go; with `low_priority` only while there is budget to spare.

        `waiting` is the number of calls that already wait for their turn in this process.
        """
        at = max(now, self.next_write)
        budget_wait = self._wait_for_budget(at, allowed, low_priority=low_priority) if creating else 0
        if budget_wait > 0:
            reason = "the budget for new checks and comments is used up"
            return Deferral(kind="budget", reason=reason, after=at - now + budget_wait)
        if low_priority:
            deferred_to = max(self.precedence_until, at if at - now > SHORT_WAIT else 0)
        else:
            crowded = at - now > LONG_WAIT or (at > now and waiting >= MAX_WAITING)
            deferred_to = at if crowded else 0
            self.precedence_until = max(self.precedence_until, deferred_to and deferred_to + SHORT_WAIT)
        if deferred_to > now:
            return Deferral(kind="pace", reason="earlier writes go first", after=deferred_to - now)
        if creating:
            self.creations.append(at)
        self.next_write = at + allowed.interval
        return at

    def _wait_for_budget(self, at: int, allowed: Allowance, *, low_priority: bool) -> int:
        """Return the milliseconds until one more creation fits both budgets."""
        self.creations = [created_at for created_at in self.creations if created_at > at - HOUR]
        wait = 0
        for limit, window in ((allowed.per_minute, MINUTE), (allowed.per_hour, HOUR)):
            most = max(limit - limit // RESERVED, 1) if low_priority else limit
            if len(self.creations) >= most:
                wait = max(wait, self.creations[-most] + window - at)
        return wait


class SharedBudgets:
    """The budgets of one App in the database; see `bot.github.rate_limiter.Budgets`."""

    def __init__(self, store: Store, app_id: int) -> None:
        self._store = store
        self._app_id = app_id

    async def change(self, account: str, change: Callable[[RateBudget], T]) -> T:
        """Change a budget under a lock on its row and return the result of `change`, once committed."""

        async def changed(tx: Transaction) -> T:
            budget = await self._locked(tx, account)
            before = _values(budget)
            answer = change(budget)
            after = _values(budget)
            if after != before:
                await tx.run(CHANGE, self._of(account) | after)
            return answer

        return await self._store.write(changed)

    async def blocked_until(self, account: str) -> int:
        """Return when GitHub accepts calls again, in epoch milliseconds."""
        async with self._store.read() as tx:
            result = await tx.run(BLOCKED_UNTIL, self._of(account))
            return result.scalar() or 0

    async def all(self) -> dict[str, RateBudget]:
        """Return every budget by account."""
        async with self._store.read() as tx:
            rows = await tx.rows_as(
                BudgetRow, sa.select(oot_budget).where(oot_budget.c.app_id == self._app_id)
            )
        return {row["account"]: _budget(row) for row in rows}

    async def _locked(self, tx: Transaction, account: str) -> RateBudget:
        row = await tx.row_as(BudgetRow, LOCKED, self._of(account))
        if row is None:
            new = {"app_id": self._app_id, "account": account, **_values(RateBudget())}
            await tx.upsert(oot_budget, [new])
            row = await tx.row_as(BudgetRow, LOCKED, self._of(account))
        assert row is not None
        return _budget(row)

    def _of(self, account: str) -> dict[str, object]:
        return {"of_app": self._app_id, "of_account": account}


class LocalBudgets:
    """Budgets of this process alone: for commands that have no database and write nothing."""

    def __init__(self) -> None:
        self._budgets: dict[str, RateBudget] = {}

    async def change(self, account: str, change: Callable[[RateBudget], T]) -> T:
        """Change a budget and return the result of `change`."""
        return change(self._budgets.setdefault(account, RateBudget()))

    async def blocked_until(self, account: str) -> int:
        """Return when GitHub accepts calls again."""
        return self._budgets.get(account, RateBudget()).blocked_until

    async def all(self) -> Mapping[str, RateBudget]:
        """Return every budget."""
        return self._budgets


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
        """Stop all calls of every process for a while, as GitHub has asked."""
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
        """Return when GitHub accepts calls again, as any process was told up to a second ago, in epoch milliseconds."""
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
            reserved = budget.reserve_write(
                now,
                self._allowed,
                creating=_creates(method, url),
                low_priority=low_priority,
                waiting=self._waiting.get(account, 0),
            )
            self._show(account, budget, now)
            return reserved

        reserved = await self._budgets.change(account, reserve)
        if isinstance(reserved, Deferral):
            raise _over_budget(reserved)
        metrics.WRITE_WAIT.observe((reserved - now) / 1000)
        return reserved

    async def _wait(self, account: str, milliseconds: int) -> None:
        self._waiting[account] = self._waiting.get(account, 0) + 1
        try:
            await self._clock.sleep(milliseconds / 1000)
        finally:
            self._waiting[account] -= 1

    def _require_unblocked(self, account: str, blocked_until: int) -> None:
        """Raise RetryLater while GitHub accepts no calls, whichever process it told."""
        if block := self._block(account, blocked_until):
            raise _over_budget(block)

    def _block(self, account: str, blocked_until: int) -> Deferral | None:
        wait = max(blocked_until, self._blocked.get(account, 0)) - self._clock.now()
        if not 0 < wait <= MAX_BLOCK:  # the clock was ahead when that was stored
            return None
        return Deferral(kind="asked", reason=f"GitHub asked us to wait with {account}", after=wait)

    def _show(self, account: str, budget: RateBudget, now: int) -> None:
        last_minute = sum(created_at > now - MINUTE for created_at in budget.creations)
        metrics.BUDGET_LEFT.labels(account, "minute").set(self._allowed.per_minute - last_minute)
        metrics.BUDGET_LEFT.labels(account, "hour").set(self._allowed.per_hour - len(budget.creations))


def _budget(row: BudgetRow) -> RateBudget:
    return RateBudget(
        next_write=row["next_write"],
        blocked_until=row["blocked_until"],
        precedence_until=row["pressed_until"],
        creations=row["creations"],
        dispatches=row["dispatches"],
    )


def _values(budget: RateBudget) -> dict[str, object]:
    """Return the columns of a budget, with copies of its lists, so that changes can be noticed."""
    return {
        "next_write": budget.next_write,
        "blocked_until": budget.blocked_until,
        "pressed_until": budget.precedence_until,
        "creations": [*budget.creations],
        "dispatches": [*budget.dispatches],
    }


def _over_budget(deferral: Deferral) -> OverBudget:
    metrics.WRITES_DEFERRED.labels(deferral.kind).inc()
    return OverBudget(deferral.reason, after=deferral.after / 1000)


def _creates(method: str, url: str) -> bool:
    """Whether a call creates what GitHub counts as content; re-runs and cancellations do not."""
    return method == "POST" and "/actions/" not in url
