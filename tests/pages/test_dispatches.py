"""Dispatches under way: what waits to be sent, for approval or for a report, what runs, and for how long."""

import pytest

from tests.harness import L2, L3, L4, UPSTREAM
from tests.pages.page_checks import check_escaped, page_text
from tests.pages.reading import ADMIN, said_to_be
from tests.serving import SQLITE

PATH = "/api/oot/dispatches"


async def states(bot, query=""):
    """How far each backend's dispatch is."""
    _, body = await bot.get(f"{PATH}{query}")
    return {one["backend"]: one["state"] for one in body["dispatches"]}


@pytest.mark.logic
async def test_a_dispatch_waits_then_runs_then_is_gone(bot, pull):
    assert await states(bot) == {
        L2: "waiting",
        L3: "waiting",
        L4: "waiting",
    }  # none to L1, which never reports
    bot.clock.advance(90)
    await bot.report(bot.dispatch(L4), status="in_progress")
    bot.clock.advance(60)
    assert (await states(bot))[L4] == "running"
    _, body = await bot.get(PATH)
    running = body["dispatches"][-1]  # the oldest first
    assert (running["backend"], running["age"], running["pr"]) == (L4, 60, pull.number)
    assert (running["upstream_repo"], running["oncalls"]) == (UPSTREAM, ["dave"])
    text = await page_text(bot, "/oot/dispatches")
    assert f"L4 tpu {L4} … running {UPSTREAM}#{pull.number}" in text
    assert "60 s ago" in text
    check_escaped((await bot.get("/oot/dispatches"))[1])
    await bot.report(bot.dispatch(L4))
    assert L4 not in await states(bot)


@SQLITE
async def test_one_that_needs_approval_is_held(bot, github):
    await bot.list_backends("L4: {tpu: {repo: org/tpu-backend, policy: trusted, oncalls: [dave]}}")
    await github.open_pull(UPSTREAM, author="stranger", author_association="NONE")
    await bot.settle()
    assert (await states(bot)).get(L4) == "held"
    assert "held for approval" in await page_text(bot, "/oot/dispatches?state=held")


@SQLITE
async def test_the_table_is_narrowed(bot, pull):
    await bot.report(bot.dispatch(L4), status="in_progress")
    assert await states(bot, "?state=running") == {L4: "running"}
    assert await states(bot, "?q=NPU") == {L3: "waiting"}
    assert await states(bot, "?level=2") == {L2: "waiting"}
    assert await states(bot, "?oncall=bob") == {L2: "waiting"}
    assert len(await states(bot, "?limit=2")) == 2
    assert (await bot.get(f"{PATH}?limit=2"))[1]["total"] == 3
    assert "Nothing of that kind is under way" in await page_text(bot, "/oot/dispatches?q=nothing")


@SQLITE
@pytest.mark.parametrize("query", ["?state=lost", "?level=5", "?limit=0", "?oncall=%2F", "?refresh=1"])
async def test_what_cannot_be_meant_is_refused(bot, query):
    status, answer = await bot.get(("/oot/dispatches" if "refresh" in query else PATH) + query)
    assert status == 400
    assert (
        "state must be one of held, queued, sending, waiting, running" in str(answer) or "state" not in query
    )


@SQLITE
async def test_what_was_not_answered_for_a_week_is_not_under_way_any_more(bot, pull):
    bot.clock.advance(8 * 86_400)
    assert await states(bot) == {}
    assert "Nothing is under way" in await page_text(bot, "/oot/dispatches")


@SQLITE
async def test_those_of_a_private_upstream_are_hidden(bot, pull, github):
    await said_to_be(bot, github, private=True)
    assert (await bot.get(PATH))[0] == 404
    assert len((await bot.get(PATH, headers=ADMIN))[1]["dispatches"]) == 3
