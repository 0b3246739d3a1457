"""kill -9 every two seconds while jobs run: once all is sent, sinks of all kinds hold what is stored, and no more."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

from bot.core.clock import SystemClock
from tests.evidence.collect import bucket
from tests.harness import UPSTREAM
from tests.process import ROOT, Process, options_for
from tests.sinks.stored import archive_of, copies_of

pytestmark = pytest.mark.nightly
EVERY = 2.0  # seconds
LOOKS = 360  # half a second apart, without anything being sent
RECORDS = ["records", "oot_workflow_job"]
CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")


@pytest.fixture
def clock():
    return SystemClock()


@pytest.fixture
def sinks(tmp_path, monkeypatch):
    """A table each for an archive, copies in a directory, DynamoDB, and ClickHouse where its engine is here."""
    with contextlib.ExitStack() as serving:
        amazon = serving.enter_context(bucket.serving())
        for name in CREDENTIALS:
            monkeypatch.setenv(name, amazon[name])
        found = {
            "archive": archive_of(tmp_path / "sinks"),
            "copies": copies_of(tmp_path / "sinks"),
            "dynamo": {
                "kind": "dynamodb", "region": "us-east-1", "endpoint": amazon["AWS_ENDPOINT_URL"],
                "what": RECORDS, "create_tables": True,
            },
        }  # fmt: skip
        if find_spec("chdb"):
            from tests.sinks import clickhouse_gateway
            from tests.sinks.clickhouse_tables import sink_of

            port = serving.enter_context(clickhouse_gateway.serving(tmp_path / "clickhouse"))
            found["ch"] = sink_of(port, what=[*RECORDS, "deliveries"])
        yield {name: table | {"batch_seconds": 1} for name, table in found.items()}


@pytest.mark.parametrize("kills", [10, 150])
async def test_after_kills_the_sinks_hold_what_is_stored(github, issuer, tmp_path, app_key, sinks, kills):
    options = options_for(
        tmp_path, private_key=app_key, app_id=github.app.app_id, api_url=github.api_url, issuer=issuer
    ) | {"SINKS": json.dumps(sinks)}
    process = Process(tmp_path, **options)
    github.app.webhook_url = f"{process.url}/api/github/webhooks"

    def check(name):
        environ = {f"OOTBOT_{name}": value for name, value in (options | {"DATA_DIR": str(tmp_path)}).items()}
        environ |= {name: os.environ[name] for name in CREDENTIALS} | {"PYTHONPATH": str(ROOT)}
        return subprocess.run(
            [sys.executable, "-m", "bot.cli", "sink", "check", name],
            cwd=tmp_path, check=False, capture_output=True, text=True, env=environ,
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
        waiting, stored = await wait_until_sent(process)
        assert (waiting, stored) == (0, 0), process.rows(
            "SELECT sink, what, count(*) FROM sink_mark GROUP BY 1, 2"
        )
        assert process.rows("SELECT * FROM sink_refused") == []
        assert {row["sink"] for row in process.rows("SELECT sink FROM sink_state WHERE sent > 0")} == set(
            sinks
        )
        for name in sinks:
            done = await asyncio.to_thread(check, name)
            assert done.returncode == 0, done.stdout + done.stderr
    finally:
        process.kill()
        await process.ended()


async def wait_until_sent(process):
    """Wait until nothing is left, or nothing moves any more; returns how many marks and deliveries wait."""
    least, idle = None, 0
    while idle < LOOKS:
        await asyncio.sleep(0.5)
        waiting = process.rows("SELECT count(*) AS n FROM sink_mark")[0]["n"]
        stored = process.rows("SELECT count(*) AS n FROM delivery WHERE state = 'stored'")[0]["n"]
        if not waiting and not stored:
            break
        idle = 0 if least is None or waiting + stored < least else idle + 1
        least = min(waiting + stored, least or waiting + stored)
    return waiting, stored


async def work(github):
    """Run jobs until this is cancelled; what is not answered is lost here, as GitHub would send it again."""
    while True:
        run = await github.start_run(UPSTREAM, event="push")
        for number in range(5):
            job = await github.start_job(run, f"job {number}")
            await github.finish_job(job, "success")
        await github.finish_run(run, "success")
