"""GitHub's times have seconds, and much happens in one: what do records say then, and later?"""

from __future__ import annotations

from bot.demo.github import payloads
from tests.harness import L4, UPSTREAM

ROUND = 660  # seconds in which each periodic task runs once more


async def test_of_two_edits_in_one_second_the_last_is_shown_in_the_end(bot, github):
    """Nothing in two such deliveries tells which came last, so half of them are taken for it wrongly, at first."""
    pulls = [await github.open_pull(UPSTREAM) for _ in range(8)]
    await bot.settle()
    bot.clock.advance(60)
    for pull in pulls:
        for title in ("first", "last"):
            pull.title, pull.updated_at = title, github.world.now()
            event = payloads.pull_request(github.world, pull, "edited", "alice")
            body = payloads.envelope(github.world, event, github.world.installed_on(pull.repo)[0])
            await bot.send("pull_request", body)
    await bot.settle()
    for _ in range(3):
        await bot.wait(ROUND)
    assert [row["title"] for row in await bot.rows("pull_request")] == ["last"] * len(pulls)


async def test_a_check_run_opened_again_shows_its_last_end(bot, github):
    """GitHub tells nobody that one was opened again, only that it was completed anew."""
    await github.open_pull(UPSTREAM)
    await bot.settle()
    await bot.report(bot.dispatch(L4), conclusion="failure")
    await bot.settle()
    (told,) = [
        one.payload
        for one in github.deliveries
        if (one.event, one.action) == ("check_run", "completed") and one.payload["check_run"]["name"] == "oot / tpu"
    ]  # fmt: skip
    again = told["check_run"] | {"status": "in_progress", "conclusion": None, "completed_at": None}
    await bot.send("check_run", told | {"action": "created", "check_run": again})
    for _ in range(3):
        await bot.wait(ROUND)
    assert await shown(bot, again["id"]) == ("completed", "failure")
    ended = again | {"status": "completed", "conclusion": "success", "completed_at": "2099-01-01T00:00:00Z"}
    await bot.send("check_run", told | {"check_run": ended})
    await bot.settle()
    assert await shown(bot, again["id"]) == ("completed", "success")


async def shown(bot, check_run_id):
    (row,) = [row for row in await bot.rows("check_run") if row["id"] == check_run_id]
    return row["status"], row["conclusion"]
