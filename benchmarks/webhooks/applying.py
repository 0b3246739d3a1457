"""How fast do stored deliveries become records, while more come in?"""

from __future__ import annotations

import re
import shutil
import tempfile
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.support import deliveries, generator
from benchmarks.support.machine import Server, figure, ours, ratio
from benchmarks.support.serve import Bot, count, until
from benchmarks.webhooks.rates import FAMILY, SETTLED

RATE = 500  # deliveries a second that come in meanwhile
NEARLY = 0.95  # of that many, where a generator starts and ends within the time
LEAST = 0.1  # of a backlog: what comes in decides from there on
LOOKS_EVERY = 0.2  # seconds: each reads the spool
HANDLED = "SELECT count(*) FROM delivery WHERE state = 'handled'"


def backlog(folder: str, requests: list[bytes]) -> None:
    """Leave deliveries in the spool that nobody applies yet: a worker that is late finds them there, too."""
    with Bot(folder, processes=FAMILY) as bot, bot.listening_alone():
        generator.run(bot.port, requests, seconds=120, count=len(requests))
        bot.crash()


def applied(rounds: int, seconds: float, backlog_of: int, settled: float = SETTLED) -> dict:
    """Have a backlog applied by `ootbot serve` while deliveries come in."""
    rates, cpu = [], []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder, Bot(folder) as bot:
            time.sleep(settled)
            with bot.listening_alone():
                generator.run(bot.port, deliveries.jobs(backlog_of), seconds=120, count=backlog_of)
            rate, used = drain(bot, seconds)
            rates.append(rate)
            cpu.append(used)
    return {
        f"applied_per_second_at_{RATE}": figure(rates, 0),
        f"processor us of everything, for each delivery applied at {RATE}": figure(cpu, 0),
    }


def drain(bot: Bot, seconds: float) -> tuple[float, float]:
    """Return the deliveries of a backlog applied a second while more come in, and the processor's us for each."""
    sent = deliveries.jobs(round(RATE * seconds) + 1)
    began, before, used = time.perf_counter(), bot.waiting(), bot.cpu()
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(generator.run, bot.port, sent, seconds=seconds, rate=RATE)
        while True:
            time.sleep(LOOKS_EVERY)
            took, left = time.perf_counter() - began, bot.waiting()
            if left <= before * LEAST or sending.done():
                break
        used = bot.cpu() - used
        if sending.result()["per_second"] < RATE * NEARLY:
            raise SystemExit(f"not {RATE} a second were taken meanwhile")
    done = before + RATE * took - left
    return done / took, used / max(done, 1) * 1e6


def visible(rounds: int, seconds: float, settled: float = SETTLED) -> dict:
    """The share of deliveries that are records within a second, by the bot's own metric."""
    shares = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder, Bot(folder) as bot:
            time.sleep(settled)
            sent = deliveries.jobs(round(RATE * seconds) + 1)
            generator.run(bot.port, sent, seconds=seconds, rate=RATE)
            until(lambda bot=bot: not bot.waiting(), "the last deliveries")
            shares.append(_within_a_second(bot))
    return {"share_visible_within_1s": figure(shares, 3)}


def _within_a_second(bot: Bot) -> float:
    with urllib.request.urlopen(f"{bot.url}/metrics") as answer:
        text = answer.read().decode()
    soon = float(re.search(r'ootbot_apply_delay_seconds_bucket\{le="1\.0"\} (\S+)', text)[1])
    return soon / max(float(re.search(r"ootbot_apply_delay_seconds_count (\S+)", text)[1]), 1)


def cells(rounds: int, backlog_of: int) -> dict:
    """What the grid of a repository's own CI adds to a delivery: the same backlog with and without, in turns."""
    used: dict[str, list[float]] = {"all": [], "no_cells": []}
    with tempfile.TemporaryDirectory() as kept:
        backlog(kept, deliveries.jobs_of_commits(backlog_of))
        for _ in range(rounds):
            for name, costs in used.items():
                with tempfile.TemporaryDirectory() as folder:
                    shutil.copytree(kept, folder, dirs_exist_ok=True)
                    with Server(*ours(name, folder), core=0) as server:
                        before = server.cpu()
                        until(
                            lambda folder=folder: count(Path(folder) / "ootbot.db", HANDLED) >= backlog_of,
                            "the backlog",
                        )
                        costs.append((server.cpu() - before) / backlog_of * 1e6)
    return {
        "cpu_us_per_delivery_applied": figure(used["all"]),
        "cpu_us_per_delivery_applied_without_cells": figure(used["no_cells"]),
        "with cells / without": ratio(used["all"], used["no_cells"]),
    }
