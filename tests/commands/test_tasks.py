"""`ootbot tasks`: what was given up is listed with its reason and runs again when told so."""

from __future__ import annotations

import json

from tests.command import ootbot


async def give_up(bot):
    async with bot.store.transaction() as tx:
        tx.enqueue("relay", "a key")
    await bot.settle()


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


async def test_what_cannot_run_again_is_said(bot):
    code, _, err = await ootbot(bot, "tasks", "retry", "999999")
    assert code == 1
    assert "there is no such task" in err
    code, _, _ = await ootbot(bot, "tasks", "retry", "none")
    assert code == 2
