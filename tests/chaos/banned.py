"""GitHub bans an installation for a while: with Retry-After, with a reset, or without a word on how long."""

from __future__ import annotations

import asyncio
import time

from bot.demo.github.faults import Fault, Faults
from tests.chaos.scenario import Scenario, until
from tests.chaos.stage import staged
from tests.chaos.stormy import WRITES, first_write
from tests.harness import UPSTREAM

SHORT, UNTOLD = 6, 20  # seconds a ban lasts; a bot that is not told how long waits for a minute
IN_FLIGHT = 20  # calls that may be on their way when a ban begins
OWNER = UPSTREAM.partition("/")[0]
SECONDARY = {
    "message": "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."
}


class Bans(Faults):
    """Refuses everything about one owner's repositories while a ban lasts."""

    def __init__(self):
        super().__init__()
        self.refused = 0
        self._until, self._how, self._armed = 0.0, "", False

    def arm(self, how):
        """Begin a ban at the next write."""
        self._how, self._armed, self.refused = how, True, 0

    async def over(self):
        """Return when the ban that was armed has begun and ended."""
        await until(lambda: not self._armed and time.time() >= self._until, seconds=120)

    def take(self, method, path):
        """Refuse a call, or let it pass."""
        if not path.startswith(f"/repos/{OWNER}/") or path.endswith("/installation"):
            return None
        if self._armed and method in WRITES:
            self._armed, self._until = False, time.time() + (UNTOLD if self._how == "untold" else SHORT)
        if time.time() >= self._until:
            return None
        self.refused += 1
        status, headers = self._said()
        return Fault(
            method=method, path=path, when="before", status=status, headers=headers, body=SECONDARY, times=1,
            drop=False, delay=0,
        )  # fmt: skip

    def _said(self):
        left = self._until - time.time()
        if self._how == "reset":
            return 403, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(int(self._until) + 1)}
        if self._how == "untold":
            return 403, {"X-RateLimit-Remaining": "4000"}
        return (429 if self._how == "429" else 403), {"Retry-After": str(int(left) + 1)}


async def run(trial):
    """Ban it in every way, so many times."""
    bans = Bans()
    async with staged(trial, faults=bans) as stage:
        stage.bot.start()
        await stage.bot.up()
        stage.town.live(authors=3, talkers=0)
        for number in range(trial.n):
            for how in ("429", "403", "reset", "untold"):
                await asyncio.sleep(2)  # the town's time
                bans.arm(how)
                await bans.over()
                trial.expect(bans.refused <= IN_FLIGHT, f"{bans.refused} calls into a ban ({how})")
                trial.counts["calls into a ban"] += bans.refused
                await first_write(trial, stage.github)
                trial.say(f"{number + 1}: {how}", every=0)
        await stage.end_well()


SCENARIOS = (
    Scenario(
        id="bans", breaks="bans by 429 and 403: Retry-After, a reset, no word on how long", run=run,
        measures="end of the ban to the first write, s", times=(1, 10),
    ),
)  # fmt: skip
