"""td_misses: tests that failed on a trusted branch, whose file their pull request had left out. Key: nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.ci.extras import source_rows
from bot.ci.extras.source_rows import DAY
from bot.ci.extras.what_ran import miss_rows
from bot.ci.extras.what_ran.tables import td_miss
from bot.ci.test_results.parse.names import without_ending
from bot.ingest import watched

if TYPE_CHECKING:
    from bot.ci.extras.what_ran.tables import MissRow
    from bot.context import Context
    from bot.queue.tasks import Task

WINDOW = 2 * DAY  # failures that are looked at


async def find_misses(context: Context, _task: Task) -> None:
    """Look at what failed lately on trusted branches."""
    async with context.store.read() as tx:
        owners = {one for repo in context.settings.upstream_repo for one in await watched.ids(tx, repo)}
        failures = await miss_rows.new_failures(tx, owners, since=tx.now - WINDOW)
        pulls = {(one["repository_id"], one["pr_number"]) for one in failures}
        left_out = {pull: await miss_rows.left_out(tx, *pull) for pull in sorted(pulls)}
    found: list[MissRow] = [
        {**one, "left_out_run_id": run_id, "day": one["at"] // DAY}
        for one in failures
        if (run_id := left_out[one["repository_id"], one["pr_number"]].get(without_ending(one["file"])))
    ]
    if found:
        async with context.store.transaction() as tx:
            await miss_rows.add_misses(tx, found)


async def prune(context: Context) -> dict[str, int]:
    """Delete what was missed past the retention of results."""
    return await source_rows.delete_old(context, {"tests missed by selection": td_miss})
