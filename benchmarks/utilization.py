"""Cost of utilization: a long usage log read, its page drawn, and a report over a month.

    python3 dev.py bench utilization [--rounds 7] [--views 60] [--json]

The log: six hours at five seconds, eight accelerators, random walks, which compress worst. Reading is what the parser
child does with it, in a process of its own, and its most memory. The report: 30 days of 400 jobs in 100 groups.
Figures are of the processor time of `ootbot serve`, one process on one core; wall time beside them.
"""  # fmt: skip

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import aiohttp
import msgspec
import sqlalchemy as sa
import uvloop

from benchmarks.support.load import SECRET, pin
from benchmarks.support.machine import describe, show
from benchmarks.support.serve import Bot
from bot.app import make_context
from bot.core import log_output
from bot.core.settings import Settings
from bot.demo.github.auth import private_key
from bot.evidence.collect.blobs import BLOBS
from bot.evidence.collect.receivers import Fetched
from bot.evidence.usage import store_usage
from bot.evidence.usage.daily_sums import SPANS, UsageSums, first_day, groups_of
from bot.evidence.usage.tables import utilization_day, utilization_job
from bot.ingest.tables import records, repository_name

UPSTREAM, START = "org/upstream", 1_790_000_000
RECORDS, ACCELERATORS, INTERVAL = 4_320, 8, 5
DAYS, JOBS, GROUPS = 30, 400, 100
DAY = 86_400_000


def made_up() -> bytes:
    """Return the log."""
    chance = random.Random(1)
    level = [50.0] * (2 + 3 * ACCELERATORS)

    def walk(at: int, lowest: float = 0.0) -> dict:
        level[at] = min(98.0, max(lowest, level[at] + chance.uniform(-3, 3)))
        return {"avg": round(level[at], 2), "max": round(level[at] + 1.3, 2)}

    first = {
        "level": "metadata", "workflow_id": "", "job_id": "", "workflow_name": "pull", "job_name": "test",
        "start_at": START, "usage_collect_interval": 1.0, "data_model_version": 1.5, "gpu_type": "pynvml",
        "gpu_count": ACCELERATORS, "cpu_count": 48, "error": None,
    }  # fmt: skip
    lines = [first]
    for at in range(RECORDS):
        gpus = []
        for number in range(ACCELERATORS):
            used, moved, held = (walk(2 + 3 * number + part) for part in range(3))
            gpus.append(
                {
                    "uuid": f"GPU-{number}", "util_percent": used, "mem_util_percent": moved,
                    "allocated_mem_percent": held, "total_mem_value": 65536.0,
                    "allocated_mem_value": {name: round(value * 655.36, 2) for name, value in held.items()},
                }
            )  # fmt: skip
        commands = [f"python test/test_{(at // 200 + part) % 60}.py --shard-id {part}" for part in range(4)]
        data = {"cpu": walk(0), "memory": walk(1), "gpu_usage": gpus}
        lines.append(
            {
                "level": "record",
                "timestamp": START + at * INTERVAL,
                "data": data,
                "cmd_names": commands,
                "error": None,
            }
        )
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


# what the child loads, and no more; it prints seconds of processor time and the most memory
CHILD = """
import sys, time, json, pathlib
sys.path.insert(0, sys.argv[1])
from bot.evidence.collect.parse import child as parser_child
from bot.evidence.collect.parse.contract import ParserInput
from bot.evidence.usage.parse import parse_usage
import msgspec
path = pathlib.Path(sys.argv[2])
began = time.process_time()
answer = parse_usage.parse_log(ParserInput(path=path, blob=path.with_name("series"), members=(), options=None))
path.with_name("answer").write_bytes(msgspec.msgpack.encode(answer))
took = time.process_time() - began
(most,) = (line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps({"ms": took * 1000, "resident_mb": int(most.split()[1]) / 1024}))
"""


def settings(folder: str) -> Settings:
    path = Path(folder)
    (path / "allowlist.yml").write_text("L1: []\n")
    return Settings(
        app_id=1, webhook_secret=(SECRET,), private_key=private_key(), upstream_repo=(UPSTREAM,), data_dir=path, port=1,
        github_api_url="http://127.0.0.1:9", allowlist=str(path / "allowlist.yml"), page_cache=0,
    )  # fmt: skip


