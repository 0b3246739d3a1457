"""What `ootbot utilization read` says of a log, and jobs that leave one."""

from __future__ import annotations

import json

import pytest
import sqlalchemy as sa
from click.testing import CliRunner

from bot.console.evidence import utilization
from bot.evidence.collect.tables import ci_fetch
from tests.harness import UPSTREAM

NAME = "build / test (default, 1, 2, npu.8)"


@pytest.fixture
def read():
    """Read a log as JSON; the answer's key `exit` is the exit code."""

    def run(log, *options):
        content = log if isinstance(log, bytes) else log.encode()
        done = CliRunner().invoke(utilization, ["read", "-", "--json", *options], input=content)
        assert not done.exception or isinstance(done.exception, SystemExit), done.exception
        return json.loads(done.stdout) | {"exit": done.exit_code}

    return run


@pytest.fixture
def bot(collecting_bot):
    return collecting_bot


@pytest.fixture
def usage(bot, github):
    return Usage(bot, github)


class Usage:
    """Jobs that end and leave a usage log."""

    def __init__(self, bot, github):
        self.bot, self.github = bot, github

    async def arrives(self, log, **given):
        """End a job with that log; returns the job once the log is read."""
        job = await self.start(**given)
        self.leave(job, log)
        await self.finish(job)
        return job

    async def start(self, *, repo=UPSTREAM, name=NAME, labels=("npu.8",), trusted=False, run=None, **given):
        event = {"event": "push"} if trusted else {"event": "pull_request", "head_branch": "topic"}
        run = run or await self.github.start_run(repo, **event | given)
        # a second shard, so that numbers are shards
        await self.github.start_job(run, name.replace("1, 2", "2, 2"), labels)
        return await self.github.start_job(run, name, labels)

    def leave(self, job, log, *, name=None):
        members = (
            log
            if isinstance(log, dict)
            else {"usage_log.txt": log if isinstance(log, bytes) else log.encode()}
        )
        name = name or f"usage-log-runattempt1-test-default-1-2-npu.8_{job.id}.zip"
        return self.github.add_artifact(job.run, name, members)

    async def finish(self, job):
        for each in [one for one in job.run.repo.jobs.values() if one.run is job.run]:
            await self.github.finish_job(each, "success")
        await self.github.finish_run(job.run, "success")
        await self.bot.settle(horizon=15)

    async def collect(self, run):
        """List a run's artifacts again, and fetch those that are new."""
        async with self.bot.store.transaction() as tx:
            tx.enqueue("artifacts", f"{run.repo.full_name}/{run.id}/{run.run_attempt}")
        await self.bot.settle(horizon=15)

    async def fetch(self, artifact):
        """Fetch an artifact again, as after a crash before it counted as fetched."""
        async with self.bot.store.transaction() as tx:
            await tx.run(
                sa.update(ci_fetch).where(ci_fetch.c.object_id == artifact.id).values(state="wanted")
            )
            tx.enqueue("collect", f"{artifact.run.repo.full_name}#{artifact.id}")
        await self.bot.settle(horizon=15)
