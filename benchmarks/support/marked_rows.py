"""A backlog of marks: how fast it is sent, what that takes of the processor, and whether webhooks wait for it."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.support import deliveries, generator
from benchmarks.support.serve import Bot, until
from benchmarks.webhooks.applying import HANDLED, backlog
from bot.ingest.tables import records

if TYPE_CHECKING:
    from collections.abc import Iterator

SINK, WHAT = "store", "workflow_job"
FIRST = 3  # deliveries: the job that all others are made of
MOST = 1800.0  # seconds until a backlog has to be sent
STATES = "SELECT count(*) FROM sink_state"
SENT = "SELECT coalesce(sum(sent), 0) FROM sink_state"
REFUSED = "SELECT count(*) FROM sink_refused"
JOBS = """INSERT INTO workflow_job ({names})
WITH RECURSIVE counted(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counted WHERE n < ?)
SELECT {values} FROM counted, (SELECT * FROM workflow_job LIMIT 1) AS job"""
VARIED = {
    "id": "job.id + n",
    "run_id": "job.run_id + n / 50",
    "name": "'linux / test (default, ' || n % 500 || ')'",
    "runner_name": "'runner ' || n % 900",
}
MARKS = """INSERT INTO sink_mark (sink, what, key, since, generation)
SELECT ?, ?, '[' || repository_id || ',' || id || ']', received_at, 1 FROM workflow_job"""
RESUME = ("UPDATE sink_state SET paused = 0", "UPDATE task SET due_at = 0 WHERE kind = 'sinks'")


@dataclass
class Drained:
    """What sending a backlog came to."""

    per_second: float
    processor_us: float  # of all our processes, a row
    seconds: float


@contextlib.contextmanager
def marked(size: int) -> Iterator[Path]:
    """A folder with the database of so many jobs, all marked for a sink that is paused."""
    paused = {
        "kind": "objects",
        "url": "file:///nowhere",
        "layout": "upstream",
        "what": [WHAT],
        "paused": True,
    }
    with tempfile.TemporaryDirectory() as name:
        backlog(name, deliveries.jobs(FIRST))
        with Bot(name, SINKS=json.dumps({SINK: paused})) as bot:
            until(lambda: bot.count(HANDLED) >= FIRST and bot.count(STATES), "the first job")
        _change(Path(name), "DELETE FROM sink_mark", "UPDATE sink_state SET paused = 1")
        columns = [column.name for column in records[WHAT].columns]
        values = ", ".join(VARIED.get(column, f"job.{column}") for column in columns)
        with contextlib.closing(_database(Path(name))) as file, file:
            file.execute(JOBS.format(names=", ".join(columns), values=values), (size - 1,))
            file.execute(MARKS, (SINK, WHAT))
        yield Path(name)


def drain(kept: Path, size: int, table: dict) -> Drained:
    """Have a copy of that database sent to a sink."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(kept, folder, dirs_exist_ok=True)
        with Bot(folder, SINKS=json.dumps({SINK: table | {"what": [WHAT]}})) as bot:
            _resume(bot)
            until(lambda: bot.count(SENT) > 0, "the first batch")
            first, began, used = bot.count(SENT), time.perf_counter(), bot.cpu()
            if first >= size:
                raise SystemExit("all was sent at once: more rows are needed")
            _wait_until_sent(bot, size)
            took = time.perf_counter() - began
            return Drained((size - first) / took, (bot.cpu() - used) / (size - first) * 1e6, took)


def beside_webhooks(kept: Path, size: int, table: dict, *, rate: float, seconds: float) -> dict[str, float]:
    """Return webhooks' p99 before and while a backlog is sent, and how long that takes."""
    load = {"seconds": seconds, "rate": rate}
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(kept, folder, dirs_exist_ok=True)
        with Bot(folder, SINKS=json.dumps({SINK: table | {"what": [WHAT]}})) as bot:
            sent = deliveries.same_job()
            generator.run(bot.port, sent, seconds=2, rate=rate)
            before = generator.run(bot.port, sent, **load)
            _resume(bot)
            until(lambda: bot.count(SENT) > 0, "the first batch")
            first, began = bot.count(SENT), time.perf_counter()
            meanwhile = generator.run(bot.port, sent, **load)
            while_measured = bot.count(SENT) - first
            per_second = while_measured / (time.perf_counter() - began)
            if bot.count(SENT) >= size:
                raise SystemExit("all was sent before webhooks were measured: more --marks are needed")
            _wait_until_sent(bot, size)
            took = time.perf_counter() - began
    return {
        "p99 before": before["p99_ms"],
        "p99 meanwhile": meanwhile["p99_ms"],
        "per second meanwhile": per_second,
        "seconds": took * size / (size - first),
    }


def _wait_until_sent(bot: Bot, size: int) -> None:
    end = time.monotonic() + MOST
    while bot.count(SENT) < size:
        if bot.count(REFUSED) or time.monotonic() > end:
            raise SystemExit(f"only {bot.count(SENT):,} of {size:,} rows were sent")
        time.sleep(0.1)


def _resume(bot: Bot) -> None:
    _change(bot.folder, *RESUME)


def _change(folder: Path, *statements: str) -> None:
    with contextlib.closing(_database(folder)) as file, file:
        for one in statements:
            file.execute(one)


def _database(folder: Path) -> sqlite3.Connection:
    return sqlite3.connect(folder / "ootbot.db", timeout=30)
