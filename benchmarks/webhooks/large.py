"""Do the figures hold on a database that has grown?"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import tempfile
import time

from benchmarks.support import deliveries, generator
from benchmarks.support.machine import figure, ratio
from benchmarks.support.serve import Bot, until
from benchmarks.webhooks.applying import backlog, drain
from benchmarks.webhooks.rates import SETTLED

AT_ONCE = 500_000
DAY = 86_400  # seconds


def measure(rounds: int, seconds: float, rows: int, backlog_of: int) -> tuple[dict, dict]:
    """Return our figures and the ratios: a database with so many rows beside one that is new, in turns."""
    stored: dict[str, list] = {"none": [], "rows": []}
    applied: dict[str, list] = {"none": [], "rows": []}
    with tempfile.TemporaryDirectory() as full, tempfile.TemporaryDirectory() as new:
        for folder in (full, new):
            with Bot(folder):
                pass
        fill(full, rows)
        os.sync()  # or the disk would be at work on it during the first rounds
        with Bot(full):  # finds all of it in order, as in a database that has grown
            time.sleep(2 * SETTLED)
        for _ in range(rounds):
            for name, folder in (("none", new), ("rows", full)):
                backlog(folder, deliveries.jobs(backlog_of))
                with Bot(folder) as bot:
                    applied[name].append(drain(bot, seconds)[0])
                    until(lambda bot=bot: not bot.waiting(), "the backlog")
                    found = generator.run(bot.port, deliveries.same_job(), seconds=seconds)
                    stored[name].append(found["per_second"])
                    until(lambda bot=bot: not bot.waiting(), "the backlog")
    with_rows = f"with {rows:,} rows"
    return {
        f"deliveries per second {with_rows}": figure(stored["rows"]),
        f"applied per second {with_rows}": figure(applied["rows"], 0),
    }, {
        f"deliveries {with_rows} / without": ratio(stored["rows"], stored["none"]),
        f"applied {with_rows} / without": ratio(applied["rows"], applied["none"]),
    }


def fill(folder: str, rows: int) -> None:
    """Store that many handled deliveries and finished jobs of the last 80 days, quickly."""
    with contextlib.closing(sqlite3.connect(f"{folder}/ootbot.db", isolation_level=None)) as database:
        database.execute("PRAGMA synchronous=OFF")
        for start in range(0, rows, AT_ONCE):
            series = (
                "WITH RECURSIVE n(i) AS (SELECT :start UNION ALL SELECT i + 1 FROM n WHERE i + 1 < :end), "
                "row(i, at) AS (SELECT i, CAST(:first + i * :apart AS INTEGER) FROM n) "
            )
            numbers = {
                "start": start,
                "end": min(start + AT_ONCE, rows),
                "first": (time.time() - 80 * DAY) * 1000,
                "apart": 79 * DAY * 1000 / rows,
            }
            database.execute(
                series + "INSERT INTO delivery "
                "(guid, event, source, received_at, due_at, state, attempts, codec, body) "
                "SELECT lower(hex(randomblob(16))), 'workflow_job', 'webhook', at, 0, 'handled', 1, 'zstd', "
                "randomblob(200) FROM row",
                numbers,
            )
            database.execute(
                series
                + "INSERT INTO workflow_job (repository_id, repo, received_at, id, status, merge_state) "
                "SELECT 98, 'org/other', at, i, 'completed', '{\"v\":\"3\"}' FROM row",
                numbers,
            )
