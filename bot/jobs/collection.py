"""Whose CI is collected, how far fetching has come, and what it may cost: the read budget of each installation.

A bucket each for calls and bytes fills steadily, so that collecting leaves most of GitHub's limit to check runs and
comments. Bytes are counted afterwards: no file's size is certain before it is here. A process takes calls a hundredth
of an hour's budget at a time and counts bytes every ten seconds, so that hardly any fetch costs a transaction of its
own. When it ends it gives back what is left; a crash loses that.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.context import Resource
from bot.core import escaping
from bot.core.errors import OverBudget, StoreUnavailable
from bot.db.rows import select
from bot.db.statements import RowStatement, Statement
from bot.jobs.job_names import FAILED
from bot.jobs.settings import BACKENDS, UPSTREAM, CollectSettings
from bot.jobs.tables import BudgetRow, ci_budget
from bot.oot.allowlist import versions as allowlists
from bot.web.blocks import AdminSection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.context import Context
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.ingest.record_rows import WorkflowJobRow

PATH_MOST = 120  # characters
DOWNLOAD_TRIES = 6  # of a download, for the words only: the queue never gives up by itself
LEAST_LEVEL = 2  # of a backend: results of L1 are shown nowhere
SAME_ACCOUNT = ci_budget.c.account == sa.bindparam("of_account")
LOCKED_BUDGET = RowStatement(select(BudgetRow, ci_budget).where(SAME_ACCOUNT).with_for_update())
STORE_BUDGET = Statement(sa.update(ci_budget).where(SAME_ACCOUNT))
HOUR, MINUTE = 3_600_000, 60_000  # milliseconds
BUDGET_BURST = 6  # a bucket holds a sixth of an hour's budget
BUDGET_PARTS = 100  # of an hour's budget: so much is taken at once
SELDOM = 10_000  # milliseconds between two counts of bytes
LEAST_WAIT = 60.0  # seconds: thousands of tasks may wait, and each look costs two transactions


class FetchState(StrEnum):
    """How far the fetching of one log or artifact has come."""

    WANTED = "wanted"
    STORED = "stored"  # kept as a blob
    PARSED = "parsed"
    ABSENT = "absent"
    EXPIRED = "expired"
    TOO_LARGE = "too_large"
    REFUSED = "refused"  # hostile
    BROKEN = "broken"
    FORBIDDEN = "forbidden"
    SKIPPED = "skipped"  # by the settings


FINAL_STATES = frozenset(FetchState) - {FetchState.WANTED, FetchState.FORBIDDEN}
STATE_WORDS = {  # where no reason is stored
    FetchState.WANTED: "being fetched",
    FetchState.STORED: "stored",
    FetchState.PARSED: "read",
    FetchState.ABSENT: "GitHub had none",
    FetchState.EXPIRED: "GitHub has deleted it",
    FetchState.TOO_LARGE: "too large",
    FetchState.REFUSED: "refused as hostile",
    FetchState.BROKEN: "cannot be read",
    FetchState.FORBIDDEN: "the App may not read Actions here",
    FetchState.SKIPPED: "not wanted by the settings",
}


@dataclass(kw_only=True)
class _Held:
    """What this process holds of an account's budget."""

    calls: int = 0  # taken from the bucket, not made yet
    bytes: int = 0  # downloaded, not counted yet
    counted_at: int = 0  # epoch milliseconds
    taking: asyncio.Lock = field(default_factory=asyncio.Lock)


def state_in_words(state: str, stored: str | None, *, tries: int = 0) -> str:
    """Return the stored reason, else the state in words."""
    if state == FetchState.WANTED and not stored and tries:
        return f"being fetched, try {tries} of {max(tries, DOWNLOAD_TRIES)}"
    return stored or STATE_WORDS[FetchState(state)]


def megabytes(size: int) -> str:
    """Return a size as people read it."""
    return f"{size / 1_000_000:,.0f} MB" if size >= 1_000_000 else f"{size:,} bytes"


def over_limit(size: int, most: int) -> str:
    """Return why something was not downloaded."""
    return f"{megabytes(size)}, limit {most // (1024 * 1024)} MiB"


def not_started(conclusion: str, path: str | None) -> str:
    """Describe a run that ended before GitHub made its jobs; the path comes from outside.

    A workflow file that GitHub cannot use ends like this. GitHub gives the reason on the run's page only: neither
    its webhooks nor its API have it. A run of a file that cannot be read has the file's path in place of a name.
    """
    shown = escaping.shorten(escaping.one_line(path or ""), PATH_MOST)
    outcome = escaping.one_line(conclusion.replace("_", " "))
    of_file = f" of {shown}" if shown else ""
    return f"{outcome}: no job{of_file} was started; only the run's page on GitHub says why"


async def admin_section(_tx: Transaction, settings: Settings) -> AdminSection:
    """Return what the administrator's page says about collecting."""
    return AdminSection(template="admin_collecting.html", values={"collecting": describe_scope(settings)})


def describe_scope(settings: Settings) -> str:
    """Return whose CI is collected, and how to change it."""
    if chosen := settings.of(CollectSettings).ci:
        return f"of {' and '.join(chosen)} (CI={','.join(chosen)}); set CI=off to collect nothing"
    return "off (CI=off); set CI=upstream,backends to collect logs and artifacts"


