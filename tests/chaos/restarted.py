"""A bot that is killed under load starts as an operator starts it: how soon does it answer?"""

from __future__ import annotations

import asyncio
import time

from tests.chaos.scenario import Scenario, percentile
from tests.chaos.stage import staged
from tests.process import Process

WITHIN = 2.0  # seconds


async def run(trial):
    """Kill it and start it afresh so many times."""
    async with staged(trial) as stage:
        options = {name.removeprefix("OOTBOT_"): value for name, value in stage.bot.options.items()}
        process = Process(trial.folder, **options)
        for number in range(trial.n + 1):
            began = time.monotonic()
            ready = await process.start()
            await asyncio.wait_for(ready.wait(), 60)
            trial.seconds += [time.monotonic() - began] if number else []  # the first makes the database
            if number == 0:
                stage.town.live(authors=2, talkers=2)
            await asyncio.sleep(1)  # the town's time
            if number < trial.n:
                process.kill()
                await process.ended()
                await stage.audit.doubts()
            trial.say(f"{number} restarts")
        await stage.end_well()
        process.kill()
        await process.ended()
    median = percentile(trial.seconds, 50)
    trial.expect(median < WITHIN, f"ready after {median:.1f} s, more than {WITHIN:.0f}")


SCENARIOS = (
    Scenario(
        id="restart", breaks="kill -9 under load, then a start from nothing (no fork)", run=run,
        measures="start of the command to ready, s", times=(10, 100),
    ),
)  # fmt: skip
