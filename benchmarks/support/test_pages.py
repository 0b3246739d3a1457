"""Pages about very many stored tests, from `ootbot serve`: milliseconds of each, none of them asked for before."""

from __future__ import annotations

import sqlite3
import time
import urllib.request
from typing import TYPE_CHECKING

from benchmarks.support.serve import Bot
from benchmarks.support.served_lists import percentiles

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

FAILED = "SELECT DISTINCT hex(digest) FROM test JOIN test_failure ON test_id = test.id LIMIT ?"
OTHERS = "SELECT hex(digest) FROM test WHERE id % 997 = 1 LIMIT ?"
SETTLED = 9.0  # seconds after the start, whose own work would be measured else


def measure(folder: Path, repo: str, heads: Sequence[str], requests: int) -> dict:
    """Ask for pages of a repository with a database in this folder; `heads` are commits with all the tests."""
    with sqlite3.connect(folder / "ootbot.db") as db:
        known = db.execute("SELECT count(*) FROM test").fetchone()[0]
        some = [row for query in (FAILED, OTHERS) for row in db.execute(query, [requests // 2])]
    tests = f"/{repo}/tests"
    numbers = range(requests)
    asked = {
        "test": [f"/{repo}/test/{digest[:16].lower()}" for (digest,) in some],
        "list, 7 days": [f"{tests}?limit={100 - number}" for number in numbers],
        "list, 30 days": [f"{tests}?days=30&limit={100 - number}" for number in numbers],
        "list of words": [f"{tests}?sort=name&q=operator_{number}" for number in numbers],
        "comparison of two commits": [
            f"/api/ci/compare/{repo}?base={base}&head={head}" for base in heads for head in heads if base != head
        ],
    }  # fmt: skip
    with Bot(folder, UPSTREAM_REPO=repo) as bot:
        time.sleep(SETTLED)
        return {"tests": known} | {name: _asked(bot, paths) for name, paths in asked.items()}


def _asked(bot: Bot, paths: Sequence[str]) -> dict:
    took, busy = [], bot.cpu()
    for path in paths:
        began = time.perf_counter()
        with urllib.request.urlopen(bot.url + path, timeout=60) as answer:
            answer.read()
        took.append((time.perf_counter() - began) * 1000)
    return {
        "requests": len(paths),
        **percentiles(took),
        "cpu_ms": round((bot.cpu() - busy) / len(paths) * 1000, 1),
    }