async def fill(context, folder: Path) -> None:
    """Write the repository, a job with the log's series, and a month of sums."""
    now = context.clock.now()
    repository = {
        "repository_id": 1, "id": 1, "repo": UPSTREAM, "full_name": UPSTREAM, "private": False,
        "default_branch": "main", "received_at": 0, "merge_state": {},
    }  # fmt: skip
    job = {
        "repository_id": 1, "repo": UPSTREAM, "received_at": 0, "id": 77, "run_id": 9, "run_attempt": 1, "name": "test",
        "workflow_name": "pull", "status": "completed", "conclusion": "success", "head_sha": "a" * 40,
        "merge_state": {}, "labels": ["gpu.8"], "started_at": START * 1000, "completed_at": now,
    }  # fmt: skip
    async with context.store.transaction() as tx:
        await tx.run(sa.insert(records["repository"]).values(repository))
        await tx.run(sa.insert(repository_name).values(repository_id=1, name=UPSTREAM))
        await tx.run(sa.insert(records["workflow_job"]).values(job))
    await context.resource(BLOBS).put("util/1", folder / "series")
    fetched = Fetched(
        repository_id=1, repo=UPSTREAM, source="artifact", kind="usage", object_id=1, run_id=9, run_attempt=1,
        job_id=77, name="usage-log", head_sha="a" * 40, trusted=True, private=False, size=1, sha256="",
    )  # fmt: skip
    log = msgspec.msgpack.decode((folder / "answer").read_bytes(), type=store_usage.ParsedUsage)
    async with context.store.transaction() as tx:
        await store_usage.store_log(tx, context, fetched, log, "util/1")
        (stored,) = await tx.rows(sa.select(utilization_job))
        merged = defaultdict(UsageSums)
        for back in range(DAYS):
            add_day(merged, stored, now // DAY - back)
        await tx.run(sa.delete(utilization_day))
        await tx.run(
            sa.insert(utilization_day),
            [
                {"repository_id": 1, "span": span, "day": day} | group.as_columns() | one.as_row()
                for (span, day, group), one in merged.items()
            ],
        )


def add_day(merged: dict, stored: dict, day: int):
    """Add the jobs of a day: to groups of jobs, to ten workflows and eight runners."""
    for number in range(JOBS):
        group = number % GROUPS
        row = stored | {
            "base_name": f"linux-{group} / test (default)", "workflow_name": f"workflow-{group % 10}",
            "runner_label": f"linux.gpu.{group % 8}", "day": day,
        }  # fmt: skip
        for counted in groups_of(row):
            for span in SPANS:
                merged[span, first_day(day, span), counted].add_job(row)


async def prepared(folder: Path) -> None:
    """Write the database that the pages are made of."""
    async with make_context(settings(str(folder))) as context:
        await fill(context, folder)


async def views(bot: Bot, count: int) -> dict:
    """Ask for pages one after the other; returns milliseconds of each, and sizes."""
    found: dict = {}
    async with aiohttp.ClientSession() as http:
        for name, path in PATHS.items():
            found |= await ask(http, bot, path, name, count)
    return found


async def ask(http: aiohttp.ClientSession, bot: Bot, path: str, name: str, count: int) -> dict:
    took, waited, size = [], [], 0
    for number in range(count + 3):
        used, began = bot.cpu(), time.perf_counter()
        async with http.get(bot.url + path) as answer:
            size = len(await answer.read())
            assert answer.status == 200, path
        if number >= 3:
            waited.append((time.perf_counter() - began) * 1000)
            took.append((bot.cpu() - used) * 1000)
    took.sort()
    waited.sort()
    return {
        f"{name}_p50_ms": round(took[len(took) // 2], 1),
        f"{name}_p95_ms": round(took[int(len(took) * 0.95)], 1),
        f"{name}_wall_p95_ms": round(waited[int(len(waited) * 0.95)], 1),
        f"{name}_kb": round(size / 1000, 1),
    }


SIX = "cpu,memory,gpu_0_util,gpu_1_util,gpu_2_util,gpu_3_util"
PATHS = {
    "page": f"/{UPSTREAM}/job/77/utilization",
    "page_of_six_series": f"/{UPSTREAM}/job/77/utilization?series={SIX}",
    "page_of_an_hour": f"/{UPSTREAM}/job/77/utilization?from={START + 3600}&to={START + 7200}",
    "report": f"/{UPSTREAM}/utilization",
    "report_json": f"/api/ci/utilization/{UPSTREAM}/report",
    "report_json_by_day": f"/api/ci/utilization/{UPSTREAM}/report?granularity=day",
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--views", type=int, default=60)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    pin(1)
    log_output.configure(fmt="json", level="warning")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        path.write_bytes(made_up())
        command = [sys.executable, "-c", CHILD, str(Path(__file__).parent.parent), str(path)]
        done = [
            json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
            for _ in range(options.rounds)
        ]
        ours = {
            "log_mb": round(path.stat().st_size / 1e6, 1),
            "read_ms": round(statistics.median(one["ms"] for one in done), 1),
            "read_resident_mb": round(max(one["resident_mb"] for one in done), 1),
            "series_kb": round(path.with_name("series").stat().st_size / 1000),
        }
        uvloop.run(prepared(Path(folder)))
        with Bot(folder, processes=1, core=0, PAGE_CACHE=0) as bot:
            ours |= uvloop.run(views(bot, options.views))
    show(
        {"name": "utilization", "machine": describe(), "rounds": options.rounds, "ours": ours},
        as_json=options.json,
    )


if __name__ == "__main__":
    main()
