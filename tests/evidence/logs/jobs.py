"""Jobs that end and leave a log, fetched and classified by the bot."""

from __future__ import annotations

import sqlalchemy as sa

from bot.evidence.collect.tables import ci_fetch
from bot.evidence.logs import rows
from tests.harness import UPSTREAM


class Logs:
    """Jobs that end and leave a log."""

    def __init__(self, bot, github):
        self.bot, self.github = bot, github

    async def arrives(self, log, *, repo=UPSTREAM, conclusion="failure", branch="topic", trusted=False):
        """End a job with that log; returns the job once the log is stored."""
        event = {"event": "push"} if trusted else {"event": "pull_request", "head_branch": branch}
        run = await self.github.start_run(repo, **event)
        job = await self.github.start_job(run, "build / test (default, 1, 2, linux)")
        await self.github.finish_job(job, conclusion, log=log)
        await self.bot.settle(horizon=15)
        return job

    async def again(self, job):
        """Fetch a log again, as after a crash before it counted as fetched."""
        async with self.bot.store.transaction() as tx:
            await tx.run(sa.update(ci_fetch).where(ci_fetch.c.object_id == job.id).values(state="wanted"))
            tx.enqueue("log", f"{job.run.repo.full_name}#{job.id}")
        await self.bot.settle(horizon=15)

    async def verdicts(self, job):
        async with self.bot.store.read() as tx:
            return await rows.verdicts_of_jobs(tx, job.run.repo.id, [job.id])
