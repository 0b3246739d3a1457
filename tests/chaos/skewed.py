"""Clocks differ by ten minutes: GitHub's and ours, or those of two machines that share a database."""

from __future__ import annotations

import asyncio

from tests.chaos.bots import Kind
from tests.chaos.many_processes import PUBLIC_URL, balance
from tests.chaos.scenario import Scenario
from tests.chaos.stage import staged
from tests.clocks import Off

SECONDS = 6.0  # of each round
MINUTES = 10


def github_off_by(minutes):
    """Return a trial in which GitHub's clock is so many minutes ahead of ours."""

    async def run(trial):
        async with staged(trial, github_clock=Off(minutes)) as stage:
            stage.bot.start()
            await stage.bot.up()
            stage.town.live(authors=2, talkers=1)
            await asyncio.sleep(SECONDS * trial.n)  # the town's time
            await stage.end_well()
            trial.counts["calls answered 401"] += sum(one.status == 401 for one in stage.github.calls)

    return run


async def machines_apart(trial):
    """Let two machines work together, one ahead and one behind, and kill now one and now the other."""
    kinds = [Kind(minutes=MINUTES), Kind(minutes=-MINUTES)]
    async with staged(trial, kinds=kinds, PUBLIC_URL=PUBLIC_URL) as stage:
        stage.listeners = stage.bots
        for bot in stage.bots:
            bot.start()
            await bot.up()
        stage.town.address = lambda: trial.chance.choice(stage.listeners).url
        balancing = asyncio.create_task(balance(trial, stage))
        stage.town.live(authors=3, talkers=1)
        for number in range(trial.n):
            await asyncio.sleep(SECONDS)  # the town's time
            bot = stage.bots[number % 2]
            await bot.kill()
            await stage.audit.doubts()
            bot.start()
            await bot.up()
            trial.say(f"{number + 1} kills, {len(stage.github.deliveries)} deliveries")
        balancing.cancel()
        await stage.end_well()
        trial.seconds += [one.duration for one in stage.github.deliveries if one.ok]


SCENARIOS = (
    *(
        Scenario(
            id=f"clock-{name}", breaks=f"GitHub's clock is ten minutes {name} of ours", measures="", times=(2, 20),
            run=github_off_by(minutes),
        )
        for name, minutes in (("ahead", MINUTES), ("behind", -MINUTES))
    ),
    Scenario(
        id="clocks-apart", breaks="two machines on one PostgreSQL, one ten minutes ahead and one behind, killed in turn",
        measures="a delivery to its answer, s", times=(4, 40), run=machines_apart, database="postgres",
    ),
)  # fmt: skip
