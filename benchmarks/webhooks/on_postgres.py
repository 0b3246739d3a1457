"""What does `ootbot serve` do on PostgreSQL, and what does a second process add?

Processes, database and generator share all cores.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from typing import TYPE_CHECKING

from benchmarks.support import deliveries, generator
from benchmarks.support.machine import figure, ratio
from benchmarks.support.postgres import postgres
from benchmarks.support.process_tree import family_cpu
from benchmarks.support.serve import Bot, until
from benchmarks.webhooks.rates import SETTLED

if TYPE_CHECKING:
    from benchmarks.support.postgres import Postgres

WORKERS = (1, 2)
WAITING = "SELECT count(*) FROM delivery WHERE state = 'stored'"
ASIDE = "SELECT count(*) FROM delivery WHERE state = 'foreign'"  # which nobody applies
PUT_ASIDE = "UPDATE delivery SET state = 'foreign' WHERE state = 'stored'"
GIVE = "UPDATE delivery SET state = 'stored' WHERE state = 'foreign'"
FIRST, LAST = 0.1, 0.9  # parts of a backlog between which its drain is timed: all processes are at work then


def measure(rounds: int, seconds: float, backlog_of: int) -> tuple[dict, dict]:
    """Return our figures, and the ratios."""
    taken: list[float] = []
    drained: dict[int, list[float]] = {workers: [] for workers in WORKERS}
    busy: dict[int, list[float]] = {workers: [] for workers in WORKERS}  # cores
    with postgres() as database, tempfile.TemporaryDirectory() as folder:
        for turn in range(rounds):
            with Bot(folder, ROLE="web", DATABASE_URL=database.url) as bot:
                if not turn:
                    time.sleep(SETTLED)
                sent = deliveries.same_job()
                taken.append(generator.run(bot.port, sent, seconds=seconds)["per_second"])
            for workers, rates in drained.items():
                with Bot(folder, ROLE="web", DATABASE_URL=database.url) as bot:
                    sent = deliveries.jobs(backlog_of)
                    generator.run(bot.port, sent, seconds=60, count=backlog_of)
                database.run(PUT_ASIDE)
                rate, cores = _drain(database, folder, workers)
                rates.append(rate)
                busy[workers].append(cores)
    own: dict = {"postgres, role web, deliveries of 9 KB per second": figure(taken)}
    for n in WORKERS:
        named = f"{n} worker{'s' * (n > 1)}"
        own[f"postgres, applied per second, {named}"] = figure(drained[n], 0)
        own[f"postgres, cores that {named} and the database use"] = figure(busy[n], 2)
    most = [(os.cpu_count() or 1) / cores for cores in busy[1]]
    return own, {
        "postgres, 2 workers / 1, applied per second": ratio(drained[2], drained[1]),
        "the same, if two used every core for what one does": figure(most, 2),
    }


def _drain(database: Postgres, folder: str, workers: int) -> tuple[float, float]:
    """Return the deliveries a second that so many processes apply of what was put aside, and the cores in use."""
    total = database.number(ASIDE)
    first, last = (round(total * (1 - part)) for part in (FIRST, LAST))
    with contextlib.ExitStack() as stack:
        bots = [
            stack.enter_context(Bot(folder, ROLE="worker", DATABASE_URL=database.url)) for _ in range(workers)
        ]

        def used() -> float:
            return family_cpu(database.pid) + sum(bot.cpu() for bot in bots)

        time.sleep(SETTLED)
        database.run(GIVE)  # once all of them are there
        until(lambda: database.number(WAITING) <= first, "the beginning of the backlog")
        began, before = time.perf_counter(), used()
        until(lambda: database.number(WAITING) <= last, "the end of the backlog")
        took, cores = time.perf_counter() - began, used() - before
        until(lambda: not database.number(WAITING), "the rest")
    return (first - last) / took, cores / took
