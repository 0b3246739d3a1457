"""`ootbot tasks`: what was given up is listed with its reason and runs again when told so."""

import asyncio
import json

import pytest
import sqlalchemy as sa

from bot.console.upkeep import TASK_STATES
from bot.ops import tasks
from tests.command import ootbot
from tests.serving import POSTGRES
from tests.workers import eventually


async def give_up(bot, *keys):
    async with bot.store.transaction() as tx:
        for key in keys or ("a key",):
            tx.enqueue("relay", key)
    await bot.settle()


async def states(bot):
    rows = sorted(await bot.rows("task"), key=lambda row: row["id"])
    return {row["key"]: row["state"] for row in rows if row["kind"] == "relay"}


async def test_a_dead_task_is_listed_and_runs_again(bot):
    await give_up(bot)
    code, out, err = await ootbot(bot, "tasks", "list", "--state", "dead")
    assert (code, err) == (0, "")
    (line,) = out.splitlines()
    identifier, state, kind, key, _, why = line.split("  ")
    assert (state, kind, key) == ("dead", "relay", "a key")
    assert "is not stored any more" in why
    code, out, _ = await ootbot(bot, "tasks", "list", "--json", "--limit", "1")
    assert json.loads(out)[0]["id"] == int(identifier)
    code, out, _ = await ootbot(bot, "tasks", "retry", identifier)
    assert (code, out) == (0, f"task {identifier} (relay a key) runs again\n")
    (row,) = [row for row in await bot.rows("task") if row["id"] == int(identifier)]
    assert (row["state"], row["attempts"]) == ("waiting", 0)


def test_tasks_can_be_listed_by_every_state_they_have():
    assert TASK_STATES == tasks.TASK_STATES


@pytest.mark.logic
async def test_what_cannot_run_again_is_said(bot):
    code, _, err = await ootbot(bot, "tasks", "retry", "999999")
    assert code == 1
    assert "there is no such task" in err
    code, _, _ = await ootbot(bot, "tasks", "retry", "none")
    assert code == 2


@pytest.mark.logic
async def test_all_that_was_given_up_runs_again_at_a_word(bot):
    await give_up(bot, "a", "b")
    async with bot.store.transaction() as tx:
        tx.enqueue("relay", "b", delay=60)  # asked for again already
    code, out, _ = await ootbot(bot, "tasks", "retry", "--all-dead")
    assert (code, [line.split(" ", 2)[2] for line in out.splitlines()]) == (
        0, ["(relay a) runs again", "(relay b) runs again"])  # fmt: skip
    assert await states(bot) == {"a": "waiting", "b": "waiting"}
    assert await ootbot(bot, "tasks", "retry", "--all-dead") == (0, "no task is dead\n", "")


@POSTGRES
async def test_what_somebody_else_has_dismissed_meanwhile_is_named_and_the_others_run_again(bot):
    await give_up(bot, "a", "b")
    (first,) = [row["id"] for row in await bot.rows("task") if row["key"] == "a"]

    code, out, err = await meanwhile(bot, tasks.dismiss_tasks, first, "retry", "--all-dead")
    assert (code, err) == (1, f"ootbot: task {first}: it is done; `ootbot tasks list` shows them\n")
    assert out.endswith("(relay b) runs again\n")
    assert await states(bot) == {"a": "done", "b": "waiting"}


@POSTGRES
async def test_what_somebody_else_has_run_again_meanwhile_is_not_said_to_be_dismissed(bot):
    await give_up(bot, "a")
    (first,) = [row["id"] for row in await bot.rows("task") if row["key"] == "a"]
    code, out, err = await meanwhile(bot, tasks.retry_tasks, first, "dismiss", str(first))
    assert (code, out) == (1, "")
    assert f"task {first}: it is waiting" in err
    assert await states(bot) == {"a": "waiting"}


async def meanwhile(bot, act, identifier, *told):
    """Run a command that comes to a task while another change of it is under way."""

    async def waits():
        async with bot.store.read() as tx:
            return await tx.rows(sa.text("SELECT 1 FROM pg_locks WHERE NOT granted"))

    async with bot.store.transaction() as tx:
        await act(tx, identifier)
        running = asyncio.create_task(ootbot(bot, "tasks", *told))
        await eventually(waits, "a command that waits for the task")
    return await running


@pytest.mark.logic
async def test_what_is_hopeless_is_dismissed(bot):
    await give_up(bot, "a", "b", "c")
    assert "3 given up" in " ".join((await bot.get("/readyz"))[1]["notes"])
    (first,) = [row["id"] for row in await bot.rows("task") if row["key"] == "a"]
    assert await ootbot(bot, "tasks", "dismiss", str(first)) == (
        0,
        f"task {first} (relay a) is dismissed\n",
        "",
    )
    assert await states(bot) == {"a": "done", "b": "dead", "c": "dead"}
    code, _, err = await ootbot(bot, "tasks", "dismiss", str(first))
    assert code == 1
    assert "it is done" in err
    assert (await ootbot(bot, "tasks", "dismiss", "--all-dead"))[0] == 0
    assert (await bot.get("/readyz"))[1]["notes"] == []


@pytest.mark.logic
async def test_either_one_task_is_meant_or_all_dead_ones(bot):
    for verb in ("retry", "dismiss"):
        for told in ([], ["1", "--all-dead"]):
            code, _, err = await ootbot(bot, "tasks", verb, *told)
            assert code == 2
            assert "one of ID and --all-dead" in err
