"""A bot that ends at any moment loses no step and sends none twice."""

import contextlib

import pytest
import sqlalchemy as sa

from bot.core.errors import StoreUnavailable
from bot.oot.culprits import advance
from bot.queue.tasks import Task, task
from tests import harness
from tests.oot.culprits.searched import broken_branch
from tests.oot.culprits.test_story import begin


async def claimed(bot, search):
    """The task of a search, as a worker has it."""
    row = next(row for row in await bot.rows("task") if (row["kind"], row["key"]) == ("bisect", search["id"]))
    return Task({name: row[name] for name in ("id", "kind", "key", "created_at", "attempts", "cause")})


@pytest.mark.nightly
async def test_a_search_goes_on_in_the_next_process(bot, settings, github, issuer, clock):
    """Each round is played by another process; of the one before, tasks are left claimed."""
    branch = await broken_branch(bot, github)
    await begin(bot, github)
    for _ in range(8):
        async with harness.running(
            settings, github=github, issuer=issuer, app=github.app, clock=clock
        ) as next_bot:
            branch.bot = next_bot
            await next_bot.settle(horizon=5)
            await branch.answer(9)
            search = await branch.search()
            async with next_bot.store.transaction() as tx:  # killed in the middle of whatever is due
                await tx.run(
                    sa.update(task)
                    .where(task.c.state == "waiting", task.c.kind.in_(["bisect", "dispatch"]))
                    .values(state="running", owner="gone", lease_until=tx.now)
                )
        if search["ended_at"]:
            break
    assert (search["state"], search["culprit_sha"]) == ("found", branch.shas[9])
    sent = [one.client_payload["delivery_id"] for one in github.dispatches if "bisect" in one.client_payload]
    assert len(sent) == len(set(sent)) == search["used"] == 7


async def test_what_is_interrupted_before_its_commit_leaves_nothing_behind(bot, github):
    branch = await broken_branch(bot, github)
    await begin(bot, github)
    await branch.answer(9)
    search = await branch.search()
    mine = await claimed(bot, search)
    before = {name: len(await bot.rows(name)) for name in ("bisect_step", "oot_dispatch", "delivery")}

    class Failing:
        """A context whose transactions fail at the last moment."""

        def __init__(self):
            self.settings, self.store, self.clock = bot.context.settings, self, bot.clock

        def transaction(self):
            return _failing(bot.store.transaction())

    for _ in range(3):
        with contextlib.suppress(StoreUnavailable):
            await advance.advance_search(Failing(), mine)
    assert before == {name: len(await bot.rows(name)) for name in before}
    for _ in range(3):
        await advance.advance_search(bot.context, mine)
    assert {name: len(await bot.rows(name)) for name in before} == before
    assert branch.asked_names() == ["c5", "c10"]


def _failing(transaction):
    @contextlib.asynccontextmanager
    async def made():
        async with transaction as tx:
            yield tx
            raise StoreUnavailable("killed")

    return made()
