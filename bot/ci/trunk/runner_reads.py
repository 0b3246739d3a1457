"""Reading what waits for which runner, for its page, its JSON and what is red now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.ci.trunk import runner_queue
from bot.ci.trunk.settings import TrunkSettings
from bot.ci.trunk.store import day_rows
from bot.queue.sums import DAY

if TYPE_CHECKING:
    from bot.ci.trunk.reading import Branch
    from bot.ci.trunk.runner_queue import RunnerQueue
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction

WAITING_MOST = 20_000
WAITING_DAYS = 3  # a job that was created before has been lost


async def read_runner_queues(tx: Transaction, settings: Settings, branch: Branch) -> list[RunnerQueue]:
    """Return the runners of a repository by label, those with the longest wait first."""
    identifier, today = branch.repository["repository_id"], tx.now // DAY
    jobs = await day_rows.unfinished(tx, identifier, tx.now - WAITING_DAYS * DAY, WAITING_MOST)
    recent = tx.now - runner_queue.STARTING_MOST
    started = await day_rows.started(tx, identifier, recent, WAITING_MOST)
    days = await day_rows.runner_days(tx, identifier, today - runner_queue.WEEK)
    return runner_queue.make_queues(
        jobs,
        days,
        now=tx.now,
        today=today,
        runners=settings.of(TrunkSettings).ci_runners,
        being_prepared=runner_queue.starting_jobs(started),
    )
