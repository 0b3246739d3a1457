"""Speed of the pages over many rows, and of webhooks received meanwhile.

    python3 dev.py bench hud [--rows 1000000] [--cells 200000] [--seconds 10] [--views 120] [--keep FOLDER] [--json]

SQLite with that many job rows of 200 backends over 90 days. Pages are made afresh (no cache) one after the other, then
20 a second while 200 webhooks a second come in, then 200 a second over 20 addresses with the cache, each seen once
before. `ootbot serve`, as users start it, and the generator keep to one core each. The grid of a branch is 50 commits
of 300 jobs, each with 1.3 runs, out of as many runs as --cells says: 5,000,000 take some ten minutes to write.
"""  # fmt: skip

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import os
import random
import sqlite3
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import aiohttp
import uvloop

from benchmarks.support import trunk
from benchmarks.support.load import SECRET, Load, Requests, pin, workflow_job
from benchmarks.support.machine import Server, describe, free_port, show
from bot.app import make_context
from bot.core import log_output
from bot.core.settings import Settings
from bot.demo.github.auth import private_key
from bot.ingest.tables import records, repository_name
from bot.oot.allowlist.refresh import refresh
from bot.oot.results import jobs
from bot.oot.results.tables import oot_dispatch, oot_workflow_job
from bot.oot.statistics import rollup
from bot.oot.verdict.tables import oot_compared

ROOT = Path(__file__).parent.parent
NOBODY = "http://127.0.0.1:9"  # in place of GitHub
UPSTREAM, SHA = "org/upstream", "{:040x}"
BACKENDS, DAYS, DAY = 200, 90, 86_400_000
WIDE = 30  # jobs of the first backend; the others have two
PULL = 7  # the number of the newest pull request; older ones count up from there
HEADS = 3  # of a pull request
OPEN = 250  # newest pull requests; of the newest of these every twentieth backend has not answered yet
AWAITED = 10
TRUNK = "c" * 40  # a pushed commit that every backend tested


def backend(number: int) -> str:
    return f"lab{number % 17}/backend-{number:03}"


def allowlist() -> str:
    lines = {2: [], 3: [], 4: []}
    for number in range(BACKENDS):
        level = 2 if number % 4 else 3 if number % 8 else 4
        lines[level].append(number)
    text = "L2:\n" + "".join(f"  - {backend(number)}: [on{number}, call{number}]\n" for number in lines[2])
    for level in (3, 4):
        text += f"L{level}:\n" + "".join(f"  dev{n}: {{{backend(n)}: [on{n}]}}\n" for n in lines[level])
    return text


def settings(folder: str, port: int, *, cache: int) -> Settings:
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    (path / "allowlist.yml").write_text(allowlist())
    return Settings(
        app_id=1, webhook_secret=(SECRET,), private_key=private_key(), upstream_repo=(UPSTREAM,),
        github_api_url=NOBODY,
        allowlist=str(path / "allowlist.yml"), data_dir=path, port=port, page_cache=cache,
    )  # fmt: skip


async def fill(folder: str, rows: int, cells: int) -> None:
    """Write the rows as reports would have left them, and the days they add up to."""
    chosen = settings(folder, 1, cache=0)
    async with make_context(chosen) as context:
        await refresh(context)
        now = context.clock.now()
        write_rows(chosen.data_dir / "ootbot.db", rows, cells, now)
        async with context.store.transaction() as tx:
            await rollup.mark_days(tx, [(day, backend(n)) for day in days(now) for n in range(BACKENDS)])
        await rollup.run(context, None)
        await trunk.count(context)


