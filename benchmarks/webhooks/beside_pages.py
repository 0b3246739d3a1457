"""What do 200 cached views a second do to 200 webhooks a second, and the other way round?"""

from __future__ import annotations

import shutil
import tempfile
import time

import uvloop

from benchmarks.support.hud_rows import PULL, UPSTREAM, allowlist, backend, fill
from benchmarks.support.machine import figure
from benchmarks.support.serve import Bot
from benchmarks.support.views import each_once, together
from benchmarks.webhooks.rates import SETTLED

RATE = 200  # views a second
ROWS, CELLS = 20_000, 2_000
VIEWED = ["/oot", "/oot?days=90", f"/{UPSTREAM}/pull/{PULL}", *(f"/oot/{backend(n)}" for n in range(17))]


def measure(rounds: int, seconds: float, rows: int = ROWS, settled: float = SETTLED) -> dict:
    found = []
    with tempfile.TemporaryDirectory() as kept:
        uvloop.run(fill(kept, rows, CELLS))
        for _ in range(rounds):
            with tempfile.TemporaryDirectory() as folder:
                shutil.copytree(kept, folder, dirs_exist_ok=True)
                with Bot(folder, allowlist=allowlist()) as bot:
                    time.sleep(settled)
                    each_once(bot.port, VIEWED)
                    found.append(together(bot.port, VIEWED, rate=RATE, seconds=seconds))
    return {
        f"{RATE}_cached_views_a_second_{name}": figure((one[name] for one in found), 2)
        for name in ("views_p50_ms", "views_p95_ms", "webhooks_p99_ms", "answers_other_than_202")
    }
