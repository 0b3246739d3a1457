"""policy: trusted. A stranger's pull request is held until somebody with write access sets the label."""

from __future__ import annotations

import json

import pytest

from bot.oot.verdict.view import OK_TO_TEST
from tests.flows.scenarios import (
    dispatched_to,
    states,
)
from tests.harness import L2, L4, UPSTREAM

pytestmark = pytest.mark.logic


TRUSTED = f"L2: [{L2}]\nL4:\n  tpu: {{{L4}: {{oncalls: dave, policy: trusted}}}}\n"


@pytest.fixture
async def stranger(bot, github):
    """A stranger's pull request, with a blocking backend that trusts only some authors."""
    await bot.list_backends(TRUSTED)
    pull = await github.open_pull(UPSTREAM, author="mallory", author_association="NONE")
    await bot.settle()
    return pull


@pytest.mark.parametrize("association", ["OWNER", "MEMBER", "COLLABORATOR", "CONTRIBUTOR"])
async def test_known_authors_are_dispatched_at_once(bot, github, association):
    await bot.list_backends(TRUSTED)
    await github.open_pull(UPSTREAM, author_association=association)
    await bot.settle()
    assert sorted(dispatched_to(github)) == sorted([L2, L4])


@pytest.mark.parametrize("association", ["NONE", "FIRST_TIMER", "FIRST_TIME_CONTRIBUTOR", "MANNEQUIN", None])
async def test_a_strangers_pull_request_is_held_and_says_so(bot, github, association):
    await bot.list_backends(TRUSTED)
    pull = await github.open_pull(UPSTREAM, author="mallory", author_association=association)
    await bot.wait(25 * 3600)
    assert dispatched_to(github) == [L2]
    checks = bot.checks(UPSTREAM, pull.head_sha)
    assert checks["oot / tpu"] == ("queued", None, "needs oot/ok-to-test")
    assert checks["oot / gate"] == ("in_progress", None, "needs oot/ok-to-test")
    status, page = await bot.get(f"/{UPSTREAM}/pull/{pull.number}")
    assert status == 200
    assert "oot/ok-to-test" in page


@pytest.mark.parametrize(("role", "label"), [("write", OK_TO_TEST), ("admin", OK_TO_TEST.upper())])
async def test_the_label_of_a_writer_releases_the_held_head(bot, github, stranger, role, label):
    github.set_permission(UPSTREAM, "carol", role)
    await github.label(stranger, label, "carol")
    await bot.settle(horizon=30)
    assert dispatched_to(github, L4) == [L4]
    assert bot.checks(UPSTREAM, stranger.head_sha)["oot / tpu"][:2] == ("queued", None)
    assert bot.checks(UPSTREAM, stranger.head_sha)["oot / gate"][2] == "waiting for tpu"
    assert bot.dispatch(L4).client_payload["payload"]["action"] == "opened"


@pytest.mark.parametrize("role", ["read", "none"])
async def test_the_label_of_somebody_who_may_not_write_changes_nothing(bot, github, stranger, role):
    github.set_permission(UPSTREAM, "eve", role)
    await github.label(stranger, OK_TO_TEST, "eve")
    await bot.wait(60)
    assert dispatched_to(github, L4) == []
    assert bot.checks(UPSTREAM, stranger.head_sha)["oot / gate"][2] == "needs oot/ok-to-test"


async def test_another_label_releases_nothing(bot, github, stranger):
    await github.label(stranger, "oot/ok-to-tes")
    await github.label(stranger, "OOT/ok-to-test ")
    await bot.settle()
    assert dispatched_to(github, L4) == []


async def test_a_later_commit_needs_the_label_again(bot, github, stranger):
    await github.label(stranger, OK_TO_TEST)
    await bot.settle()
    bot.clock.advance(60)
    head = await github.push_commit(stranger)
    await bot.settle(horizon=30)
    assert len(dispatched_to(github, L4)) == 1
    assert bot.checks(UPSTREAM, head)["oot / gate"][2] == "needs oot/ok-to-test"
    await github.unlabel(stranger, OK_TO_TEST)
    await github.label(stranger, OK_TO_TEST)
    await bot.settle()
    assert bot.dispatch(L4).client_payload["payload"]["pull_request"]["head"]["sha"] == head
    assert len(dispatched_to(github, L4)) == 2


