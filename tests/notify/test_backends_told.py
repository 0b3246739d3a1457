"""People are told that a backend turned red, fell silent and recovered, each once, by what is, not what happened."""

from __future__ import annotations

import pytest

from tests.harness import L3
from tests.notify.receiving import LATER, check, recover, run_once, turn_red, verify


@pytest.mark.logic
async def test_a_backend_that_turned_red_is_told_once_and_so_is_its_recovery(bot, inbox):
    await turn_red(bot)
    await check(bot)
    await check(bot)

    assert inbox.told == ["backend_red"]
    [notice] = inbox.notices
    assert notice["version"] == 1
    assert notice["data"] == {
        "heading": "npu (L3) turned red",
        "lines": ["0 % of 1 run passed in 24 hours"],
        "since": None,
        "repository": "pytorch/pytorch",
        "branch": None,
        "backend": L3,
        "oncalls": ["carol"],
        "url": f"{bot.context.settings.url}/oot/{L3}",
    }

    await recover(bot)
    await check(bot)
    await check(bot)

    assert inbox.told == ["backend_red", "backend_recovered"]


@pytest.mark.logic
async def test_a_backend_without_news_neither_recovers_nor_turns_red_again(bot, inbox):
    await turn_red(bot)
    await check(bot)
    bot.clock.advance(LATER)
    await check(bot)

    assert inbox.told == ["backend_red"]


@pytest.mark.logic
async def test_silence_is_told_and_that_it_ended(bot, inbox):
    await run_once(bot, "success")
    bot.clock.advance(37 * 3_600)
    await check(bot)

    assert inbox.told == ["backend_silent"]
    assert inbox.notices[0]["data"]["lines"] == ["its last report came 37 h ago"]

    await run_once(bot, "success", run_id="2")
    await check(bot)

    assert inbox.told == ["backend_silent", "backend_reporting"]


@pytest.mark.nightly
async def test_a_backend_that_left_the_allowlist_is_not_said_to_have_recovered(bot, inbox):
    await turn_red(bot)
    await check(bot)
    await bot.list_backends("L2: [org/l2-sim]")
    await check(bot)

    assert inbox.told == ["backend_red"]


@pytest.mark.logic
async def test_a_notice_leaves_within_30_seconds_of_its_cause_unasked(bot, inbox):
    await run_once(bot, "success", run_id="1")
    bot.clock.advance(LATER)
    await bot.wait(30)
    inbox.got.clear()
    began = bot.clock.now()
    await run_once(bot, "failure", run_id="2")
    while not inbox.got and bot.clock.now() < began + 60_000:
        await bot.wait(1)

    assert "backend_red" in inbox.told
    assert bot.clock.now() - began <= 30_000


@pytest.mark.logic
async def test_a_notice_is_signed_so_that_standard_libraries_can_check_it(bot, inbox):
    await turn_red(bot)
    await check(bot)

    [(headers, body)] = inbox.got
    assert verify(headers, body)
    assert not verify(headers, body + b" ")
    assert headers["webhook-id"] == inbox.notices[0]["id"]
    assert int(headers["webhook-timestamp"]) == bot.clock.now() // 1000
    assert headers["Content-Type"] == "application/json"
