"""The read budget of an account's installation: calls and bytes an hour, shared by all processes.

A bucket each that fills steadily, so that collecting leaves most of GitHub's limit to check runs and comments. Bytes
are counted afterwards: no file's size is certain before it is here. A process takes calls a hundredth of an hour's
budget at a time and counts bytes every ten seconds, so that hardly any fetch costs a transaction of its own. When it
ends it gives back what is left; a crash loses that.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bot.ci.collect.settings import CollectSettings
from bot.ci.collect.store import budgets
from bot.core.errors import OverBudget, StoreUnavailable
from bot.core.resources import Resource

if TYPE_CHECKING:
    from bot.ci.collect.tables import BudgetRow
    from bot.context import Context
    from bot.db.transaction import Transaction

HOUR, MINUTE = 3_600_000, 60_000  # milliseconds
BURST = 6  # a bucket holds a sixth of an hour's budget
PARTS = 100  # of an hour's budget: so much is taken at once
SELDOM = 10_000  # milliseconds between two counts of bytes
LEAST_WAIT = 60.0  # seconds: thousands of tasks may wait, and each look costs two transactions


class Bucket:
    """What may be spent now, and what was spent in the last hour."""

    def __init__(self, row: BudgetRow) -> None:
        self.row = row

    def fill(self, now: int, limits: CollectSettings) -> None:
        """Add what has come in since the last look; a clock that was ahead gives nothing."""
        hours = min(max(now - self.row["at"], 0), HOUR) / HOUR
        most_calls, most_bytes = capacity(limits)
        self.row["calls"] = min(self.row["calls"] + hours * limits.ci_calls_per_hour, most_calls)
        self.row["bytes"] = min(self.row["bytes"] + hours * limits.ci_bytes_per_hour, most_bytes)
        self.row["at"] = now
        recent = (now - HOUR) // MINUTE
        self.row["minutes"] = {
            minute: spent for minute, spent in self.row["minutes"].items() if int(minute) > recent
        }

    def wait(self, limits: CollectSettings) -> float:
        """Return the seconds until a call may be made, 0 for now."""
        if self.row["calls"] >= 1 and self.row["bytes"] > 0:
            return 0.0
        for_call = max(1 - self.row["calls"], 0) * 3600 / limits.ci_calls_per_hour
        for_bytes = max(1 - self.row["bytes"], 0) * 3600 / limits.ci_bytes_per_hour
        return max(for_call, for_bytes, LEAST_WAIT)

    def at_once(self, limits: CollectSettings) -> int:
        """Return how many calls a process takes when one may be made."""
        return max(min(int(self.row["calls"]), limits.ci_calls_per_hour // PARTS), 1)

    def spend(self, *, calls: int = 0, size: int = 0) -> None:
        """Take calls or bytes out."""
        self.row["calls"] -= calls
        self.row["bytes"] -= size
        spent = self.row["minutes"].setdefault(str(self.row["at"] // MINUTE), [0, 0])
        spent[0] += calls
        spent[1] += size


def capacity(limits: CollectSettings) -> tuple[float, float]:
    """Return how many calls and bytes a bucket holds."""
    return max(limits.ci_calls_per_hour / BURST, 1), limits.ci_bytes_per_hour / BURST


@dataclass(kw_only=True)
class _Held:
    """What this process holds of an account's budget."""

    calls: int = 0  # taken from the bucket, not made yet
    bytes: int = 0  # downloaded, not counted yet
    counted_at: int = 0  # epoch milliseconds
    taking: asyncio.Lock = field(default_factory=asyncio.Lock)


class Budgets:
    """What this process holds of the accounts' budgets."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._held: dict[str, _Held] = defaultdict(_Held)

    async def spend_call(self, account: str) -> None:
        """Count a call to GitHub; raises OverBudget when there is none to spare."""
        held = self._held[account]
        async with held.taking:
            if not held.calls and (wait := await self._settle(account, held, take=True)):
                raise OverBudget(f"the budget for collecting from {account} is used up", after=wait)
            held.calls -= 1

    async def spend_bytes(self, account: str, size: int) -> None:
        """Count downloaded bytes."""
        held = self._held[account]
        held.bytes += size
        many = held.bytes >= self._limits.ci_bytes_per_hour / PARTS
        if many or self._context.clock.now() >= held.counted_at + SELDOM:
            await self._settle(account, held)

    async def close(self) -> None:
        """Give back the calls that were not made, and count the bytes that came."""
        with contextlib.suppress(StoreUnavailable):
            for account, held in self._held.items():
                if held.calls or held.bytes:
                    await self._settle(account, held, back=held.calls)

    @property
    def _limits(self) -> CollectSettings:
        return self._context.settings.of(CollectSettings)

    async def _settle(self, account: str, held: _Held, *, back: int = 0, take: bool = False) -> float:
        """Count what came, give calls back or take some; returns the seconds to wait where there are none."""
        size, held.bytes = held.bytes, 0

        async def settle(tx: Transaction) -> tuple[float, int]:
            wait, taken = 0.0, 0
            bucket = await _locked(tx, account, self._limits)
            bucket.spend(calls=-back, size=size)
            if take and not (wait := bucket.wait(self._limits)):
                taken = bucket.at_once(self._limits)
                bucket.spend(calls=taken)
            await budgets.store_budget(tx, bucket.row)
            return wait, taken

        try:
            wait, taken = await self._context.store.write(settle)
        except BaseException:
            held.bytes += size
            raise
        held.calls += taken - back
        held.counted_at = self._context.clock.now()
        return wait


BUDGETS = Resource("budgets", Budgets)


async def spend_call(context: Context, repo: str) -> None:
    """Count a call to GitHub about a repository; raises OverBudget when there is none to spare."""
    await context.resource(BUDGETS).spend_call(_account(repo))


async def spend_bytes(context: Context, repo: str, size: int) -> None:
    """Count downloaded bytes."""
    await context.resource(BUDGETS).spend_bytes(_account(repo), size)


async def last_hour(tx: Transaction) -> dict[str, tuple[int, int]]:
    """Return the calls and bytes of the last hour, by account."""
    rows = await budgets.all_budgets(tx)
    since = (tx.now - HOUR) // MINUTE
    return {
        row["account"]: (
            round(sum(calls for minute, (calls, _) in row["minutes"].items() if int(minute) > since)),
            round(sum(size for minute, (_, size) in row["minutes"].items() if int(minute) > since)),
        )
        for row in rows
    }


def _account(repo: str) -> str:
    return repo.partition("/")[0].casefold()  # an account has one installation


async def _locked(tx: Transaction, account: str, limits: CollectSettings) -> Bucket:
    calls, size = capacity(limits)
    full: BudgetRow = {"account": account, "calls": calls, "bytes": size, "at": tx.now, "minutes": {}}
    row = await budgets.lock_budget(tx, full)
    bucket = Bucket(row)
    bucket.fill(tx.now, limits)
    return bucket
