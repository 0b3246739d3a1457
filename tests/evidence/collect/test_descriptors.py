"""What the children that read files of strangers inherit: nothing but their own pipes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest

from bot.core.clock import SystemClock
from tests.harness import UPSTREAM
from tests.process import Process, options_for, until


@pytest.fixture
def clock():
    return SystemClock()


def children(ancestor):
    """Return the processes that parse, of a bot."""
    parents, parsing = {}, []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            if b"parse.child import main" in (path / "cmdline").read_bytes():
                parsing.append(path)
        except OSError:  # it has ended
            continue
    return [path for path in parsing if ancestor in set(_line(parents, int(path.name)))]


def _line(parents, process):
    while process in parents:
        yield process
        process = parents[process]


def descriptors(process):
    found = {}
    for one in (process / "fd").iterdir():
        try:
            found[int(one.name)] = str(one.readlink())
        except OSError:  # it has ended, or closed that one
            continue
    return found


async def test_a_parser_child_has_no_connection_and_no_lock(github, issuer, tmp_path, app_key):
    options = options_for(
        tmp_path, private_key=app_key, app_id=github.app.app_id, api_url=github.api_url, issuer=issuer
    )
    process = Process(tmp_path, **options | {"PROCESSES": "3"})
    github.app.webhook_url = f"{process.url}/api/github/webhooks"
    try:
        ready = await process.start()
        await ready.wait()
        async with aiohttp.ClientSession() as http:  # connections that stay open, of more than one process
            for path in ("/readyz", f"/{UPSTREAM}", "/metrics"):
                await (await http.get(process.url + path)).read()
            run = await github.start_run(UPSTREAM, event="push")
            job = await github.start_job(run, "build")
            await github.finish_job(job, "failure", log="FAILED t.py::test_a\n")

            def stored():
                return process.rows("SELECT state FROM ci_fetch WHERE state = 'stored'")

            await until(stored, what="a log", again=lambda: asyncio.sleep(0.2))
            mine = children(process.pid)
            assert mine
            seen = [descriptors(one) for one in mine]
        assert [set(one) for one in seen] == [{0, 1, 2, 3}] * len(seen), seen  # 3: its replies
    finally:
        process.kill()
        await process.ended()
