"""Jobs that end and leave small documents behind."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.harness import UPSTREAM

DOC = Path(__file__).parents[2] / "docs" / "ci-extras.md"
NAME = "linux-jammy / test (default, 1, 2, linux.2xlarge)"


@pytest.fixture
def bot(collecting_bot):
    return collecting_bot


@pytest.fixture
def jobs(bot, github):
    return Jobs(bot, github)


def lines(*values):
    """JSON lines; a text stays as it is."""
    return "".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in values).encode()


def examples(heading):
    """The blocks of JSON of a section of docs/ci-extras.md."""
    section = re.split(r"(?m)^#+ ", DOC.read_text(encoding="utf-8"))
    (text,) = [one for one in section if one.startswith(f"{heading}\n")]
    return [json.loads(block) for block in re.findall(r"```json\n(.*?)```", text, re.DOTALL)]


class Jobs:
    """Jobs that end, leave artifacts, and are collected."""

    def __init__(self, bot, github):
        self.bot, self.github = bot, github

    async def leaves(
        self, artifact, members, *, repo=UPSTREAM, name=NAME, trusted=True, minutes=10, sha=None, **given
    ):
        """End a job with an artifact of that name and these members; returns the job once it is read."""
        event = {"event": "push"} if trusted else {"event": "pull_request", "head_branch": "topic"}
        if trusted and sha is None:
            sha = await self.github.push(repo)
        run = await self.github.start_run(repo, head_sha=sha, **event | given)
        job = await self.github.start_job(run, name)
        self.bot.clock.advance(60 * minutes)
        content = members if isinstance(members, dict) else {"document.json": members}
        self.github.add_artifact(run, f"{artifact}-{job.id}", content)
        await self.github.finish_job(job, "success")
        await self.github.finish_run(run, "success")
        await self.bot.settle(horizon=60)
        return job

    async def next_day(self, days=1):
        self.bot.clock.advance(86_400 * days)

    async def state(self, job):
        """How reading the only artifact of a job's run ended, and why."""
        (artifact,) = [one for one in job.run.repo.artifacts.values() if one.run is job.run]
        rows = await self.bot.rows("ci_fetch")
        (row,) = [one for one in rows if one["object_id"] == artifact.id and one["kind"] == "artifact"]
        return row["state"], row["error"]
