"""Speed of the pages over many rows, and of webhooks received meanwhile.

    python3 dev.py bench hud [--rows 1000000] [--cells 200000] [--seconds 10] [--views 120] [--keep FOLDER] [--json]

SQLite with that many job rows of 200 backends over 90 days. Pages are made afresh (no cache) one after the other, then
20 a second while 200 webhooks a second come in, then 200 a second over 20 addresses with the cache, each seen once
before. `ootbot serve`, as users start it, and the generator keep to one core each. The grid of a branch is 50 commits
of 300 jobs, each with 1.3 runs, out of as many runs as --cells says: 5,000,000 take some ten minutes to write.
"""  # fmt: skip

from __future__ import annotations

import argparse
import gzip
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import aiohttp
import uvloop

from benchmarks.support import trunk
from benchmarks.support.hud_rows import PULL, TRUNK, UPSTREAM, allowlist, backend, fill
from benchmarks.support.machine import Server, describe, show
from benchmarks.support.serve import Bot
from benchmarks.support.views import each_once, together
from bot.core import log_output

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


def started(folder: str, cache: int) -> Bot:
    """`ootbot serve` on the rows, on one core."""
    return Bot(folder, processes=1, core=0, allowlist=allowlist(), PAGE_CACHE=cache)


async def one_by_one(server: Server, count: int) -> dict:
    """Milliseconds of each page, made afresh, one after the other in turn; and how long each is.

    Processor time is the server's: on a machine shared with other work it says more than the clock.
    """
    took, worked, sizes = {name: [] for name in PAGES}, {name: [] for name in PAGES}, {}
    async with aiohttp.ClientSession(auto_decompress=False, headers={"Accept-Encoding": "identity"}) as http:
        for number in range(count + 3):
            for name, path in PAGES.items():
                busy, began = server.cpu(), time.perf_counter()
                async with http.get(f"http://127.0.0.1:{server.port}{path}") as answer:
                    body = await answer.read()
                waited, used = time.perf_counter() - began, server.cpu() - busy
                if answer.status != NONE_GOOD.get(path, 200):
                    raise RuntimeError(f"{path}: {answer.status} {body[:300]}")
                sizes[f"{name}_kb"] = round(len(body) / 1024, 1)
                if path.startswith(("/hud/", "/api/ci/hud/")):
                    sizes[f"{name}_gzip_kb"] = round(len(gzip.compress(body, 6)) / 1024, 1)
                if number >= 3:
                    took[name].append(waited * 1000)
                    worked[name].append(used * 1000)
    found = {f"{name}_p50_ms": round(statistics.median(times), 1) for name, times in took.items()}
    found |= {
        f"{name}_p95_ms": round(sorted(times)[int(len(times) * 0.95)], 1) for name, times in took.items()
    }
    found |= {f"{name}_cpu_ms": round(statistics.median(times), 1) for name, times in worked.items()}
    return found | sizes


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
        fresh = together(server.port, list(PAGES.values())[:4], rate=20, seconds=options.seconds)
        found |= server.memory_mb()
    many = [f"/oot/{backend(number)}" for number in range(1, 17)] + list(PAGES.values())[:4]
    with started(folder, 5) as server:
        each_once(server.port, many)
        kept = together(server.port, many, rate=200, seconds=options.seconds)
    found |= {f"20_views_a_second_{name}": value for name, value in fresh.items()}
    return found | {f"200_cached_views_a_second_{name}": value for name, value in kept.items()}


if __name__ == "__main__":
    log_output.configure(fmt="console", level="critical")
    main()
