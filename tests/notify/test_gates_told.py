"""A gate that waits for long is told once a head, and not once it is no longer that of an open pull request."""

from __future__ import annotations

import pytest

from tests.harness import L4, UPSTREAM
from tests.notify.receiving import check

HOUR = 3_600


@pytest.fixture
async def bot(inbox, serve):
    async with serve(inbox.receiver(events=("gate_waiting",)), begun=True) as made:
        yield made


@pytest.mark.logic
async def test_a_gate_that_waits_is_told_once(bot, github, inbox):
    pull = await github.open_pull(UPSTREAM, author="octocat", title="Add a kernel")
    await bot.settle()
    await bot.wait(HOUR)
    assert inbox.got == []
    await bot.wait(HOUR + 60)
    await bot.wait(HOUR)

    [notice] = inbox.notices
    assert notice["type"] == "gate_waiting"
    assert notice["data"]["heading"] == f"the gate of {UPSTREAM}#{pull.number} waits"
    assert notice["data"]["lines"] == ["Add a kernel", "for tpu, since 2 h 1 min"]
    assert notice["data"]["url"].endswith(f"/{UPSTREAM}/pull/{pull.number}?sha={pull.head_sha}")
    assert [row["event"] for row in await bot.rows("notice_told")] == ["gate_waiting"]

    await bot.report(bot.dispatch(L4), status="in_progress", run_id="1")
    await bot.report(bot.dispatch(L4), conclusion="failure", run_id="1")
    await bot.settle()
    await check(bot)

    assert len(inbox.got) == 1
    assert await bot.rows("notice_told") == []


@pytest.mark.logic
async def test_gates_of_closed_pull_requests_and_of_earlier_heads_are_not_told(bot, github, inbox):
    closed = await github.open_pull(UPSTREAM, author="octocat")
    pushed = await github.open_pull(UPSTREAM, author="octocat")
    await bot.settle()
    await bot.wait(HOUR)
    await github.close(closed)
    await github.push_commit(pushed)
    await bot.settle()
    await bot.wait(HOUR + HOUR // 2)

    assert inbox.got == []
