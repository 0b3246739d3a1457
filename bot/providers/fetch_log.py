"""provider_log: fetches the log of a job of Buildkite that failed. Key: repository, project and id of the job.

It is masked, kept and classified as the logs of GitHub's jobs are, within the same limits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.ci.collect import collection_scope
from bot.ci.collect.states import State
from bot.ci.collect.tasks import fetch_file
from bot.ci.collect.tasks.fetch_file import NotThere
from bot.providers import provider_file
from bot.providers.wanted_files import find_wanted

if TYPE_CHECKING:
    from bot.context import Context
    from bot.queue.tasks import Task

WAITS = (10.0, 60.0, 600.0)  # seconds between tries while there is none
NONE = "Buildkite has no log of it, or the API token may not see the pipeline"


async def fetch_log(context: Context, task: Task) -> None:
    """Fetch a job's log, if the settings have an API token for its pipeline."""
    if collection_scope.log_refusal(context.settings, "failure"):
        return
    async with context.store.read() as tx:
        wanted = await find_wanted(tx, context, task.key)
    row = await provider_file.begin_try(context, wanted.provider, wanted.log) if wanted else None
    if wanted is None or row is None:
        return
    blob = f"log/{wanted.log.repository_id}/{wanted.log.object_id}"
    file = provider_file.ProviderFile(
        provider=wanted.provider, path=f"{wanted.path}/log.txt", fetched=wanted.log, blob=blob
    )
    try:
        await provider_file.fetch(context, row, file)
    except NotThere:
        if row["tries"] > len(WAITS):
            await fetch_file.end_fetch(context, row, State.ABSENT, NONE)
        else:
            await fetch_file.wait_for_next_try(
                context, row, "Buildkite has no log yet", WAITS[row["tries"] - 1]
            )