async def test_the_label_releases_one_of_several_held_events(bot, github):
    await bot.list_backends(TRUSTED)
    await github.push(UPSTREAM, "release", message="a branch")
    draft = await github.open_pull(UPSTREAM, author="mallory", author_association="NONE", draft=True)
    for act in (lambda: github.ready_for_review(draft), lambda: github.retarget(draft, "release")):
        await bot.settle()
        bot.clock.advance(60)
        await act()
    await bot.settle()
    await github.label(draft, OK_TO_TEST)
    await bot.settle(horizon=30)
    assert dispatched_to(github, L4) == [L4]
    assert bot.dispatch(L4).client_payload["payload"]["pull_request"]["base"]["ref"] == "release"


async def test_the_label_releases_nothing_that_was_dispatched_since(bot, github, stranger):
    await bot.list_backends(TRUSTED.replace("policy: trusted", "policy: all"))
    github.set_permission(UPSTREAM, "wendy", "write")
    await github.comment(stranger, "/oot run tpu", "wendy")
    await bot.settle()
    assert dispatched_to(github, L4) == [L4]
    bot.clock.advance(60)
    await github.label(stranger, OK_TO_TEST)
    await bot.settle(horizon=30)
    assert dispatched_to(github, L4) == [L4]


async def test_a_label_for_an_older_commit_does_not_release_the_newer_one(bot, github, stranger):
    await github.label(stranger, OK_TO_TEST)
    head = await github.push_commit(stranger)
    await bot.settle(horizon=30)
    sent = {one.client_payload["payload"]["pull_request"]["head"]["sha"] for one in github.dispatches}
    assert (L4, head) not in {
        (one.repo.full_name, one.client_payload["payload"]["pull_request"]["head"]["sha"])
        for one in github.dispatches
    }
    assert head in sent


@pytest.mark.parametrize("merged", [False, True], ids=["closed", "merged"])
async def test_a_closing_tells_of_the_commit_that_was_sent_and_not_of_the_held_one(
    bot, github, stranger, merged
):
    await github.label(stranger, OK_TO_TEST)
    await bot.settle(horizon=30)
    approved = stranger.head_sha
    bot.clock.advance(60)
    held = await github.push_commit(stranger)
    await bot.settle()
    bot.clock.advance(60)
    await (github.merge(stranger) if merged else github.close(stranger))
    await bot.settle(horizon=30)
    assert dispatched_to(github, L4) == [L4, L4]
    told = bot.dispatch(L4).client_payload
    pull = told["payload"]["pull_request"]
    assert (told["payload"]["action"], pull["state"], pull["merged"]) == ("closed", "closed", merged)
    assert pull["head"]["sha"] == approved
    assert held not in json.dumps(told)
    assert (await bot.report(bot.dispatch(L4), run_id="77"))[0] == 200
    assert {row["head_sha"] for row in await bot.rows("oot_workflow_job")} == {approved}
    whole = bot.dispatch(L2).client_payload["payload"]
    assert (whole["action"], whole["pull_request"]["head"]["sha"]) == ("closed", held), (
        "it holds nothing back"
    )


async def test_the_label_may_arrive_before_the_pull_request(bot, github):
    await bot.list_backends(TRUSTED)
    hook, bot.app.webhook_url = bot.app.webhook_url, "http://127.0.0.1:9/nobody"
    pull = await github.open_pull(UPSTREAM, author="mallory", author_association="NONE")
    await github.label(pull, OK_TO_TEST)
    bot.app.webhook_url = hook
    opened, labeled = [one for one in github.deliveries if one.event == "pull_request"]
    for delivery in (labeled, opened):
        await github.redeliver(delivery)
        await bot.settle()
    assert dispatched_to(github, L4) == [L4]


async def test_the_same_label_twice_sends_once(bot, github, stranger):
    await github.label(stranger, OK_TO_TEST)
    await bot.settle()
    (labeled,) = [one for one in github.deliveries if one.action == "labeled"]
    await github.redeliver(labeled)
    await bot.settle()
    await github.unlabel(stranger, OK_TO_TEST)
    await github.label(stranger, OK_TO_TEST)
    await bot.settle()
    assert len(dispatched_to(github, L4)) == 1


async def test_the_closing_is_not_dispatched_where_everything_was_held(bot, github, stranger):
    await github.close(stranger)
    await bot.settle()
    assert dispatched_to(github, L4) == []
    assert await states(bot, L4) == ["superseded"]
    assert len(dispatched_to(github, L2)) == 2


async def test_the_rerun_button_does_not_release_a_held_head(bot, github, stranger):
    (check,) = [run for run in github.check_runs(UPSTREAM, stranger.head_sha) if run.name == "oot / tpu"]
    await github.rerequest(check.id)
    await bot.settle()
    assert dispatched_to(github, L4) == []
