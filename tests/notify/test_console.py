"""ootbot notify list, test and retry, the doctor's line and the metrics: what the operator sees of receivers."""

from __future__ import annotations

import json

import pytest

from bot.notify.administration import check_receivers
from bot.ops.doctor import Target
from tests.command import ootbot
from tests.notify.conftest import BACKENDS
from tests.notify.receiving import SECRET, check, verify
from tests.notify.stories import turn_red
from tests.serving import SQLITE

pytestmark = pytest.mark.logic


async def run(bot, inbox, *arguments):
    """Run `ootbot notify` with the bot's receiver."""
    table = {"name": "team", "url": f"{inbox.url}/hook", "secret": SECRET, "internal": True}
    return await ootbot(bot, "notify", *arguments, NOTIFY=json.dumps([table]))


@SQLITE
async def test_a_test_notice_is_sent_at_once(bot, inbox):
    code, out, _ = await run(bot, inbox, "test", "team")
    assert (code, out) == (0, "team took the test notice\n")
    [(headers, body)] = inbox.got
    assert verify(headers, body)
    assert json.loads(body)["type"] == "test"

    inbox.answers = [(500, {})]
    code, _, err = await run(bot, inbox, "test", "team")
    assert code == 1
    assert "team: it answered 500" in err

    code, _, err = await run(bot, inbox, "test", "nobody")
    assert code == 2
    assert "there is no receiver nobody; known are team" in err


@SQLITE
async def test_what_was_given_up_is_listed_and_sent_again(bot, inbox):
    inbox.answers = [(400, {})]
    await turn_red(bot)
    await check(bot)

    code, out, _ = await run(bot, inbox, "list", "--json")
    [one] = json.loads(out)
    assert code == 0
    assert (one["name"], one["sent"], one["dead"], one["error"]) == ("team", 0, 1, "it answered 400")
    assert SECRET not in out
    assert "/hook" not in out
    code, out, _ = await run(bot, inbox, "list")
    assert "team  json  127.0.0.1" in out
    assert "0 sent, 0 waiting, 1 given up" in out

    code, out, _ = await run(bot, inbox, "retry")
    assert (code, out) == (0, "team: 1 notice will be sent again\n")
    bot.clock.at += 10**12  # the command has the machine's clock
    await bot.settle()
    assert inbox.told.count("backend_red") == 2
    code, out, _ = await run(bot, inbox, "retry", "team")
    assert out == "no notice was given up\n"


async def test_the_doctor_and_the_metrics_tell_of_what_was_not_sent(bot, inbox):
    target = Target(settings=bot.context.settings, store=bot.store, http=bot.http, clock=bot.clock, apps=())
    [finding] = await check_receivers(target)
    assert (finding.status, finding.detail) == ("ok", "1 receiver, nothing failed to be sent")

    inbox.answers = [(400, {})]
    await turn_red(bot)
    await check(bot)

    [finding] = await check_receivers(target)
    assert (finding.status, finding.detail) == ("warning", "team: 1 given up, 0 waiting; it answered 400")
    assert "ootbot notify retry" in finding.next
    _, text = await bot.get("/metrics")
    assert 'ootbot_notices_unsent{state="dead"} 1.0' in text
    assert BACKENDS[0] in [row["event"] for row in await bot.rows("notice")]
