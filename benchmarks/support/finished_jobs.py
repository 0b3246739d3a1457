"""A GitHub on loopback, as a process of its own, whose jobs leave something to collect.

Started as `finished_jobs.py JOBS BYTES 0`, each job fails and leaves a log; as `finished_jobs.py JOBS 0 CASES`, they
are jobs of one run and leave reports of so many tests. It prints what a bot needs to know of it as JSON, waits for the
address of the bot's webhooks on standard input, sends the deliveries and prints `sent`; then it serves until it is
ended.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path

import uvloop

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from benchmarks.logs import made_up
from benchmarks.support.load import SECRET, pin
from benchmarks.support.stored_tests import SUITES, artifact
from bot.demo.github import SimulatedGitHub
from bot.demo.github.auth import private_key

REPO = "org/upstream"


async def main(jobs: int, size: int, cases: int) -> None:
    github = SimulatedGitHub()
    await github.start()
    app = github.register_app(webhook_url=None, webhook_secret=SECRET, private_key_pem=private_key())
    github.add_repo(REPO)
    log = made_up(size).decode() if not cases else ""
    with tempfile.TemporaryDirectory() as folder:
        archives = [reports(Path(folder), number, jobs, cases) for number in range(jobs if cases else 0)]
    print(
        json.dumps({"api_url": github.api_url, "app_id": app.app_id, "key": app.private_key_pem}), flush=True
    )
    app.webhook_url = (await asyncio.to_thread(sys.stdin.readline)).strip()
    if archives:
        await tested(github, archives)
    else:
        await failed(github, jobs, log)
    print("sent", flush=True)
    await asyncio.Event().wait()


def reports(folder: Path, number: int, jobs: int, cases: int) -> bytes:
    artifact(path := folder / "reports.zip", number, jobs, cases, SUITES)
    return path.read_bytes()


async def failed(github: SimulatedGitHub, jobs: int, log: str) -> None:
    for number in range(jobs):
        run = await github.start_run(REPO, event="push", name=f"CI {number}")
        await github.finish_job(await github.start_job(run, "build"), "failure", log=log)


async def tested(github: SimulatedGitHub, archives: list[bytes]) -> None:
    run = await github.start_run(REPO, event="push", name="pull")
    for number, archive in enumerate(archives, 1):
        shard = f"default, {number}, {len(archives)}, linux.4xlarge"
        job = await github.start_job(run, f"linux / test ({shard})")
        name = f"test-reports-test-{shard.replace(', ', '-')}_{job.id}.zip"
        github.add_artifact(run, name, archive)
        await github.finish_job(job, "success")
    await github.finish_run(run, "success")


if __name__ == "__main__":
    pin(1)
    uvloop.run(main(*map(int, sys.argv[1:])))
