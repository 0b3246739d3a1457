"""GitHub fails: some calls or all, before they have an effect or after it, so that only the answer is lost."""

from __future__ import annotations

import asyncio
import time

from bot.demo.github.faults import Fault, Faults
from tests.chaos.scenario import Scenario, until
from tests.chaos.stage import staged

STORM = 12.0  # seconds
PATIENCE = 120.0  # seconds until something is written again
WRITES = {"POST", "PATCH"}
AUTHORS = 3


class Weather(Faults):
    """Lets so many of a hundred calls fail while it storms."""

    def __init__(self, chance, percent, ways):
        super().__init__()
        self._chance, self._percent, self._ways = chance, percent, ways
        self.storms = False
        self.failed = 0

    def take(self, method, path):
        """Fail a call, or let it pass."""
        if not self.storms or method == "HOOK" or self._chance.uniform(0, 100) >= self._percent:
            return None
        self.failed += 1
        when, status = self._chance.choice(self._ways), self._chance.choice((500, 502, 503, 0))
        return Fault(
            method=method, path=path, when=when, status=status or None, times=1, drop=not status, delay=0
        )


def storm(percent, *ways):
    """Return a trial of so many storms in which so many of a hundred calls fail in one of these ways."""

    async def run(trial):
        weather = Weather(trial.chance, percent, ways or ("before", "after"))
        async with staged(trial, faults=weather) as stage:
            stage.bot.start()
            await stage.bot.up()
            stage.town.live(authors=AUTHORS, talkers=0)
            for number in range(trial.n):
                await asyncio.sleep(2)  # the town's time
                weather.storms = True
                await asyncio.sleep(STORM)
                weather.storms = False
                await first_write(trial, stage.github)
                trial.say(f"{number + 1} storms over, {weather.failed} calls failed", every=0)
            await stage.end_well()
            trial.counts["calls that failed"] += weather.failed

    return run


async def first_write(trial, github):
    """Take the time until something is written again."""
    began, before = time.monotonic(), len(github.calls)

    def written():
        return any(
            one.method in WRITES and one.status in {200, 201, 204} and "/repos/" in one.path
            for one in github.calls[before:]
        )

    trial.expect(await until(written, seconds=PATIENCE), f"nothing written within {PATIENCE:.0f} s")
    trial.seconds.append(time.monotonic() - began)


MEASURES = "GitHub's return to the first write, s"
SCENARIOS = (
    *(
        Scenario(
            id=f"github-{percent}", breaks=f"{percent} % of calls to GitHub fail, before or after their effect",
            measures=MEASURES, times=(1, 20), run=storm(percent),
        )
        for percent in (5, 20, 50)
    ),
    Scenario(
        id="github-gone", breaks="every call to GitHub fails", measures=MEASURES, times=(1, 20), run=storm(100, "before")
    ),
    Scenario(
        id="github-mute", breaks="every call to GitHub has its effect, no answer comes", measures=MEASURES,
        times=(1, 20), run=storm(100, "after"),
    ),
)  # fmt: skip
