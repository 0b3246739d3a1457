"""GitHub's clock and ours differ by ten minutes."""

from __future__ import annotations

import asyncio

from bot.clock import SystemClock
from tests.chaos.scenario import Scenario
from tests.chaos.stage import staged

SECONDS = 6.0  # of each round


class Skewed(SystemClock):
    """A clock that goes right, and stands wrong."""

    def __init__(self, minutes):
        self._off = minutes * 60_000

    def now(self):
        """Return the wrong time."""
        return super().now() + self._off


def off_by(minutes):
    """Return a trial in which GitHub's clock is so many minutes ahead of ours."""

    async def run(trial):
        async with staged(trial, github_clock=Skewed(minutes)) as stage:
            stage.bot.start()
            await stage.bot.up()
            stage.town.live(authors=2, talkers=1)
            await asyncio.sleep(SECONDS * trial.n)  # the town's time
            await stage.end_well()
            trial.counts["calls answered 401"] += sum(one.status == 401 for one in stage.github.calls)

    return run


SCENARIOS = tuple(
    Scenario(
        id=f"clock-{name}", breaks=f"GitHub's clock is ten minutes {name} of ours", measures="", times=(2, 20),
        run=off_by(minutes),
    )
    for name, minutes in (("ahead", 10), ("behind", -10))
)  # fmt: skip
