"""A month of jobs whose machines were watched, upstream's and a backend's."""

from __future__ import annotations

import tempfile
from pathlib import Path

from bot.core.json_fields import iso_time
from bot.demo import usage_logs
from bot.evidence.collect.blobs import BLOBS
from bot.evidence.collect.parse.contract import ParserInput
from bot.evidence.collect.receivers import Fetched
from bot.evidence.usage import store_usage
from bot.evidence.usage.parse import parse_usage
from tests.harness import L4, UPSTREAM

DAY = 86_400_000
JOBS = (
    "linux-npu / test (default, 1, 2, linux.npu.2)", "linux-npu / test (default, 2, 2, linux.npu.2)",
    "linux-npu / test (distributed, linux.npu.8)", "linux-jammy / build (linux.4xlarge)",
)  # fmt: skip
FIRST = 9_000_000_000  # job ids
STEPS = (
    (0, 60, "Set up job"),
    (60, 180, "Install dependencies"),
    (180, 6_900, "Run tests"),
    (6_900, 7_190, "Upload"),
)
JOB, RUN = FIRST + 1, 8_000_000_000
UNMEASURED, REFUSED = FIRST + 500_000, FIRST + 600_000


async def tell(bot, github):
    now = bot.clock.now()
    read = [
        await _read(
            bot, number, usage_logs.usage_log(name, start_at=now // 1000 - 7_800, seed=number, peak=peak)
        )
        for number, (name, peak) in enumerate(zip(JOBS, (97.4, 60.0, 71.0, 55.0), strict=True))
    ]
    told = []
    for age in range(30):
        for number, name in enumerate(JOBS):
            told.append((age, number, FIRST + 1 + len(told), L4 if number == 2 else UPSTREAM))
            await _job(bot, github, told[-1][3], told[-1][2], name, RUN + age, now - age * DAY - 600_000)
    await bot.settle()
    for age, number, job, repo in told:
        await _stored(bot, github, repo, job, RUN + age, read[number], trusted=age % 3 > 0 or number == 3)
    await _job(bot, github, UPSTREAM, UNMEASURED, "docs", RUN, now)
    await _job(bot, github, UPSTREAM, REFUSED, "lint", RUN, now)
    await bot.settle()
    refused = await _read(bot, 9, b'{"level": "metadata"}\n')
    await _stored(bot, github, UPSTREAM, REFUSED, RUN, refused, trusted=False)


async def _read(bot, number, log):
    """Read a log as the parser child does; returns its answer and its blob's key."""
    with tempfile.TemporaryDirectory() as folder:
        path, series = Path(folder) / "log", Path(folder) / "series"
        path.write_bytes(log)
        answer = parse_usage.parse_log(ParserInput(path=path, blob=series, members=(), options=None))
        key = f"util/{number}" if series.exists() else None
        if key:
            await bot.context.resource(BLOBS).put(key, series.read_bytes())
    return answer, key


async def _job(bot, github, repo, identifier, name, run, ended):
    began = ended - 7_200_000
    steps = [
        {"name": words, "number": at, "status": "completed", "conclusion": "success",
         "started_at": iso_time(began + start * 1000), "completed_at": iso_time(began + end * 1000)}
        for at, (start, end, words) in enumerate(STEPS, 1)
    ]  # fmt: skip
    job = {
        "id": identifier, "run_id": run, "run_attempt": 1, "name": name, "workflow_name": "pull", "head_sha": "ab" * 20,
        "status": "completed", "conclusion": "success", "html_url": "https://github.com/x/y/actions/runs/77",
        "labels": [name.rpartition(", ")[2].strip(")") if "(" in name else "ubuntu-latest"], "steps": steps,
        "created_at": iso_time(began - 60_000), "started_at": iso_time(began), "completed_at": iso_time(ended),
    }  # fmt: skip
    repository = {"id": github.state.repo(repo).id, "full_name": repo, "private": False}
    await bot.send("workflow_job", {"action": "completed", "repository": repository, "workflow_job": job})


async def _stored(bot, github, repo, job, run, read, *, trusted):
    fetched = Fetched(
        repository_id=github.state.repo(repo).id, repo=repo, source="artifact", kind="usage", object_id=job, run_id=run,
        run_attempt=1, job_id=job, name=f"usage-log_{job}", head_sha="ab" * 20, trusted=trusted, private=False, size=0,
        sha256="",
    )  # fmt: skip
    async with bot.context.store.transaction() as tx:
        await store_usage.store_log(tx, bot.context, fetched, *read)
