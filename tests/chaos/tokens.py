"""Installation tokens that expire early, and that GitHub's servers do not all know yet when they are fresh."""

from __future__ import annotations

import asyncio

from tests.chaos.scenario import Scenario
from tests.chaos.stage import staged

LIFE = 15_000  # milliseconds, where the bot counts on most of an hour
REPLICATION = 2_500  # milliseconds
SECONDS = 8.0  # of each round
REFUSED = {401, 403, 404}


async def run(trial):
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


SCENARIOS = (
    Scenario(
        id="tokens", breaks="tokens expire after 15 s and are unknown for their first 2.5 s (401, 403, 404)",
        measures="", times=(3, 30), run=run,
    ),
)  # fmt: skip
