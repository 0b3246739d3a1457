"""What collecting costs webhooks: answers at 500 deliveries a second while logs are fetched, and while nothing is.

    python3 dev.py bench collect [--rounds 5] [--seconds 6] [--rate 500] [--jobs 300] [--megabytes 2] [--cores 2]
    python3 dev.py bench collect --cases 610000 --jobs 120

`ootbot serve` on SQLite, with its parser child, shares the cores with a GitHub that has the logs of failed jobs and
with the generator; with --cores 1 bot and child keep to one. Both kinds of rounds get the same deliveries before and
are interleaved; in one of them CI is off. Budgets are raised, so that logs come as fast as they can. With --cases, the
jobs of one run leave reports of so many tests, all of them new, instead of logs.
"""  # fmt: skip

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.support import deliveries, generator
from benchmarks.support.finished_jobs import REPO
from benchmarks.support.generator import WEBHOOKS
from benchmarks.support.machine import describe, figure, ratio, show
from benchmarks.support.serve import Bot, until

if TYPE_CHECKING:
    from collections.abc import Iterator

FINISHED = Path(__file__).parent / "support" / "finished_jobs.py"
SETTLED = 9.0  # seconds after the start, whose own work would be measured else
AHEAD = 3  # logs that are stored before the measuring begins
STORED = "SELECT count(*) FROM ci_fetch WHERE state IN ('stored', 'parsed')"
JOBS = "SELECT count(*) FROM workflow_job"


@contextlib.contextmanager
def leaving(jobs: int, size: int, cases: int) -> Iterator[tuple[subprocess.Popen, dict]]:
    """A GitHub whose jobs leave logs of so many bytes, or reports of so many tests."""
    command = [sys.executable, str(FINISHED), str(jobs), str(size), str(cases)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process, json.loads(process.stdout.readline())
    finally:
        process.kill()
        process.wait()


def started(folder: str, github: dict, options: argparse.Namespace, *, collects: bool) -> Bot:
    """`ootbot serve` with the GitHub of this round."""
    return Bot(
        folder, processes=options.processes, core=0 if options.cores == 1 else None,
        APP_ID=github["app_id"], PRIVATE_KEY=github["key"],
        UPSTREAM_REPO=REPO, GITHUB_API_URL=github["api_url"], CI="upstream" if collects else "off",
        CI_CALLS_PER_HOUR=10**6, CI_BYTES_PER_HOUR="1TiB",
    )  # fmt: skip


def measured(options, requests: list[bytes], *, collects: bool) -> dict:
    """One round: the answers, and how much was stored meanwhile."""
    size = round(options.megabytes * 1_000_000)
    with (
        tempfile.TemporaryDirectory() as folder,
        leaving(options.jobs, size, options.cases) as (process, github),
        started(folder, github, options, collects=collects) as bot,
    ):
        began = time.monotonic()
        process.stdin.write(f"{bot.url}{WEBHOOKS}\n")
        process.stdin.flush()
        process.stdout.readline()
        ahead = min(AHEAD, options.jobs)
        until(lambda: bot.count(JOBS) >= options.jobs, "the deliveries")
        if collects:
            until(lambda: bot.count(STORED) >= ahead, "the first logs or reports")
        time.sleep(max(began + SETTLED - time.monotonic(), 0))
        before, began = bot.count(STORED), time.monotonic()
        found = generator.run(bot.port, requests, seconds=options.seconds, rate=options.rate)
        stored, took = bot.count(STORED) - before, time.monotonic() - began
        return found | {
            "stored_per_second": stored / took,
            "left": options.jobs - before - stored if collects else None,
        }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--rate", type=float, default=500)
    parser.add_argument(
        "--jobs", type=int, default=300, help="jobs whose logs or reports are fetched in a round"
    )
    parser.add_argument("--megabytes", type=float, default=2, help="size of a log")
    parser.add_argument("--cases", type=int, default=0, help="tests that the jobs' reports have in all")
    parser.add_argument(
        "--cores", type=int, choices=(1, 2), default=2, help="of the bot and its parser child"
    )
    parser.add_argument("--processes", type=int, help="by default as many as `ootbot serve` starts")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rounds: dict[bool, list[dict]] = {False: [], True: []}
    for _ in range(options.rounds):
        for collects, taken in rounds.items():
            sent = deliveries.jobs(round(options.rate * options.seconds) + 1)
            taken.append(measured(options, sent, collects=collects))
    what = "reports" if options.cases else "logs"
    off, on = ([one["p99_ms"] for one in rounds[collects]] for collects in (False, True))
    result = {
        "name": "collect",
        "machine": describe(),
        "rounds": options.rounds,
        "ours": {
            "p99_ms_without": figure(off),
            "p99_ms_collecting": figure(on),
            "p50_ms_without": figure(one["p50_ms"] for one in rounds[False]),
            "p50_ms_collecting": figure(one["p50_ms"] for one in rounds[True]),
            "answers_per_second_collecting": figure(one["per_second"] for one in rounds[True]),
            f"{what}_per_second": figure(one["stored_per_second"] for one in rounds[True]),
            f"least_{what}_left": min(one["left"] for one in rounds[True]),
        },
        "ratios": {"p99 collecting / without": ratio(on, off)},
    }
    show(result, as_json=options.json)


if __name__ == "__main__":
    main()
