"""How long does `ootbot serve` take to start, and how much memory does it occupy?"""

from __future__ import annotations

import tempfile
import time

from benchmarks.support import deliveries, generator
from benchmarks.support.machine import figure
from benchmarks.support.serve import Bot, by_default
from benchmarks.webhooks.rates import FAMILY, SETTLED, serving


def starts(rounds: int, settled: float = SETTLED) -> dict:
    """Seconds until it says where it listens, and memory once its start is over."""
    took: dict[str, list[float]] = {}
    sizes: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        with Bot(folder):  # makes the database, and whatever Python compiles
            pass
        for _ in range(rounds):
            for processes in (1, FAMILY):
                name = serving(processes)
                with Bot(folder, processes=processes) as bot:
                    took.setdefault(name, []).append(bot.ready_after)
                    time.sleep(settled)
                    for kind, size in bot.memory_mb().items():
                        sizes.setdefault(f"{name}, {kind}", []).append(size)
    return {
        **{f"{name}, start to ready, s": figure(values, 2) for name, values in took.items()},
        **{name: figure(values) for name, values in sizes.items()},
    }


def under_load(count: int) -> dict:
    """Memory while many deliveries come in and are applied, sent in parts of which the sizes are noted."""
    sizes, sent = [], 0
    with tempfile.TemporaryDirectory() as folder, Bot(folder) as bot:
        while sent < count:
            sent += generator.run(bot.port, deliveries.same_job(), seconds=5, count=count - sent)["answers"]
            sizes.append(bot.memory_mb()["pss_mb"])
    return {
        f"{serving(by_default())}, pss_mb, first and last of so many deliveries": [sizes[0], sizes[-1], sent]
    }
