"""Deleting what other CIs said once it is as old as records get."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.ingest.prune import delete_rows
from bot.providers.tables import provider_agent, provider_job, provider_run
from bot.queue.sums import DAY

if TYPE_CHECKING:
    from bot.context import Context


async def delete_old_rows(context: Context) -> dict[str, int]:
    """Delete what is past the retention of records."""
    before = context.clock.now() - context.settings.record_retention_days * DAY
    return {
        "jobs of other CIs": await delete_rows(context, provider_job, provider_job.c.received_at < before),
        "runs of other CIs": await delete_rows(context, provider_run, provider_run.c.received_at < before),
        "agents": await delete_rows(context, provider_agent, provider_agent.c.at < before),
    }