async def run_refusal(
    tx: Transaction, settings: Settings, repo: str, *, workflow: str | None, path: str | None = None
) -> str | None:
    """Return why a run is not collected, None where it is."""
    chosen = settings.of(CollectSettings).ci
    side = UPSTREAM if settings.is_upstream(repo) else BACKENDS
    if side not in chosen or not (side == UPSTREAM or await _is_backend(tx, repo)):
        return f"CI={','.join(chosen) or 'off'}"
    patterns = settings.of(CollectSettings).ci_workflows
    return None if has_workflow(patterns, workflow, path) else f"CI_WORKFLOWS={','.join(patterns)}"


def has_workflow(patterns: Sequence[str], name: str | None, path: str | None) -> bool:
    """Whether a workflow is chosen: a glob includes it, one that begins with ! excludes it."""
    known = [text.casefold() for text in (name, path) if text]
    taken = [pattern[1:].casefold() for pattern in patterns if pattern.startswith("!")]
    given = [pattern.casefold() for pattern in patterns if not pattern.startswith("!")] or ["*"]
    if any(fnmatchcase(text, pattern) for text in known for pattern in taken):
        return False
    return given == ["*"] or any(fnmatchcase(text, pattern) for text in known for pattern in given)


def log_refusal(settings: Settings, conclusion: str | None) -> str | None:
    """Return why the settings skip the log of a job with this conclusion, None where they do not."""
    chosen = settings.of(CollectSettings).ci_logs
    if chosen == "off" or (chosen == "failed" and conclusion not in FAILED):
        return f"CI_LOGS={chosen}"
    return None


def never_started(job: WorkflowJobRow) -> bool:
    """Whether a job ended without ever having a runner: it has no log."""
    return job["conclusion"] == "skipped" or not (job["runner_name"] or job["steps"])


async def all_budgets(tx: Transaction) -> list[BudgetRow]:
    """Return the budgets of all accounts."""
    return await tx.fetch(select(BudgetRow, ci_budget))


async def lock_budget(tx: Transaction, new: BudgetRow) -> BudgetRow:
    """Return an account's budget, locked until the transaction ends; an account without one gets the new one."""
    account = {"of_account": new["account"]}
    if (row := await tx.fetch_first(LOCKED_BUDGET, account)) is not None:
        return row
    await tx.upsert(ci_budget, [new])
    (row,) = await tx.fetch(LOCKED_BUDGET, account)
    return row


async def store_budget(tx: Transaction, row: BudgetRow) -> None:
    """Store an account's budget."""
    values = {name: row[name] for name in ("calls", "bytes", "at", "minutes")}
    await tx.run(STORE_BUDGET, values | {"of_account": row["account"]})


class Bucket:
    """What an account may spend now, and what it spent in the last hour."""

    def __init__(self, row: BudgetRow) -> None:
        self.row = row

    def fill(self, now: int, limits: CollectSettings) -> None:
        """Add what has flowed in since the last look; a clock that was ahead adds nothing."""
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
        return max(min(int(self.row["calls"]), limits.ci_calls_per_hour // BUDGET_PARTS), 1)

    def spend(self, *, calls: int = 0, size: int = 0) -> None:
        """Spend calls or bytes."""
        self.row["calls"] -= calls
        self.row["bytes"] -= size
        spent = self.row["minutes"].setdefault(str(self.row["at"] // MINUTE), [0, 0])
        spent[0] += calls
        spent[1] += size


def capacity(limits: CollectSettings) -> tuple[float, float]:
    """Return how many calls and bytes a bucket holds."""
    return max(limits.ci_calls_per_hour / BUDGET_BURST, 1), limits.ci_bytes_per_hour / BUDGET_BURST


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
        many = held.bytes >= self._limits.ci_bytes_per_hour / BUDGET_PARTS
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
        """Count downloaded bytes, return or take calls; returns the seconds to wait where none are left."""
        size, held.bytes = held.bytes, 0

        async def settle(tx: Transaction) -> tuple[float, int]:
            wait, taken = 0.0, 0
            bucket = await _locked(tx, account, self._limits)
            bucket.spend(calls=-back, size=size)
            if take and not (wait := bucket.wait(self._limits)):
                taken = bucket.at_once(self._limits)
                bucket.spend(calls=taken)
            await store_budget(tx, bucket.row)
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
    rows = await all_budgets(tx)
    since = (tx.now - HOUR) // MINUTE
    return {
        row["account"]: (
            round(sum(calls for minute, (calls, _) in row["minutes"].items() if int(minute) > since)),
            round(sum(size for minute, (_, size) in row["minutes"].items() if int(minute) > since)),
        )
        for row in rows
    }


async def _is_backend(tx: Transaction, repo: str) -> bool:
    listed = await allowlists.read_in_force(tx)
    entry = listed.find(repo) if listed else None
    return entry is not None and entry.level >= LEAST_LEVEL


def _account(repo: str) -> str:
    return repo.partition("/")[0].casefold()  # an account has one installation


async def _locked(tx: Transaction, account: str, limits: CollectSettings) -> Bucket:
    calls, size = capacity(limits)
    full: BudgetRow = {"account": account, "calls": calls, "bytes": size, "at": tx.now, "minutes": {}}
    row = await lock_budget(tx, full)
    bucket = Bucket(row)
    bucket.fill(tx.now, limits)
    return bucket