def days(now: int) -> range:
    """Every day that the rows may fall on."""
    return range(now // DAY - DAYS - 1, now // DAY + 1)


def write_rows(path: Path, rows: int, cells: int, now: int) -> None:
    """Write pull requests' heads until there are so many rows, one pushed commit, and a branch."""
    plain = sqlite3.connect(path, isolation_level=None)
    plain.execute("PRAGMA synchronous=OFF")
    heads = max(rows // ((BACKENDS - 1) * 2 + WIDE), 1)
    chance = random.Random(1)
    for start in range(0, heads, 50):
        plain.execute("BEGIN")
        for head in range(start, min(start + 50, heads)):
            at = now - 120_000 - (heads - 1 - head) * (DAYS * DAY // heads)
            dispatches, reported = head_rows(chance, head, heads, at)
            insert(plain, oot_dispatch, dispatches)
            insert(plain, oot_workflow_job, reported)
            if (heads - 1 - head) % HEADS == 0:
                insert(plain, records["pull_request"], [pull_row(head, heads, at)])
                insert(
                    plain, oot_compared, [compared(row) for row in reported if row["conclusion"] == "failure"]
                )
        plain.execute("COMMIT")
    plain.execute("BEGIN")
    for table, rows in zip(
        (oot_dispatch, oot_workflow_job), head_rows(chance, heads, heads, now), strict=True
    ):
        insert(plain, table, [row | PUSHED for row in rows])
    insert(plain, records["repository"], [PUBLIC])
    insert(plain, repository_name, [{"repository_id": 1, "name": UPSTREAM.casefold()}])
    plain.execute("COMMIT")
    trunk.write(plain, insert, cells, now)
    plain.close()


PUBLIC = {
    "repository_id": 1,
    "id": 1,
    "repo": UPSTREAM,
    "full_name": UPSTREAM,
    "private": False,
    "default_branch": "main",
    "received_at": 0,
    "merge_state": "{}",
}
PUSHED = {"pr_number": None, "event_type": "push", "head_sha": TRUNK}


def insert(plain, table, rows) -> None:
    names = list(rows[0])
    marks = ", ".join("?" * len(names))
    plain.executemany(
        f"INSERT INTO {table.name} ({', '.join(names)}) VALUES ({marks})",
        [tuple(row.values()) for row in rows],
    )


def head_rows(chance, head: int, heads: int, at: int) -> tuple[list, list]:
    """One head of a pull request: a dispatch to every backend, and their jobs."""
    back = (heads - 1 - head) // HEADS
    number, sha = PULL + back, SHA.format(head)
    dispatches, reported = [], []
    for n in range(BACKENDS):
        name, level = backend(n), 2 if n % 4 else 3 if n % 8 else 4
        made = f"{head}-{n}"
        silent = back < AWAITED and n % 20 == 3
        dispatches.append({
            "id": made, "delivery_id": f"d{head}", "source_guid": f"d{head}", "upstream_repo": UPSTREAM,
            "event_type": "pull_request", "action": "synchronize", "pr_number": number, "head_sha": sha, "labels": "[]",
            "backend": name, "backend_key": name, "level": level, "device": f"dev{n}" if level > 2 else None,
            "state": "sent", "attempts": 1, "created_at": at, "dispatched_at": at,
            "heard_at": None if silent else at, "token_jti": "x",
        })  # fmt: skip
        for job in range(0 if silent else WIDE if n == 0 else 2):
            passed = chance.random() < 0.93 - (n % 10) / 50
            failed = (
                None
                if passed
                else json.dumps([{"name": f"test_{chance.randint(1, 40)}", "message": "3 != 4"}] * 2)
            )
            row = jobs.BLANK | {
                "dispatch_id": made, "status": "completed", "conclusion": "success" if passed else "failure",
                "downstream_repo": name, "upstream_repo": UPSTREAM, "pr_number": number, "head_sha": sha,
                "delivery_id": f"d{head}", "workflow_name": "CI", "job_name": f"job {job}", "run_id": f"9{made}",
                "run_attempt": 1, "source": "callback", "queue_time": chance.uniform(5, 300),
                "execution_time": chance.uniform(60, 7_000), "started_at": at, "completed_at": at + 60_000,
                "failed_tests": None if passed else 2, "failed_tests_json": failed, "passed_tests": 800,
                "downstream_repo_level": level, "event_type": "pull_request", "flags": "{}", "received_at": at,
                "updated_at": at + 60_000, "workflow_run_url": f"https://github.com/{name}/actions/runs/9{head}",
            }  # fmt: skip
            reported.append(row | {"job_key": jobs.job_key(row)})
    return dispatches, reported


def compared(row: dict) -> dict:
    """What publishing has found out about a failed job and keeps."""
    return {
        "job_key": row["job_key"], "completed_at": row["completed_at"], "history": "known",
        "url": row["workflow_run_url"], "elsewhere": True,
    }  # fmt: skip


def pull_row(head: int, heads: int, at: int) -> dict:
    """The pull request that a head is the newest of."""
    back = (heads - 1 - head) // HEADS
    number = PULL + back
    return {
        "repository_id": 1, "repo": UPSTREAM, "received_at": at, "id": number, "number": number, "labels": "[]",
        "title": f"Multiply small matrices without a copy, part {number}", "user_login": f"person{number % 40}",
        "state": "open" if back < OPEN else "closed", "draft": False, "merged": back >= OPEN, "base_ref": "main",
        "head_sha": SHA.format(head), "created_at": at, "updated_at": at, "merge_state": "{}",
    }  # fmt: skip


PAGES = {
    "summary": "/oot",
    "summary_90_days": "/oot?days=90",
    "backend": f"/oot/{backend(1)}",
    "pull": f"/{UPSTREAM}/pull/{PULL}",
    "matrix_50x30": f"/oot/{backend(0)}?columns=all",
    "metrics": "/oot/metrics",
    "levels": "/oot/levels",
    "commit": f"/{UPSTREAM}/commit/{TRUNK}",
    **trunk.paths(UPSTREAM),
}
NONE_GOOD = {PAGES["last_good"]: 404}  # the longest search


def started(folder: str, cache: int) -> Server:
    """`ootbot serve` as its users start it."""
    path, port = Path(folder), free_port()
    options = {
        "APP_ID": "1", "WEBHOOK_SECRET": SECRET, "PRIVATE_KEY": private_key(), "UPSTREAM_REPO": UPSTREAM,
        "GITHUB_API_URL": NOBODY, "ALLOWLIST": str(path / "allowlist.yml"), "DATA_DIR": str(path),
        "PORT": str(port), "PAGE_CACHE": str(cache), "LOG_LEVEL": "error",
    }  # fmt: skip
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OOTBOT_")}
    environment |= {f"OOTBOT_{name}": value for name, value in options.items()}
    environment["PYTHONPATH"] = str(ROOT)
    command = (sys.executable, "-m", "bot.cli", "serve")
    return Server(*command, port=port, says="ootbot ", core=0, environment=environment)


async def one_by_one(server: Server, count: int) -> dict:
    """Milliseconds of each page, made afresh, one after the other in turn; and how long each is.

    Processor time is the server's: on a machine shared with other work it says more than the clock.
    """
    took, worked, sizes = {name: [] for name in PAGES}, {name: [] for name in PAGES}, {}
    async with aiohttp.ClientSession(auto_decompress=False, headers={"Accept-Encoding": "identity"}) as http:
        for number in range(count + 3):
            for name, path in PAGES.items():
                began, busy = time.perf_counter(), server.cpu()
                async with http.get(f"http://127.0.0.1:{server.port}{path}") as answer:
                    body = await answer.read()
                if answer.status != NONE_GOOD.get(path, 200):
                    raise RuntimeError(f"{path}: {answer.status} {body[:300]}")
                sizes[f"{name}_kb"] = round(len(body) / 1024, 1)
                if path.startswith(("/hud/", "/api/ci/hud/")):
                    sizes[f"{name}_gzip_kb"] = round(len(gzip.compress(body, 6)) / 1024, 1)
                if number >= 3:
                    took[name].append((time.perf_counter() - began) * 1000)
                    worked[name].append((server.cpu() - busy) * 1000)
    found = {f"{name}_p50_ms": round(statistics.median(times), 1) for name, times in took.items()}
    found |= {
        f"{name}_p95_ms": round(sorted(times)[int(len(times) * 0.95)], 1) for name, times in took.items()
    }
    found |= {f"{name}_cpu_ms": round(statistics.median(times), 1) for name, times in worked.items()}
    return found | sizes


async def views(port: int, paths: list[str], *, rate: float, seconds: float) -> list[float]:
    """Look at pages at that rate, whatever the answers take; returns milliseconds."""
    took = []

    async def view(http, path):
        began = time.perf_counter()
        async with http.get(f"http://127.0.0.1:{port}{path}") as answer:
            await answer.read()
            if answer.status != 200:
                raise RuntimeError(f"{path}: {answer.status}")
        took.append((time.perf_counter() - began) * 1000)

    async with aiohttp.ClientSession(auto_decompress=False) as http:
        running, began = [], time.perf_counter()
        for number in range(int(rate * seconds)):
            await asyncio.sleep(max(0, began + number / rate - time.perf_counter()))
            running.append(asyncio.create_task(view(http, paths[number % len(paths)])))
        await asyncio.gather(*running)
    return sorted(took)


async def together(port: int, paths: list[str], *, rate: float, seconds: float) -> dict:
    """Page views while 200 webhooks a second come in."""
    webhooks = Load(
        Requests("/api/github/webhooks", "workflow_job", workflow_job()),
        connections=16,
        seconds=seconds,
        rate=200,
    )
    seen, received = await asyncio.gather(
        views(port, paths, rate=rate, seconds=seconds), webhooks.run("127.0.0.1", port)
    )
    return {
        "views": len(seen),
        "views_p50_ms": round(seen[len(seen) // 2], 1),
        "views_p95_ms": round(seen[int(len(seen) * 0.95)], 1),
        "webhooks_per_second": received["per_second"],
        "webhooks_p99_ms": received["p99_ms"],
        "answers_other_than_202": received["answers"] - received["statuses"].get("202", 0),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--cells", type=int, default=200_000, help="runs of jobs on the commits of a branch")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--views", type=int, default=120, help="of each page, made afresh")
    parser.add_argument("--keep", help="a folder for the database, used again when it is there")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    pin(1)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or temporary
        began = time.monotonic()
        if not (Path(folder) / "ootbot.db").exists():
            uvloop.run(fill(folder, options.rows, options.cells))
        filled = round(time.monotonic() - began)
        result = {
            "name": "hud",
            "machine": describe(),
            "rounds": options.views,
            "ours": measure(folder, options),
        }
    result["ours"] |= {"rows": options.rows, "cells": options.cells, "seconds_to_fill": filled}
    show(result | {"peers": {}, "ratios": {}}, as_json=options.json)


def measure(folder: str, options) -> dict:
    with started(folder, 0) as server:
        found = uvloop.run(one_by_one(server, options.views))
        fresh = uvloop.run(together(server.port, list(PAGES.values())[:4], rate=20, seconds=options.seconds))
        found["resident_mb"] = server.resident_mb()
    many = [f"/oot/{backend(number)}" for number in range(1, 17)] + list(PAGES.values())[:4]
    with started(folder, 5) as server:
        # each once: what it reads is warm
        uvloop.run(views(server.port, many, rate=10, seconds=len(many) / 10))
        kept = uvloop.run(together(server.port, many, rate=200, seconds=options.seconds))
    found |= {f"20_views_a_second_{name}": value for name, value in fresh.items()}
    return found | {f"200_cached_views_a_second_{name}": value for name, value in kept.items()}


if __name__ == "__main__":
    log_output.configure(fmt="console", level="critical")
    main()
