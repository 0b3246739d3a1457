"""A rolling upgrade: this version and a later one share a PostgreSQL, are killed and told to stop, and start again.

The later one is this one with what CONTRIBUTING.md allows a later one: a migration that adds to every table, and tasks
of a kind that this one does not know.
"""

from __future__ import annotations

import asyncio
import shutil

import sqlalchemy as sa

from bot.db import migrate
from bot.db.rows import metadata
from tests.chaos.bots import Kind
from tests.chaos.many_processes import PUBLIC_URL, balance
from tests.chaos.scenario import Scenario
from tests.chaos.stage import staged
from tests.process import ROOT

PARTS = ("bot", "handlers", "config", "app.yml", "app.relay.yml", "tests/fork_server.py", "tests/clocks.py")
LONGEST = 3.0  # seconds between one end of a process and the next
MIGRATION = """
import sqlalchemy as sa
from alembic import op

revision, down_revision, branch_labels, depends_on = "{later}", "{now}", None, None


def upgrade():
    for table in {tables}:
        op.add_column(table, sa.Column("invented_later", sa.Text(), nullable=False, server_default="x"))
    op.create_table("invented_later", sa.Column("id", sa.Integer(), primary_key=True), sa.Column("words", sa.Text()))
    op.create_index("ix_invented_later", "delivery", ["invented_later", "received_at"])
"""
TASKS = """
import dataclasses

from bot.oot.publish import publish

async def invented_later(context, task):
    import sqlalchemy as sa

    async with context.store.transaction() as tx:
        await tx.run(sa.text("INSERT INTO invented_later (words) SELECT max(invented_later) FROM delivery"))


async def publish_and_more(context, task):
    await publish.publish_pull(context, task)
    async with context.store.transaction() as tx:
        tx.enqueue("invented_later", task.key)


FEATURE = dataclasses.replace(
    FEATURE,
    tasks=FEATURE.tasks | {
        "publish": "bot.oot.feature:publish_and_more", "invented_later": "bot.oot.feature:invented_later"
    },
)
"""


async def run(trial):
    """Upgrade two processes one after the other; in between either ends and starts again so many times."""
    later = make_later(trial.folder / "later")
    kinds = [Kind(), Kind(), Kind(tree=later), Kind(tree=later)]
    async with staged(trial, kinds=kinds, PUBLIC_URL=PUBLIC_URL) as stage:
        first, second, newer, newest = stage.bots
        stage.listeners = [first, second]
        stage.town.address = lambda: trial.chance.choice(stage.listeners).url
        for bot in stage.listeners:
            bot.start()
            await bot.up()
        balancing = asyncio.create_task(balance(trial, stage))
        stage.town.live(authors=3, talkers=2)
        await replace(trial, stage, first, newer)
        for number in range(trial.n):
            await again(trial, stage, trial.chance.choice((second, newer)))
            trial.say(f"{number + 1} times, {len(stage.github.deliveries)} deliveries")
        await replace(trial, stage, second, newest)
        await asyncio.sleep(LONGEST)  # the town's time
        balancing.cancel()
        await stage.end_well()
        trial.seconds += [one.duration for one in stage.github.deliveries if one.ok]
        await together(trial, stage)


def make_later(tree):
    """Write a later version of the program; returns its folder."""
    for part in PARTS:
        (tree / part).parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
        copy(ROOT / part, tree / part)
    now = migrate.head()
    later = f"{int(now) + 1:04}"
    text = MIGRATION.format(now=now, later=later, tables=sorted(metadata.tables))
    (tree / "bot" / "db" / "migrations" / "versions" / f"{later}_later.py").write_text(text)
    with (tree / "bot" / "oot" / "publish" / "feature.py").open("a") as file:
        file.write(TASKS)
    return tree


async def replace(trial, stage, older, newer):
    """Stop one process, then start a later version in its place."""
    await asyncio.sleep(trial.chance.uniform(0, LONGEST))  # the town's time
    await older.stop()
    stage.listeners = [newer if bot is older else bot for bot in stage.listeners]
    newer.start()
    await newer.up()


async def again(trial, stage, bot):
    """End a process one way or the other, and start it again."""
    await asyncio.sleep(trial.chance.uniform(0, LONGEST))  # the town's time
    if trial.chance.random() < 0.5:
        await bot.kill()
        await stage.audit.doubts()
    else:
        await bot.stop()
    bot.start()
    await bot.up()


async def together(trial, stage):
    """Both have worked, and the tasks that only the later one knows were left to it.

    A run that failed, whose key was asked for again meanwhile, is `done` with its error: the next one does its work.
    """
    async with stage.store.read() as tx:
        found = await tx.rows(sa.text("SELECT words FROM invented_later"))
        ran = await tx.rows(
            sa.text("SELECT key, state, error FROM task WHERE kind = 'invented_later' ORDER BY id")
        )
    trial.counts["tasks of a kind only the later one knows"] += len(ran)
    trial.same({row["state"] for row in ran}, {"done"}, "tasks of the later version")
    well = [row for row in ran if row["error"] is None]
    trial.expect(len(found) >= len(well) > 0, f"{len(found)} of {len(well)} were done by the later version")
    last = {row["key"]: row["error"] for row in ran}
    trial.same([key for key, error in last.items() if error], [], "keys whose last task failed")


SCENARIOS = (
    Scenario(
        id="two-versions", breaks="this version and a later one on one PostgreSQL, killed and stopped in turn", run=run,
        measures="a delivery to its answer, s", times=(6, 100), database="postgres",
    ),
)  # fmt: skip
