"""A GitHub on loopback, as a process of its own, whose jobs fail and leave logs.

Started as `failing_jobs.py JOBS BYTES`. It prints what a bot needs to know of it as JSON, waits for the address of the
bot's webhooks on standard input, sends the deliveries and prints `sent`; then it serves until it is ended.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import uvloop

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from benchmarks.logs import made_up
from benchmarks.support.load import SECRET, pin
from bot.demo.github import SimulatedGitHub
from bot.demo.github.auth import private_key

REPO = "org/upstream"


async def main(jobs: int, size: int) -> None:
    github = SimulatedGitHub()
    await github.start()
    app = github.register_app(webhook_url=None, webhook_secret=SECRET, private_key_pem=private_key())
    github.add_repo(REPO)
    log = made_up(size).decode()
    print(
        json.dumps({"api_url": github.api_url, "app_id": app.app_id, "key": app.private_key_pem}), flush=True
    )
    app.webhook_url = (await asyncio.to_thread(sys.stdin.readline)).strip()
    for number in range(jobs):
        run = await github.start_run(REPO, event="push", name=f"CI {number}")
        await github.finish_job(await github.start_job(run, "build"), "failure", log=log)
    print("sent", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    pin(1)
    uvloop.run(main(int(sys.argv[1]), int(sys.argv[2])))
