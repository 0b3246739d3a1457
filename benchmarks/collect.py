"""What collecting costs webhooks: answers at 500 deliveries a second while logs are fetched, and while nothing is.

    python3 dev.py bench collect [--rounds 5] [--seconds 6] [--rate 500] [--jobs 300] [--megabytes 2] [--json]

`ootbot serve` on SQLite, its parser child included, keeps to one core; a GitHub with the logs of failed jobs and the
generator share the other one. Both kinds of rounds get the same deliveries before and are interleaved; in one of them
CI is off. Budgets are raised, so that logs come as fast as they can.
"""  # fmt: skip

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.ingest import load, vary
from benchmarks.support.failing_jobs import REPO
from benchmarks.support.load import SECRET, pin, workflow_job
from benchmarks.support.machine import describe, free_port, median, show

if TYPE_CHECKING:
    from collections.abc import Iterator

FAILING = Path(__file__).parent / "support" / "failing_jobs.py"
PATIENCE = 120.0  # seconds for anything
SETTLED = 9.0  # seconds after the start, whose own work would be measured else
AHEAD = 3  # logs that are stored before the measuring begins
STORED = "SELECT count(*) FROM ci_fetch WHERE kind = 'log' AND state = 'stored'"
JOBS = "SELECT count(*) FROM workflow_job"


class Bot:
    """`ootbot serve` as a process."""

    def __init__(self, folder: str, github: dict, *, collects: bool) -> None:
        self.port, self._database = free_port(), Path(folder) / "ootbot.db"
        (Path(folder) / "allowlist.yml").write_text("L1: []\n")
        options = {
            "APP_ID": github["app_id"], "PRIVATE_KEY": github["key"], "WEBHOOK_SECRET": SECRET, "UPSTREAM_REPO": REPO,
            "ALLOWLIST": Path(folder) / "allowlist.yml", "GITHUB_API_URL": github["api_url"], "DATA_DIR": folder,
            "PORT": self.port, "LOG_LEVEL": "error", "CI": "upstream" if collects else "off",
            "CI_CALLS_PER_HOUR": 10**6, "CI_BYTES_PER_HOUR": "1TiB",
        }  # fmt: skip
        environ = {name: value for name, value in os.environ.items() if not name.startswith("OOTBOT_")}
        environ |= {f"OOTBOT_{name}": str(value) for name, value in options.items()}
        pinned = ["taskset", "-c", "0"] if shutil.which("taskset") else []
        command = [*pinned, sys.executable, "-m", "bot.cli", "serve"]
        environ["PYTHONPATH"] = str(Path(__file__).parent.parent)
        self.process = subprocess.Popen(
            command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    @property
    def webhooks(self) -> str:
        return f"http://127.0.0.1:{self.port}/api/github/webhooks"

    def answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/healthz", timeout=1):
                return True
        except (OSError, urllib.error.URLError):
            return False

    def count(self, query: str) -> int:
        with contextlib.closing(sqlite3.connect(f"file:{self._database}?mode=ro", uri=True)) as database:
            return database.execute(query).fetchone()[0]

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(PATIENCE)


@contextlib.contextmanager
def failing(jobs: int, size: int) -> Iterator[tuple[subprocess.Popen, dict]]:
    command = [sys.executable, str(FAILING), str(jobs), str(size)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process, json.loads(process.stdout.readline())
    finally:
        process.kill()
        process.wait()


def until(condition, what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"waited {PATIENCE:.0f} s for {what}")
        time.sleep(0.1)


def measured(options, *, collects: bool) -> dict:
    """One round: the answers, and how many logs were stored meanwhile."""
    size = round(options.megabytes * 1_000_000)
    with tempfile.TemporaryDirectory() as folder, failing(options.jobs, size) as (process, github):
        bot = Bot(folder, github, collects=collects)
        try:
            until(bot.answers, "the bot")
            started = time.monotonic()
            process.stdin.write(bot.webhooks + "\n")
            process.stdin.flush()
            process.stdout.readline()
            ahead = min(AHEAD, options.jobs)
            until(lambda: bot.count(JOBS) >= options.jobs, "the deliveries")
            if collects:
                until(lambda: bot.count(STORED) >= ahead, "the first logs")
            time.sleep(max(started + SETTLED - time.monotonic(), 0))
            before, began = bot.count(STORED), time.monotonic()
            found = load(bot, "workflow_job", workflow_job(), options.seconds, rate=options.rate, vary=vary)
            stored, took = bot.count(STORED) - before, time.monotonic() - began
            return found | {
                "logs_per_second": stored / took,
                "left": options.jobs - before - stored if collects else None,
            }
        finally:
            bot.end()


def spread(values: list[float]) -> str:
    return f"{min(values):.1f} to {max(values):.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--rate", type=float, default=500)
    parser.add_argument("--jobs", type=int, default=300, help="failed jobs whose logs are fetched in a round")
    parser.add_argument("--megabytes", type=float, default=2, help="size of a log")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    pin(1)
    rounds: dict[bool, list[dict]] = {False: [], True: []}
    for _ in range(options.rounds):
        for collects, taken in rounds.items():
            taken.append(measured(options, collects=collects))
    off, on = ([one["p99_ms"] for one in rounds[collects]] for collects in (False, True))
    result = {
        "name": "collect",
        "machine": describe(),
        "rounds": options.rounds,
        "ours": {
            "p99_ms_without": median(off),
            "p99_ms_without_spread": spread(off),
            "p99_ms_collecting": median(on),
            "p99_ms_collecting_spread": spread(on),
            "p50_ms_without": median([one["p50_ms"] for one in rounds[False]]),
            "p50_ms_collecting": median([one["p50_ms"] for one in rounds[True]]),
            "answers_per_second_collecting": median([one["per_second"] for one in rounds[True]]),
            "logs_per_second": median([one["logs_per_second"] for one in rounds[True]]),
            "least_logs_left": min(one["left"] for one in rounds[True]),
        },
        "ratios": {
            "p99 collecting / without": round(statistics.median(on) / statistics.median(off), 2),
            "p99 collecting / without, round by round": [
                round(a / b, 2) for a, b in zip(on, off, strict=True)
            ],
        },
    }
    show(result, as_json=options.json)


if __name__ == "__main__":
    main()
