"""kill -9 every two seconds while jobs run: once all is sent, the sinks hold what is stored, and it can be rebuilt."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import pytest

from bot.core.clock import SystemClock
from tests.harness import UPSTREAM
from tests.process import ROOT, Process, options_for
from tests.sinks.stored import archive_of, copies_of

pytestmark = pytest.mark.nightly
EVERY = 2.0  # seconds
LOOKS = 240  # half a second apart


@pytest.fixture
def clock():
    return SystemClock()


@pytest.mark.parametrize("kills", [10, 150])
async def test_after_kills_the_sinks_hold_what_is_stored(github, issuer, tmp_path, app_key, kills):
    folder = tmp_path / "sinks"
    sinks = {"archive": archive_of(folder, batch_seconds=1), "copies": copies_of(folder, batch_seconds=1)}
    options = options_for(
        tmp_path, private_key=app_key, app_id=github.app.app_id, api_url=github.api_url, issuer=issuer
    ) | {"SINKS": json.dumps(sinks)}
    process = Process(tmp_path, **options)
    github.app.webhook_url = f"{process.url}/api/github/webhooks"

    def command(*arguments):
        environ = {f"OOTBOT_{name}": value for name, value in (options | {"DATA_DIR": str(tmp_path)}).items()}
        return subprocess.run(
            [sys.executable, "-m", "bot.cli", *arguments], cwd=tmp_path, check=False, capture_output=True, text=True,
            env=environ | {"PYTHONPATH": str(ROOT)},
        )  # fmt: skip

    for _ in range(kills):
        ready = await process.start()
        await ready.wait()
        working = asyncio.create_task(work(github))
        await asyncio.sleep(EVERY)
        process.kill()
        await process.ended()
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
    ready = await process.start()
    await ready.wait()
    try:
        for _ in range(LOOKS):
            await asyncio.sleep(0.5)
            waiting = process.rows("SELECT count(*) AS n FROM sink_mark")[0]["n"]
            stored = process.rows("SELECT count(*) AS n FROM delivery WHERE state = 'stored'")[0]["n"]
            if not waiting and not stored:
                break
        assert (waiting, stored) == (0, 0)
        assert process.rows("SELECT * FROM sink_refused") == []
        for name in sinks:
            done = await asyncio.to_thread(command, "sink", "check", name)
            assert done.returncode == 0, done.stdout + done.stderr
    finally:
        process.kill()
        await process.ended()


async def work(github):
    """Run jobs until this is cancelled; what is not answered is lost here, as GitHub would send it again."""
    while True:
        run = await github.start_run(UPSTREAM, event="push")
        for number in range(5):
            job = await github.start_job(run, f"job {number}")
            await github.finish_job(job, "success")
        await github.finish_run(run, "success")
