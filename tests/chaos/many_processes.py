"""Four web and four worker processes on one PostgreSQL, three deliveries in ten sent twice, to any of them."""

from __future__ import annotations

import asyncio

from tests.chaos.bots import Kind
from tests.chaos.scenario import Scenario
from tests.chaos.stage import staged

ROLES = ("web",) * 4 + ("worker",) * 4
PUBLIC_URL = "http://127.0.0.1:9"  # nobody follows the links
DUPLICATES = 0.3  # of all deliveries
REPEATERS = 4
SECONDS = 5.0  # of each round


async def run(trial):
    """Let everybody work for so many rounds."""
    async with staged(trial, kinds=[Kind(role=role) for role in ROLES], PUBLIC_URL=PUBLIC_URL) as stage:
        for bot in stage.bots:
            bot.start()
            await bot.up()
        stage.listeners = [bot for bot, role in zip(stage.bots, ROLES, strict=True) if role == "web"]
        stage.town.address = lambda: trial.chance.choice(stage.listeners).url
        works = [balance(trial, stage), *(repeat(trial, stage) for _ in range(REPEATERS))]
        sending = [asyncio.create_task(work) for work in works]
        stage.town.live(authors=5, talkers=3)
        for number in range(trial.n):
            await asyncio.sleep(SECONDS)  # the town's time
            trial.say(f"{(number + 1) * SECONDS:.0f} s, {len(stage.github.deliveries)} deliveries")
        for one in sending:
            one.cancel()
        await stage.end_well()
        log = stage.github.deliveries
        trial.counts["duplicates sent"] += sum(one.redelivery for one in log)
        trial.seconds += [one.duration for one in log if one.ok]


async def balance(trial, stage):
    """Send what comes next to another process, as whatever stands before them would."""
    while True:
        stage.github.app.webhook_url = f"{trial.chance.choice(stage.listeners).url}/api/github/webhooks"
        await asyncio.sleep(0.01)  # a few deliveries


async def repeat(trial, stage):
    """Send three in ten once more while others are on their way."""
    log, sent = stage.github.deliveries, 0
    while True:
        if sent * REPEATERS < DUPLICATES * len(log):
            sent += 1
            await stage.github.redeliver(trial.chance.choice(log[-20:]))
        else:
            await asyncio.sleep(0.01)  # until there are more


SCENARIOS = (
    Scenario(
        id="many-postgres", breaks="four web and four worker processes, 30 % of deliveries twice, to any of them", run=run,
        measures="a delivery to its answer, s", times=(4, 60), database="postgres",
    ),
)  # fmt: skip
