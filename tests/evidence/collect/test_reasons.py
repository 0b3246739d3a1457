"""What people read on the page of a job whose log brought down what reads it."""

from __future__ import annotations

import pytest

from tests.harness import UPSTREAM
from tests.serving import SQLITE

pytestmark = SQLITE
READERS = """
import os, re, signal, sys


def log(given):
    how = given.path.read_text().strip()
    if found := re.fullmatch(r"signal (\\d+)", how):
        os.kill(os.getpid(), int(found[1]))
    elif how == "bad_alloc":
        print("terminate called after throwing an instance of 'std::bad_alloc'", file=sys.stderr)
        os.abort()
    elif how == "memory":
        bytearray(2 * 1024**3)
    elif how == "long":
        given.blob.write_bytes(bytes(70 * 1024**2))
    elif how == "exit":
        os._exit(3)
    else:
        raise ValueError(how)
"""
LIMITS = {
    "signal 11": "broken: reading it crashed the parser: Segmentation fault",
    "signal 7": "broken: reading it crashed the parser: Bus error",
    "signal 9": "broken: the system ended the parser, most likely for want of memory",
    "signal 24": "broken: reading it took too long: over 120 s of processor time",
    "bad_alloc": "broken: reading it takes more than 1,024 MiB of memory",
    "memory": "broken: reading it takes more than 1,024 MiB of memory",
    "long": "broken: what was read of it has over 64 MiB",
    "exit": "broken: the parser ended with exit code 3",
    "wrong": "broken: the parser failed: ValueError: wrong",
}


@pytest.fixture
def readers(readers, tmp_path):
    (tmp_path / "packages" / "collect_parsers.py").write_text(READERS)
    return readers


async def test_the_page_of_a_job_says_what_its_log_made_of_the_parser(bot, github):
    run = await github.start_run(UPSTREAM, event="pull_request")
    jobs = {}
    for how in LIMITS:
        jobs[how] = await github.start_job(run, f"build ({how})")
        await github.finish_job(jobs[how], "failure", log=how)
    await bot.settle(horizon=15)
    said = {}
    for how, job in jobs.items():
        log = (await bot.get(f"/api/ci/jobs/{UPSTREAM}/{job.id}"))[1]["log"]
        said[how] = f"{log['state']}: {log['reason']}"
        assert f"not available: {log['reason']}" in (await bot.get(f"/{UPSTREAM}/job/{job.id}"))[1]
    assert said == LIMITS
