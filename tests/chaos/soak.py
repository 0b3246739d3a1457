"""One in a hundred of everything goes wrong, for a long time: does it all still add up, and does memory stay?"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from tests.chaos.scenario import Scenario
from tests.chaos.stage import staged
from tests.chaos.stormy import Weather

PERCENT = 1.0
EVERY = 5.0  # seconds between two looks at memory
WARM = 30  # minutes until memory counts: SQLite keeps 2 MB for each connection, templates and tokens are kept too
SOME = 45  # minutes from which on there is a slope
LONG = 120  # minutes from which on it is exact enough to be held against us: memory goes up and down by a MB
MOST = 1.0  # MB an hour


async def run(trial):
    """Go on for so many minutes."""
    weather = Weather(trial.chance, PERCENT, ("before", "after"))
    async with staged(trial, faults=weather) as stage:
        stage.bot.start()
        await stage.bot.up()
        weather.storms = True
        stage.town.haste = 0.3
        stage.town.live(authors=1, talkers=0)
        samples, end = [], time.monotonic() + trial.n * 60
        while time.monotonic() < end:
            await asyncio.sleep(EVERY)  # the town's time
            samples.append((time.monotonic(), resident_mb(stage.bot.pid)))
            await one_in_a_hundred(trial, stage)
            trial.say(f"{(end - samples[-1][0]) / 60:.0f} min left, {samples[-1][1]:.0f} MB", every=60)
        weather.storms = False
        await stage.end_well()
        trial.counts["calls that failed"] += weather.failed
        trial.seconds += [one.duration for one in stage.github.deliveries if one.ok]
    trial.counts["MB at the end"] = round(samples[-1][1])
    if trial.n >= SOME:
        grown = slope([one for one in samples if one[0] > samples[0][0] + WARM * 60])
        trial.counts["MB an hour"] = round(grown, 2)
        trial.expect(trial.n < LONG or grown < MOST, f"memory grows by {grown:.1f} MB an hour")


async def one_in_a_hundred(trial, stage):
    """Send some deliveries twice."""
    log = stage.github.deliveries
    for one in trial.chance.sample(log[-200:], len(log[-200:]) // 100):
        await stage.github.redeliver(one)


def resident_mb(pid):
    """Return the memory a process holds."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) / 1024


def slope(samples):
    """Return by how much it grows in an hour, by least squares."""
    mean_at = sum(at for at, _ in samples) / len(samples)
    mean = sum(mb for _, mb in samples) / len(samples)
    spread = sum((at - mean_at) ** 2 for at, _ in samples)
    return 3600 * sum((at - mean_at) * (mb - mean) for at, mb in samples) / spread


SCENARIOS = (
    Scenario(
        id="soak", breaks="1 % of calls fail, 1 % of deliveries come twice; times are minutes", run=run,
        measures="a delivery to its answer, s", times=(1, 120),
    ),
)  # fmt: skip
