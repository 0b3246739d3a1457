"""What becomes of a delivery that cannot be handled? It is tried five times, then parked, and holds nobody up."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from tests.harness import UPSTREAM, UPSTREAM_ID

SQLITE = (
    "CREATE TRIGGER refuse BEFORE INSERT ON issue WHEN NEW.number = 13 BEGIN SELECT RAISE(ABORT, 'no thirteens'); END",
)
POSTGRES = (
    "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no thirteens'; END $$",
    "CREATE TRIGGER refuse BEFORE INSERT ON issue FOR EACH ROW WHEN (NEW.number = 13) EXECUTE FUNCTION refuse()",
)


@pytest.fixture
async def superstitious(bot):
    """A database that refuses one row; returns what makes it take it."""
    async with bot.store.transaction() as tx:
        for statement in SQLITE if bot.store.sqlite else POSTGRES:
            await tx.run(sa.text(statement))

    async def converted():
        async with bot.store.transaction() as tx:
            on = "" if bot.store.sqlite else " ON issue"
            await tx.run(sa.text(f"DROP TRIGGER refuse{on}"))

    return converted


def an_issue(number):
    repository = {"id": UPSTREAM_ID, "full_name": UPSTREAM, "private": False}
    issue = {"id": number, "number": number, "title": "It is slow", "updated_at": "2026-01-02T03:04:05Z"}
    return {"action": "opened", "issue": issue, "repository": repository}


async def states(bot):
    return {row["guid"]: (row["state"], row["attempts"]) for row in await bot.rows("delivery")}


async def test_one_bad_delivery_is_tried_five_times_and_never_holds_up_the_others(bot, superstitious):
    before = await counted(bot, "parked")
    for number in (12, 13, 14):
        await bot.send("issues", an_issue(number), guid=f"issue-{number}")
    await bot.settle()
    assert (await states(bot))["issue-13"] == ("stored", 1)
    assert {row["number"] for row in await bot.rows("issue")} == {12, 14}
    began = bot.clock.now()
    await bot.settle(horizon=24 * 3600)
    assert bot.clock.now() - began > 60_000, "the tries keep a growing distance"
    assert await states(bot) == {
        "issue-12": ("handled", 1), "issue-13": ("parked", 5), "issue-14": ("handled", 1)
    }  # fmt: skip
    assert await counted(bot, "parked") == before + 1
    admin = {"Authorization": "Bearer an admin token of ours"}
    assert await gauge(bot) == 1
    (note,) = (await bot.get("/readyz"))[1]["notes"]
    assert "/admin/deliveries?state=parked" in note
    _, listed = await bot.get("/api/admin/deliveries?state=parked", headers=admin)
    assert [one["guid"] for one in listed["deliveries"]] == ["issue-13"]
    _, shown = await bot.get("/api/admin/deliveries/issue-13", headers=admin)
    assert "no thirteens" in shown["delivery"]["error"]
    await superstitious()
    status, _ = await bot.request("POST", "/api/admin/deliveries/issue-13/replay", headers=admin)
    assert status == 202
    await bot.settle()
    assert (await states(bot))["issue-13"][0] == "handled"
    assert {row["number"] for row in await bot.rows("issue")} == {12, 13, 14}
    assert (await gauge(bot), (await bot.get("/readyz"))[1]["notes"]) == (0, [])


@pytest.mark.logic
async def test_events_without_a_handler_are_kept_and_counted(bot):
    before = await counted(bot, "no_handler")
    await bot.send(
        "star", {"action": "created", "repository": {"id": UPSTREAM_ID, "full_name": UPSTREAM}}, guid="star"
    )
    await bot.settle()
    assert await states(bot) == {"star": ("ignored", 1)}
    assert await counted(bot, "no_handler") == before + 1


async def counted(bot, outcome):
    _, text = await bot.get("/metrics")
    name = f'ootbot_deliveries_applied_total{{outcome="{outcome}"}}'
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))


async def gauge(bot):
    _, text = await bot.get("/metrics")
    return float(
        next(line for line in text.splitlines() if line.startswith("ootbot_parked_deliveries")).split()[-1]
    )


UNRECORDED = {  # a database that cannot hold a reason, as one in LATIN1 cannot hold some
    True: "CREATE TRIGGER forget BEFORE UPDATE ON {table} WHEN NEW.error LIKE '%{words}%' "
    "BEGIN SELECT RAISE(ABORT, 'no such text'); END",
    False: "CREATE TRIGGER forget BEFORE UPDATE ON {table} FOR EACH ROW WHEN (NEW.error LIKE '%{words}%') "
    "EXECUTE FUNCTION refuse()",
}


async def forget(bot, table, words):
    async with bot.store.transaction() as tx:
        await tx.run(sa.text(UNRECORDED[bot.store.sqlite].format(table=table, words=words)))


async def test_a_reason_that_cannot_be_stored_parks_the_delivery_without_it(bot, superstitious):
    await forget(bot, "delivery", "thirteens")
    for number in (12, 13, 14):
        await bot.send("issues", an_issue(number), guid=f"issue-{number}")
    await bot.settle(horizon=24 * 3600)
    assert (await states(bot))["issue-13"] == ("parked", 5)
    assert {row["number"] for row in await bot.rows("issue")} == {12, 14}
    (row,) = [row for row in await bot.rows("delivery") if row["guid"] == "issue-13"]
    assert row["error"] == "the database cannot store why; see the log"


async def test_a_failure_that_cannot_be_recorded_stops_no_other_delivery(bot, superstitious):
    await forget(bot, "delivery", "")
    for number in (12, 13, 14):
        await bot.send("issues", an_issue(number), guid=f"issue-{number}")
    for _ in range(3):
        await bot.worker.step()
    assert {row["number"] for row in await bot.rows("issue")} == {12, 14}
    assert (await states(bot))["issue-13"][0] == "stored"
    status, ready = await bot.get("/readyz")
    assert status == 503
    assert "that delivery issue-13 failed cannot be recorded" in ready["missing"][0]


async def test_a_task_whose_reason_cannot_be_stored_ends_without_it(bot, superstitious):
    await forget(bot, "task", "names no run")
    async with bot.store.transaction() as tx:
        tx.enqueue("utilization", "neither")
    await bot.settle()
    (row,) = [row for row in await bot.rows("task") if row["key"] == "neither"]
    assert (row["state"], row["error"]) == ("dead", "the database cannot store why; see the log")
