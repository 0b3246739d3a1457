"""kill -9, again and again, while everybody is busy: nothing acknowledged is lost, nothing is said twice."""

from __future__ import annotations

import asyncio
import re
import time

from bot.demo.github.faults import Fault, Faults
from tests.chaos.audit import Audit
from tests.chaos.bots import Kind
from tests.chaos.scenario import Scenario, percentile, until
from tests.chaos.stage import staged
from tests.process import Process

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


# Killed at every point at which it meets the world: before a call has an effect, before its answer, right after.


CALLS = ("before its effect", "before its answer", "after its answer")
VISITS = ("on its way in",)
SHORTEST, LATEST = 0.0, 0.01  # seconds from what comes in, or from an answer, to the end of the bot
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
            self._fall(self.trial.chance.uniform(SHORTEST, LATEST))
            return None
        self._fall(0)
        effect = "after" if when == CALLS[1] else "before"
        return Fault(method=method, path=path, when=effect, status=None, times=1, drop=True, delay=0)

    def visit(self, name):
        """Kill the bot while it has to do with what it is sent, once for each kind."""
        if self._choose(name, VISITS):
            self._fall(self.trial.chance.uniform(SHORTEST, LATEST))

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


async def run_crashed(trial):
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


CRASHED_SCENARIOS = (
    Scenario(
        id="crash-points", breaks="kill -9 at every kind of call, delivery and report", run=run_crashed,
        measures="start to ready (forked), s", times=(1_000, 1_000),
    ),
)  # fmt: skip


# A bot that is killed under load starts as an operator starts it: how soon does it answer?


WITHIN = 2.0  # seconds


async def run_restarted(trial):
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


RESTARTED_SCENARIOS = (
    Scenario(
        id="restart", breaks="kill -9 under load, then a start from nothing (no fork)", run=run_restarted,
        measures="start of the command to ready, s", times=(10, 100),
    ),
)  # fmt: skip
