"""What is private stays, quiet hours hold back, capabilities have conditions of their own, and what the operator sees."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime

import pytest

from bot.core.feature import Feature
from bot.features import FEATURES
from bot.notify.administration import check_receivers
from bot.notify.notices import read_digest
from bot.ops.doctor import Target
from tests import harness
from tests.command import ootbot
from tests.harness import L3, UPSTREAM
from tests.notify.conftest import BACKENDS
from tests.notify.receiving import SECRET, check, recover, telling, turn_red, verify
from tests.pages.test_private_names import said_to_be
from tests.serving import SQLITE

pytestmark = pytest.mark.logic

FINDING = f"""
from bot.core.feature import Condition, ConditionSubject

found = []


async def read(context, tx, scope):
    about = ConditionSubject(repo="{UPSTREAM}", backend="{L3}", oncalls=("carol",), path="/{UPSTREAM}/bisects/7")
    return [
        Condition(event="culprit_found", key=key, holds=True, heading="npu is broken by #12", subject=about)
        for key in found
    ]
"""


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


def clock_of(now, seconds):
    """The time of day in so many seconds, as settings have it."""
    return datetime.fromtimestamp(now / 1000 + seconds, UTC).strftime("%H:%M")


async def test_what_happens_in_quiet_hours_is_sent_at_their_end(inbox, serve, clock):
    later = clock.now() + 30 * 3_600_000
    quiet = f"{clock_of(later, -3_600)}-{clock_of(later, 7_200)}"
    async with serve(inbox.receiver(events=BACKENDS, quiet=quiet)) as bot:
        await turn_red(bot)
        await check(bot)
        await bot.wait(3_600)
        assert inbox.got == []
        await bot.wait(3_700)
        assert inbox.told == ["backend_red"]


async def test_a_digest_says_what_is_open_what_happened_and_how_backends_fare(inbox, serve, clock):
    later = clock.now() + 30 * 3_600_000
    receiver = inbox.receiver(events=BACKENDS, backends=("org/*",), digest=clock_of(later, 120))
    async with serve(receiver) as bot:
        await turn_red(bot)
        await bot.wait(300)
        await bot.wait(3_600)

        digests = [one for one in inbox.notices if one["type"] == "digest"]
        assert [one["data"]["heading"] for one in digests][-1] == "Daily digest: 1 open matter"
        lines = digests[-1]["data"]["lines"]
        assert lines[0] == "In the last 24 hours: 1 × backend turned red"
        assert lines[1].startswith("Open: npu (L3) turned red (for ")
        assert "npu (L3): 0 % of 1 passed" in lines
        assert "tpu (L4): no result that counts" in lines
        before = len(digests)
        await bot.wait(20 * 3_600)
        assert len([one for one in inbox.notices if one["type"] == "digest"]) == before
        await bot.wait(4 * 3_600)
        assert len([one for one in inbox.notices if one["type"] == "digest"]) == before + 1


@pytest.mark.nightly
async def test_a_digest_whose_time_is_long_past_is_left_out(inbox, serve, clock):
    receiver = inbox.receiver(events=BACKENDS, digest=clock_of(clock.now(), -4 * 3_600))
    async with serve(receiver) as bot:
        await check(bot)
        assert inbox.got == []


@pytest.fixture
async def finding(inbox, settings, github, issuer, clock, tmp_path, monkeypatch):
    """A bot with a capability that finds what is in a list, and that list."""
    folder = tmp_path / "packages"
    folder.mkdir()
    (folder / "finding_culprits.py").write_text(FINDING)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "finding_culprits", raising=False)
    features = (*FEATURES, Feature(name="finding", conditions="finding_culprits:read"))
    chosen = telling(settings, inbox.receiver(events=("culprit_found",), oncall=("carol",)))
    async with harness.running(
        chosen, github=github, issuer=issuer, app=github.app, clock=clock, features=features
    ) as bot:
        import finding_culprits

        yield bot, finding_culprits.found


async def test_what_was_found_is_told_once(finding, inbox):
    bot, found = finding
    found.append("search 7")
    await check(bot)
    await check(bot)
    found.clear()
    await check(bot)
    found.append("search 7")
    await check(bot)

    [notice] = inbox.notices
    assert (notice["type"], notice["data"]["heading"]) == ("culprit_found", "npu is broken by #12")
    assert notice["data"]["url"].endswith(f"/{UPSTREAM}/bisects/7")


@pytest.mark.nightly
async def test_it_is_forgotten_a_month_after_it_was_last_said(finding, inbox):
    bot, found = finding
    found.append("search 7")
    await check(bot)
    for _ in range(40):
        bot.clock.advance(86_400)
        await check(bot)
    assert len(inbox.got) == 1
    assert len(await bot.rows("notice")) == 1

    found.clear()
    bot.clock.advance(40 * 86_400)
    await bot.settle()
    for kind in ("prune", "prune"):
        async with bot.store.transaction() as tx:
            tx.enqueue(kind, "")
        await bot.settle()
    assert await bot.rows("notice_told") == []
    assert [row for row in await bot.rows("notice") if row["event"] == "culprit_found"] == []


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
