"""GitHub fails: some calls or all, before they have an effect or after it, so that only the answer is lost."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from bot.demo.github.faults import Fault, Faults
from tests.chaos.scenario import Scenario, until
from tests.chaos.stage import staged
from tests.harness import UPSTREAM

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


# GitHub bans an installation for a while: with Retry-After, with a reset, or without a word on how long.


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


async def run_banned(trial):
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


BANNED_SCENARIOS = (
    Scenario(
        id="bans", breaks="bans by 429 and 403: Retry-After, a reset, no word on how long", run=run_banned,
        measures="end of the ban to the first write, s", times=(1, 10),
    ),
)  # fmt: skip


# Installation tokens that expire early, and that GitHub's servers do not all know yet when they are fresh.


LIFE = 15_000  # milliseconds, where the bot counts on most of an hour
REPLICATION = 2_500  # milliseconds
SECONDS = 8.0  # of each round
REFUSED = {401, 403, 404}


async def run_tokens(trial):
    """Let everybody work for so many rounds."""
    async with staged(trial) as stage:
        state = stage.github.state
        state.token_life, state.replication = LIFE, REPLICATION
        stage.bot.start()
        await stage.bot.up()
        stage.town.live(authors=3, talkers=0)
        for number in range(trial.n):
            await asyncio.sleep(SECONDS)  # the town's time
            trial.say(f"{(number + 1) * SECONDS:.0f} s, {len(state.tokens)} tokens")
        await stage.end_well()
        trial.counts["tokens"] += len(state.tokens)
        trial.counts["calls refused"] += sum(one.status in REFUSED for one in stage.github.calls)


TOKENS_SCENARIOS = (
    Scenario(
        id="tokens", breaks="tokens expire after 15 s and are unknown for their first 2.5 s (401, 403, 404)",
        measures="", times=(3, 30), run=run_tokens,
    ),
)  # fmt: skip


# One in a hundred of everything goes wrong, for a long time: does it all still add up, and does memory stay?


PERCENT = 1.0
EVERY = 5.0  # seconds between two looks at memory
WARM = 30  # minutes until memory counts: SQLite keeps 2 MB for each connection, templates and tokens are kept too
SOME = 45  # minutes from which on there is a slope
LONG = 120  # minutes from which on it is exact enough to be held against us: memory goes up and down by a MB
MOST = 1.0  # MB an hour


async def run_soak(trial):
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


SOAK_SCENARIOS = (
    Scenario(
        id="soak", breaks="1 % of calls fail, 1 % of deliveries come twice; times are minutes", run=run_soak,
        measures="a delivery to its answer, s", times=(1, 120),
    ),
)  # fmt: skip
