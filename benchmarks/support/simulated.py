"""A GitHub, an issuer and a bot on one simulated clock.

The clock stands still while anybody works: what passes on it is what the bot makes people wait, its budgets and
distances. Where real time is to be measured too, it can be let run.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import tempfile
import time
from pathlib import Path

import sqlalchemy as sa

from bot.demo.github import SimulatedGitHub
from bot.demo.issuer import Issuer
from bot.worker import SLOTS
from tests import harness


class Clock:
    """Time that moves only when everybody sleeps; or, let run, as the machine's own and by leaps."""

    def __init__(self):
        self._at = 1_790_000_000_000
        self._since = None  # perf_counter when it was let run
        self.sleeping = []
        self.stirred = asyncio.Event()  # somebody went to sleep, or (the store's own bell) a task has ended
        self._order = itertools.count()

    def now(self) -> int:
        return self._at + (round((time.perf_counter() - self._since) * 1000) if self._since else 0)

    async def sleep(self, seconds: float) -> None:
        if self._since:
            return await asyncio.sleep(seconds)
        woken = asyncio.get_running_loop().create_future()
        heapq.heappush(self.sleeping, (self._at + round(seconds * 1000), next(self._order), woken))
        self.stirred.set()
        return await woken

    def move_to(self, at: int) -> None:
        self._at = max(self._at, at)
        while self.sleeping and self.sleeping[0][0] <= self._at:
            heapq.heappop(self.sleeping)[2].set_result(None)

    def let_run(self) -> None:
        self._since = time.perf_counter()

    def leap(self, milliseconds: int) -> None:
        self._at += milliseconds


class Play:
    """Events in the order of their time, the bot working in between."""

    def __init__(self, bot, github, issuer, clock):
        self.bot, self.github, self.issuer, self.clock = bot, github, issuer, clock
        self._events, self._order = [], itertools.count()

    def at(self, moment: int, act) -> None:
        heapq.heappush(self._events, (moment, next(self._order), act))

    async def run(self, until: int) -> None:
        """Let time pass as far as that."""
        while True:
            coming = [await self._work(), self._events[0][0] if self._events else None]
            coming += [self.clock.sleeping[0][0]] if self.clock.sleeping else []
            moment = min((at for at in coming if at is not None), default=until + 1)
            if moment > until:
                return
            self.clock.move_to(moment)
            while self._events and self._events[0][0] <= moment:
                await heapq.heappop(self._events)[2]()

    async def quiet(self) -> None:
        """Wait, while time runs by itself, until the bot has nothing to do."""
        while self.bot.worker._running or await self._is_due():  # noqa: SLF001, ASYNC110 - its own loop does the work
            await asyncio.sleep(0.01)

    async def drain(self) -> None:
        """Let what sleeps now come to its end."""
        while self.clock.sleeping:
            self.clock.move_to(self.clock.sleeping[0][0])
            await self._asleep()

    async def _work(self) -> int | None:
        """Let the bot work until nothing is due and every task sleeps; returns when its next task is."""
        worker = self.bot.worker
        await self._asleep()  # whom this moment has woken is at work before time goes on
        while True:
            if len(worker._running) == SLOTS:  # noqa: SLF001 - see below
                return None
            await worker.apply()  # what has arrived is due as soon as it is a record
            due = await self._due()
            if due is None or due > self.clock.now():
                return due
            worker._resting.clear()  # noqa: SLF001 - rests are real time, and none passes here
            await worker._start_tasks()  # noqa: SLF001 - what `step` does, unfinished
            await self._asleep()
            await self.github.settled()

    async def _asleep(self) -> None:
        """Wait until every task sleeps or has ended."""
        while len(self.bot.worker._running) > len(self.clock.sleeping):  # noqa: SLF001 - see above
            self.clock.stirred.clear()
            await self.clock.stirred.wait()

    async def _is_due(self) -> bool:
        due = await self._due()
        return due is not None and due <= self.clock.now()

    async def _due(self) -> int | None:
        async with self.bot.store.read() as tx:
            return (await tx.run(DUE)).scalar()


DUE = sa.text(
    "SELECT min(due_at) FROM (SELECT due_at FROM delivery WHERE state = 'stored' UNION ALL "
    "SELECT t.due_at FROM task t WHERE t.state = 'waiting' AND NOT EXISTS ("
    "SELECT 1 FROM task r WHERE r.state = 'running' AND r.kind = t.kind AND r.key = t.key)) AS due"
)


@contextlib.asynccontextmanager
async def simulation(upstream: str, backends: list[str], allowlist: str, **settings):
    """Set up a GitHub with these repositories, an issuer and a bot; yields them as one object."""
    clock = Clock()
    github, issuer = SimulatedGitHub(clock=clock), Issuer(clock=clock)
    await github.start()
    await issuer.start()
    app = github.register_app(webhook_url=None, webhook_secret=harness.SECRET)
    for name in (upstream, *backends):
        github.add_repo(name)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "allowlist.yml").write_text(allowlist)
        chosen = harness.make_settings(
            github=github, issuer=issuer, app=app, folder=Path(folder), upstream_repo=(upstream,), **settings
        )
        async with harness.running(chosen, github=github, issuer=issuer, app=app, clock=clock) as bot:
            clock.stirred = bot.store.work_waiting
            play = Play(bot, github, issuer, clock)
            yield play
            await play.drain()
    await issuer.stop()
    await github.stop()
