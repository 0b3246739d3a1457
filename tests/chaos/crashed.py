"""Killed at every point at which it meets the world: before a call has an effect, before its answer, right after.

The points are found by watching: whatever the bot calls, and whatever it is sent, is a point as soon as it is seen.
"""

from __future__ import annotations

import asyncio
import re

from bot.demo.github.faults import Fault, Faults
from tests.chaos.audit import Audit
from tests.chaos.scenario import Scenario, until
from tests.chaos.stage import staged

CALLS = ("before its effect", "before its answer", "after its answer")
VISITS = ("on its way in",)
SHORTEST, LONGEST = 0.0, 0.01  # seconds from what comes in, or from an answer, to the end of the bot
PAUSE = 0.3  # seconds a bot lives at least
QUIET = 30  # seconds without a point to be killed at: then there is none left
NAMES = ((r"/repos/[^/]+/[^/]+", "/repos/*"), (r"\b[0-9a-f]{40}\b", "sha"), (r"/\d+\b", "/#"))


class Ambush(Faults):
    """Stands where calls and deliveries pass, and kills the bot at each kind of point once."""

    def __init__(self, trial):
        super().__init__()
        self.trial = trial
        self.struck: set[tuple[str, str]] = set()
        self.seen: set[tuple[str, str]] = set()
        self.bot = self.audit = None
        self._ready_at = 0.0
        self._falling: asyncio.Task | None = None

    def take(self, method, path):
        """Kill the bot if this is a point at which it was not killed yet."""
        if method == "HOOK":
            self.visit(f"HOOK {path}")
            return None
        when = self._choose(f"{method} {named(path)}", CALLS)
        if when is None:
            return None
        if when == CALLS[2]:
            self._fall(self.trial.chance.uniform(SHORTEST, LONGEST))
            return None
        self._fall(0)
        effect = "after" if when == CALLS[1] else "before"
        return Fault(method=method, path=path, when=effect, status=None, times=1, drop=True, delay=0)

    def visit(self, name):
        """Kill the bot while it has to do with what it is sent, once for each kind."""
        if self._choose(name, VISITS):
            self._fall(self.trial.chance.uniform(SHORTEST, LONGEST))

    def _choose(self, name, ways):
        self.seen |= {(name, way) for way in ways}
        left = [way for way in ways if (name, way) not in self.struck]
        loop = asyncio.get_running_loop()
        ready = self.bot.answers.is_set() and loop.time() > self._ready_at and not self._falling
        if not left or not ready or len(self.struck) >= self.trial.n:
            return None
        self.struck.add((name, left[0]))
        return left[0]

    def _fall(self, seconds):
        if not seconds:
            self.bot.kill_now()
        self._falling = asyncio.create_task(self._again(seconds))

    async def _again(self, seconds):
        await asyncio.sleep(seconds)  # the bot's time
        await self.bot.kill()
        await self.audit.doubts()
        self.bot.start()
        await self.bot.up()
        self._ready_at = asyncio.get_running_loop().time() + PAUSE
        self._falling = None

    async def over(self):
        """Return when the bot is up again."""
        await until(lambda: not self._falling, seconds=30)


def named(path):
    """Return the kind of a path: names, numbers and commits left out."""
    for pattern, name in NAMES:
        path = re.sub(pattern, name, path)
    return path


async def run(trial):
    """Go on with the stories until the bot was killed at every point there is."""
    ambush = Ambush(trial)
    async with staged(trial, faults=ambush) as stage:
        ambush.bot, ambush.audit = stage.bot, Audit(trial, stage.town, stage.store)
        stage.town.about_to = ambush.visit
        stage.bot.start()
        await stage.bot.up()
        stage.town.tries_again = 1.0
        stage.town.live(authors=3, talkers=0)
        idle, before = 0, 0
        while idle < QUIET and len(ambush.struck) < trial.n:
            await asyncio.sleep(1)  # the town's time
            idle = idle + 1 if len(ambush.struck) == before else 0
            before = len(ambush.struck)
            trial.say(f"killed at {before} of {len(ambush.seen)} points")
        trial.n = len(ambush.struck)
        await ambush.over()
        await stage.end_well()
        await ambush.over()
        trial.seconds += stage.bot.ready_after
        trial.counts["points seen"] += len(ambush.seen)
        missed = sorted(" ".join(point) for point in ambush.seen - ambush.struck)
        trial.say(f"not reached: {', '.join(missed) or 'none'}", every=0)


SCENARIOS = (
    Scenario(
        id="crash-points", breaks="kill -9 at every kind of call, delivery and report", run=run,
        measures="start to ready (forked), s", times=(1_000, 1_000),
    ),
)  # fmt: skip
