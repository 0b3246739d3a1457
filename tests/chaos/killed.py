"""kill -9, again and again, while everybody is busy: nothing acknowledged is lost, nothing is said twice."""

from __future__ import annotations

import asyncio

from tests.chaos.bots import Kind
from tests.chaos.scenario import Scenario, until
from tests.chaos.stage import staged

LONGEST = 0.5  # seconds from a bot's answer to its end
STARTING = 0.1  # of the bots end before they answer
STAYING = 0.25  # of the bots first take a report, also where the machine is slow
PATIENCE = 30.0  # seconds they wait for one
MORE = 5  # times as many kills, at most, until enough was acknowledged
AUTHORS, TALKERS = 4, 4


async def run(
    trial, *, authors=AUTHORS, talkers=TALKERS, longest=LONGEST, deliveries=0, reports=0, several=False
):
    """Kill the bot so many times at random moments, and more often until so much was acknowledged between kills."""

    def enough():
        return (
            sum(one.ok for one in stage.github.deliveries) >= deliveries
            and len(stage.town.reports) >= reports
        )

    async with staged(trial, kinds=(Kind(several=several),)) as stage:
        stage.bot.start()
        await stage.bot.up()
        stage.town.live(authors=authors, talkers=talkers)
        for number in range(MORE * trial.n):
            if number >= trial.n and enough():
                break
            if trial.chance.random() > STARTING:
                await stage.bot.up()
                if authors and (number >= trial.n or trial.chance.random() < STAYING):
                    await one_more_report(stage.town)
            await asyncio.sleep(trial.chance.uniform(0, longest))  # the town's time
            if not several:
                await stage.bot.kill()
            elif not await stage.bot.kill_one(trial.chance):
                trial.counts["others killed"] += 1
                await stage.audit.doubts()
                continue
            await stage.audit.doubts()
            stage.bot.start()
            trial.say(f"{number + 1} kills, {len(stage.github.deliveries)} deliveries")
        trial.expect(
            enough(), f"{deliveries} deliveries and {reports} reports acknowledged while it was killed"
        )
        await stage.bot.up()
        await stage.end_well()
        trial.seconds += stage.bot.ready_after
        trial.counts["deliveries without an answer"] += sum(not one.ok for one in stage.github.deliveries)
        trial.counts["reports without an answer"] += stage.town.unanswered


async def one_more_report(town):
    """Wait until the bot has acknowledged a report it had not before."""
    before = len(town.reports)
    await until(lambda: len(town.reports) > before, seconds=PATIENCE, every=0.01)


async def run_processes(trial):
    """Kill one of three processes at a time; more time passes, since they start from nothing."""
    await run(trial, longest=3 * LONGEST, several=True)


_KILLED = {"run": run, "measures": "start to ready (forked), s"}
SCENARIOS = (
    Scenario(id="kill-sqlite", breaks="kill -9 under load, SQLite", times=(60, 1_000), **_KILLED),
    Scenario(
        id="kill-processes", breaks="kill -9 of any of its three processes under load, SQLite",
        run=run_processes, measures="start to ready (forked), s", times=(30, 1_000),
    ),
    Scenario(
        id="kill-postgres", breaks="kill -9 under load, PostgreSQL", times=(20, 200), database="postgres",
        **_KILLED,
    ),
)  # fmt: skip
