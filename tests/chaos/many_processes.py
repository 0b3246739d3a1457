"""Four web and four worker processes on one PostgreSQL, three deliveries in ten sent twice, to any of them."""

from __future__ import annotations

import asyncio
import shutil

import sqlalchemy as sa

from bot.db import migrate
from bot.db.rows import metadata
from tests.chaos.bots import Kind
from tests.chaos.scenario import Scenario
from tests.chaos.stage import staged
from tests.clocks import Off
from tests.process import ROOT

ROLES = ("web",) * 4 + ("worker",) * 4
PUBLIC_URL = "http://127.0.0.1:9"  # nobody follows the links
DUPLICATES = 0.3  # of all deliveries
REPEATERS = 4
SECONDS = 5.0  # of each round


async def run(trial):
    """Let everybody work for so many rounds."""
    async with staged(trial, kinds=[Kind(role=role) for role in ROLES], PUBLIC_URL=PUBLIC_URL) as stage:
        for bot in stage.bots:
            bot.start()
            await bot.up()
        stage.listeners = [bot for bot, role in zip(stage.bots, ROLES, strict=True) if role == "web"]
        stage.town.address = lambda: trial.chance.choice(stage.listeners).url
        works = [balance(trial, stage), *(repeat(trial, stage) for _ in range(REPEATERS))]
        sending = [asyncio.create_task(work) for work in works]
        stage.town.live(authors=5, talkers=3)
        for number in range(trial.n):
            await asyncio.sleep(SECONDS)  # the town's time
            trial.say(f"{(number + 1) * SECONDS:.0f} s, {len(stage.github.deliveries)} deliveries")
        for one in sending:
            one.cancel()
        await stage.end_well()
        log = stage.github.deliveries
        trial.counts["duplicates sent"] += sum(one.redelivery for one in log)
        trial.seconds += [one.duration for one in log if one.ok]


async def balance(trial, stage):
    """Send what comes next to another process, as whatever stands before them would."""
    while True:
        stage.github.app.webhook_url = f"{trial.chance.choice(stage.listeners).url}/api/github/webhooks"
        await asyncio.sleep(0.01)  # a few deliveries


async def repeat(trial, stage):
    """Send three in ten once more while others are on their way."""
    log, sent = stage.github.deliveries, 0
    while True:
        if sent * REPEATERS < DUPLICATES * len(log):
            sent += 1
            await stage.github.redeliver(trial.chance.choice(log[-20:]))
        else:
            await asyncio.sleep(0.01)  # until there are more


SCENARIOS = (
    Scenario(
        id="many-postgres", breaks="four web and four worker processes, 30 % of deliveries twice, to any of them", run=run,
        measures="a delivery to its answer, s", times=(4, 60), database="postgres",
    ),
)  # fmt: skip


# Clocks differ by ten minutes: GitHub's and ours, or those of two machines that share a database.


BETWEEN_KILLS = 6.0  # of each round
MINUTES = 10


def github_off_by(minutes):
    """Return a trial in which GitHub's clock is so many minutes ahead of ours."""

    async def run_skewed(trial):
        async with staged(trial, github_clock=Off(minutes)) as stage:
            stage.bot.start()
            await stage.bot.up()
            stage.town.live(authors=2, talkers=1)
            await asyncio.sleep(BETWEEN_KILLS * trial.n)  # the town's time
            await stage.end_well()
            trial.counts["calls answered 401"] += sum(one.status == 401 for one in stage.github.calls)

    return run_skewed


async def machines_apart(trial):
    """Let two machines work together, one ahead and one behind, and kill now one and now the other."""
    kinds = [Kind(minutes=MINUTES), Kind(minutes=-MINUTES)]
    async with staged(trial, kinds=kinds, PUBLIC_URL=PUBLIC_URL) as stage:
        stage.listeners = stage.bots
        for bot in stage.bots:
            bot.start()
            await bot.up()
        stage.town.address = lambda: trial.chance.choice(stage.listeners).url
        balancing = asyncio.create_task(balance(trial, stage))
        stage.town.live(authors=3, talkers=1)
        for number in range(trial.n):
            await asyncio.sleep(BETWEEN_KILLS)  # the town's time
            bot = stage.bots[number % 2]
            await bot.kill()
            await stage.audit.doubts()
            bot.start()
            await bot.up()
            trial.say(f"{number + 1} kills, {len(stage.github.deliveries)} deliveries")
        balancing.cancel()
        await stage.end_well()
        trial.seconds += [one.duration for one in stage.github.deliveries if one.ok]


SKEWED_SCENARIOS = (
    *(
        Scenario(
            id=f"clock-{name}", breaks=f"GitHub's clock is ten minutes {name} of ours", measures="", times=(2, 20),
            run=github_off_by(minutes),
        )
        for name, minutes in (("ahead", MINUTES), ("behind", -MINUTES))
    ),
    Scenario(
        id="clocks-apart", breaks="two machines on one PostgreSQL, one ten minutes ahead and one behind, killed in turn",
        measures="a delivery to its answer, s", times=(4, 40), run=machines_apart, database="postgres",
    ),
)  # fmt: skip


# A rolling upgrade: this version and a later one share a PostgreSQL, are killed and told to stop, and start again.


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


async def run_upgraded(trial):
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


UPGRADED_SCENARIOS = (
    Scenario(
        id="two-versions", breaks="this version and a later one on one PostgreSQL, killed and stopped in turn", run=run_upgraded,
        measures="a delivery to its answer, s", times=(6, 100), database="postgres",
    ),
)  # fmt: skip
