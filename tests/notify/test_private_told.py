"""What is private never leaves for a receiver that may not have it, nor shows in a feed or badge."""

from __future__ import annotations

import pytest

from bot.notify.notices import read_digest
from tests.harness import L3, UPSTREAM
from tests.notify.conftest import BACKENDS
from tests.notify.receiving import check
from tests.notify.stories import recover, turn_red
from tests.pages.test_private_names import said_to_be

pytestmark = pytest.mark.logic


@pytest.mark.parametrize("repo", [L3, UPSTREAM])
async def test_only_a_receiver_that_says_so_is_told_of_private_repositories(inbox, serve, github, repo):
    inside = inbox.receiver(name="inside", url=f"{inbox.url}/inside", private=True, events=BACKENDS)
    async with serve(inbox.receiver(events=BACKENDS), inside) as bot:
        await said_to_be(bot, github, repo, private=True)
        await turn_red(bot)
        await check(bot)

        sent = [(row["receiver"], row["state"]) for row in await bot.rows("notice_sending")]
        assert sent == [("inside", "sent")]
        about = [row["audience"] for row in await bot.rows("notice") if row["backend"] == L3]
        assert about == ["private"]
        status, feed = await bot.get(f"/oot/{L3}/feed.atom")
        assert (status, "turned red" in str(feed)) == (404, False)


async def test_what_becomes_private_is_not_said_to_have_recovered(bot, inbox, github):
    await turn_red(bot)
    await check(bot)
    await said_to_be(bot, github, L3, private=True)
    await recover(bot)
    await check(bot)

    assert inbox.told == ["backend_red"]


async def test_what_becomes_private_while_it_waits_is_not_sent(bot, inbox, github):
    inbox.answers = [(503, {})]
    await turn_red(bot)
    await check(bot)
    await said_to_be(bot, github, L3, private=True)
    await bot.wait(60)

    assert len(inbox.got) == 1
    [row] = await bot.rows("notice_sending")
    assert (row["state"], row["error"]) == ("dropped", "its repository is private now")
    digest = await read_digest(bot.context, inbox.receiver())
    assert "npu" not in " ".join([digest["heading"], *digest["lines"]])
