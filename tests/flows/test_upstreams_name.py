"""Is upstream one repository, however its name is spelled? GitHub leads every spelling to the same one."""

from __future__ import annotations

import pytest

from bot.app import make_app
from bot.demo.github import payloads
from bot.oot.publish import rows
from tests.harness import L4, UPSTREAM, replace, running
from tests.oot.reports.test_relay_endpoint import TOKEN, envelope, relay
from tests.serving import serving

SHOUTED = UPSTREAM.upper()
GATE = "oot / gate"
KEYED = ("oot_dispatch", "oot_check", "oot_comment", "oot_workflow_job", "oot_merge_group")


@pytest.fixture
def start(settings, github, issuer, clock):
    """Start a bot on the same database, whose settings spell upstream so."""

    def begin(upstream):
        chosen = replace(settings, upstream_repo=(upstream,))
        return running(chosen, github=github, issuer=issuer, app=github.app, clock=clock)

    return begin


async def failed(bot, github):
    """A pull request whose backend failed, and whose gate says so."""
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    await bot.report(bot.dispatch(L4), conclusion="failure")
    await bot.settle(horizon=30)
    assert bot.checks(UPSTREAM, pull.head_sha)[GATE][:2] == ("completed", "failure")
    return pull


async def deliver(bot, github, pull, action, spelled, **extra):
    """Deliver an event of a pull request that spells upstream its own way."""
    event = payloads.pull_request(github.state, pull, action, "alice", **extra)
    body = payloads.envelope(github.state, event, github.state.installed_on(pull.repo)[0])
    body["repository"]["full_name"] = spelled
    assert (await bot.send("pull_request", body))[0] == 202
    await bot.settle(horizon=30)


async def spellings(bot):
    """How rows of ours spell upstream, and what they are about."""
    found = {row["upstream_repo"] for table in KEYED for row in await bot.rows(table)}
    return found | {row["key"].partition("#")[0] for row in await bot.rows("task") if "#" in row["key"]}


async def labelled(bot, github, pull, spelled):
    """Put a label on under another spelling; a finished gate stays finished."""
    bot.clock.advance(60)
    await deliver(bot, github, pull, "labeled", spelled, label={"name": "ciflow/oot/npu"})
    assert bot.checks(UPSTREAM, pull.head_sha)[GATE][:2] == ("completed", "failure")


@pytest.mark.logic
async def test_a_delivery_that_spells_upstream_otherwise_is_about_the_same_pull_request(bot, github):
    pull = await failed(bot, github)
    await labelled(bot, github, pull, SHOUTED)
    bot.clock.advance(60)
    await deliver(bot, github, pull, "closed", SHOUTED)
    assert await spellings(bot) == {UPSTREAM}
    async with bot.store.read() as tx:
        assert len(await rows.checks_of(tx, UPSTREAM, pull.number)) == 2


@pytest.mark.logic
async def test_settings_that_spell_upstream_otherwise_change_nothing(start, github):
    async with start(SHOUTED) as bot:
        pull = await failed(bot, github)
        assert await spellings(bot) == {SHOUTED}
    async with start(UPSTREAM) as bot:
        await labelled(bot, github, pull, UPSTREAM)
        await bot.wait(3700)  # what is listed at GitHub is spelled its way
        assert bot.checks(UPSTREAM, pull.head_sha)[GATE][:2] == ("completed", "failure")
        assert await spellings(bot) == {SHOUTED}
        for path in (f"/{UPSTREAM}/pull/1", f"/api/oot/pulls/{UPSTREAM}/1", f"/{SHOUTED}/pull/1"):
            status, page = await bot.get(path)
            assert (status, L4 in str(page)) == (200, True), path


async def test_what_an_outside_relay_says_of_upstream_is_shown_with_the_rest(bot, github):
    pull = await failed(bot, github)
    passed_on = envelope(number=pull.number, sha=pull.head_sha)
    passed_on["untrusted"]["callback_payload"]["payload"]["repository"]["full_name"] = SHOUTED
    open_to_relays = replace(bot.context, settings=replace(bot.context.settings, relay_token=TOKEN))
    async with serving(bot, make_app(open_to_relays)) as door:
        assert (await relay(door, passed_on))[0] == 200
    assert await spellings(bot) == {UPSTREAM}
    _, page = await bot.get(f"/{UPSTREAM}/pull/{pull.number}")
    assert "far/backend" in page
