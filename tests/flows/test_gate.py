"""The gate of a pull request: what it waits for, and when it turns green."""

from __future__ import annotations

import pytest

from tests import harness
from tests.flows.scenarios import finish, gate
from tests.harness import ALLOWLIST, L2, L3, L4, UPSTREAM
from tests.serving import SQLITE

pytestmark = SQLITE  # texts and their times: the databases have tests of their own


TWO_BLOCKING = f"L4:\n  tpu: {{{L4}: [dave]}}\n  npu: {{{L3}: [carol]}}\n"


NO_BLOCKING = f"L2: [{L2}]\n"


async def test_it_waits_for_a_blocking_backend_that_was_never_told(bot, github, pull):
    await finish(bot, github, L4)
    assert gate(bot, pull.head_sha) == ("success", "1 blocking backend passed")
    await bot.list_backends(TWO_BLOCKING.replace(L3, "org/late"))
    assert gate(bot, pull.head_sha) == (None, "waiting for npu")


@pytest.mark.parametrize("left", ["overtaken", "closed"])
async def test_on_a_commit_that_is_left_it_does_not_turn_green_without_who_was_never_told(
    bot, github, pull, left
):
    """It may become the head again: branch protection would find it green until that event arrives."""
    first = pull.head_sha
    await finish(bot, github, L4)
    await bot.list_backends(TWO_BLOCKING.replace(L3, "org/late"))
    bot.clock.advance(60)
    await (github.close(pull) if left == "closed" else github.push_commit(pull))
    await bot.settle(horizon=20)
    assert gate(bot, first) == (None, "waiting for npu")


async def test_on_a_commit_that_is_left_it_does_not_turn_green_for_an_earlier_base_branch(bot, github, pull):
    first = pull.head_sha
    await github.push(UPSTREAM, "release", message="a branch")
    await bot.settle()
    await finish(bot, github, L4)
    wait = {"Retry-After": "120"}
    github.faults.add(method="POST", path=rf"{L4}/dispatches$", status=429, headers=wait, times=1)
    bot.clock.advance(60)
    await github.retarget(pull, "release")
    await bot.settle()
    assert gate(bot, first) == (None, "waiting for tpu")
    bot.clock.advance(60)
    await github.push_commit(pull)
    await bot.settle(horizon=20)
    assert gate(bot, first) == (None, "waiting for tpu")


async def test_on_a_commit_that_is_left_it_stays_green_whoever_is_listed_later(bot, github, pull):
    first = pull.head_sha
    await finish(bot, github, L4)
    bot.clock.advance(60)
    await github.push_commit(pull)
    await bot.settle(horizon=20)
    await bot.list_backends(TWO_BLOCKING.replace(L3, "org/late"))
    assert gate(bot, first) == ("success", "1 blocking backend passed")


@pytest.mark.parametrize(
    ("reported", "githubs_word", "expected"),
    [
        ("success", "success", "success"),
        ("success", "failure", "failure"),
        ("success", "cancelled", "failure"),
        ("failure", "success", "failure"),
        ("timed_out", "failure", "failure"),
        ("cancelled", "cancelled", "failure"),
        ("neutral", "success", "failure"),
        ("skipped", "success", "failure"),
        ("action_required", "success", "failure"),
    ],
)
async def test_it_follows_the_report_and_githubs_own_word(
    bot, github, pull, reported, githubs_word, expected
):
    run = await github.start_run(L4, event="repository_dispatch", name="CI")
    await bot.report(bot.dispatch(L4), status="in_progress", run_id=str(run.id))
    await bot.settle()
    assert gate(bot, pull.head_sha)[0] is None
    await bot.report(bot.dispatch(L4), conclusion=reported, run_id=str(run.id))
    await github.finish_run(run, githubs_word)
    await bot.settle()
    assert gate(bot, pull.head_sha)[0] == expected


async def test_all_green_is_green_within_one_publish(bot, github, pull):
    await bot.list_backends(TWO_BLOCKING)
    await finish(bot, github, L4)
    await bot.settle(horizon=10)
    assert gate(bot, pull.head_sha) == (None, "waiting for npu")
    await finish(bot, github, L3)
    assert gate(bot, pull.head_sha) == ("success", "2 blocking backends passed")


async def test_a_backend_raised_to_blocking_while_it_runs_blocks(bot, github, pull):
    """Green takes GitHub's own word from then on, although it was dispatched at a level that does not."""
    await finish(bot, github, L4)
    await bot.report(bot.dispatch(L3), status="in_progress", run_id="77")
    await bot.list_backends(TWO_BLOCKING)
    assert gate(bot, pull.head_sha) == (None, "waiting for npu")
    await bot.report(bot.dispatch(L3), run_id="77")
    # a run that was just made may not be shown yet: GitHub is asked for a while
    await bot.settle(horizon=200)
    assert gate(bot, pull.head_sha)[0] == "failure"


async def test_a_backend_lowered_while_it_runs_does_not_block_but_its_check_is_concluded(bot, github, pull):
    await bot.report(bot.dispatch(L4), status="in_progress", run_id="77")
    await bot.settle()
    await bot.list_backends(f"L3: {{tpu: {{{L4}: [dave]}}}}\n")
    assert gate(bot, pull.head_sha) == ("success", "no blocking backend")
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / tpu"][0] == "in_progress"
    await bot.report(bot.dispatch(L4), run_id="77")
    await bot.wait(90)
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / tpu"][:2] == ("completed", "success")


async def test_the_check_of_a_backend_lowered_to_listening_ends_at_once_and_goes_on_when_it_is_raised(
    bot, github, pull
):
    await bot.report(bot.dispatch(L4), status="in_progress", run_id="77")
    await bot.settle()
    await bot.list_backends(f"L1: [{L4}]\n")
    assert (await bot.report(bot.dispatch(L4), run_id="77"))[0] == 403
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / tpu"] == (
        "completed",
        "neutral",
        "this backend only receives events now: its reports are refused",
    )
    await bot.list_backends(ALLOWLIST)
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / tpu"][0] == "in_progress"
    assert gate(bot, pull.head_sha) == (None, "waiting for tpu")


async def test_once_it_exists_later_pull_requests_have_it_too_without_a_blocking_backend(bot, github, pull):
    await bot.list_backends(NO_BLOCKING)
    assert gate(bot, pull.head_sha) == ("success", "no blocking backend")
    later = await github.open_pull(UPSTREAM, author="octocat")
    await bot.settle()
    assert gate(bot, later.head_sha) == ("success", "no blocking backend")
    head = await github.push_commit(later)
    await bot.settle()
    assert gate(bot, head) == ("success", "no blocking backend")
    await bot.list_backends(ALLOWLIST)
    assert gate(bot, head)[0] is None


async def test_it_comes_to_pull_requests_that_nobody_was_told_of(github, issuer, clock, settings, tmp_path):
    """Opened under an empty allowlist, or before the App was there: branch protection waits for it all the same."""
    (tmp_path / "allowlist.yml").write_text("L1: []\n")
    before = await github.open_pull(UPSTREAM)
    clock.advance(60)
    async with harness.running(settings, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        pull = await github.open_pull(UPSTREAM)
        await bot.settle()
        await bot.list_backends(ALLOWLIST)
        assert gate(bot, pull.head_sha) == (None, "waiting for tpu")
        for _ in range(3):  # the log of deliveries is read, then what is open on GitHub is compared
            bot.clock.advance(660)
            await bot.settle(horizon=20)
        assert gate(bot, before.head_sha) == (None, "waiting for tpu")


async def test_where_it_never_existed_there_is_none(bot, github):
    await bot.list_backends(NO_BLOCKING)
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    assert gate(bot, pull.head_sha) is None


async def test_without_any_valid_allowlist_nothing_turns_green(github, issuer, clock, settings, tmp_path):
    (tmp_path / "allowlist.yml").write_text("L9: what?")
    async with harness.running(settings, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        pull = await github.open_pull(UPSTREAM)
        await bot.wait(120)
        assert gate(bot, pull.head_sha) is None
        await bot.list_backends(ALLOWLIST)
        await bot.wait(60)
        assert gate(bot, pull.head_sha) == (None, "waiting for tpu")


async def test_a_broken_allowlist_leaves_the_last_good_one_in_force(bot, github, pull):
    await bot.list_backends("L4: [")
    assert gate(bot, pull.head_sha) == (None, "waiting for tpu")
    head = await github.push_commit(pull)
    await bot.settle()
    assert gate(bot, head) == (None, "waiting for tpu")


async def test_an_allowlist_that_is_gone_leaves_the_last_good_one_in_force(bot, github, pull):
    (bot.context.settings.data_dir / "allowlist.yml").unlink()
    bot.clock.advance(60)
    head = await github.push_commit(pull)
    await bot.settle()
    assert gate(bot, head) == (None, "waiting for tpu")
    await finish(bot, github, L4)
    assert gate(bot, head) == ("success", "1 blocking backend passed")


@pytest.mark.parametrize(
    ("status", "body"),
    [(502, None), (403, {"message": "Resource not accessible by integration"}), (404, None)],
)
async def test_while_githubs_word_cannot_be_had_a_reported_success_is_not_green(
    bot, github, pull, status, body
):
    """The run's own delivery never came, so GitHub is asked, and asked again until it says something."""
    url, bot.app.webhook_url = bot.app.webhook_url, None
    run = await github.start_run(L4, event="repository_dispatch", name="CI")
    await github.finish_run(run, "success")
    bot.app.webhook_url = url
    github.faults.add(method="GET", path=r"/actions/runs/", status=status, body=body, times=3)
    await bot.report(bot.dispatch(L4), run_id=str(run.id))
    for _ in range(3):
        await bot.settle()
        assert gate(bot, pull.head_sha)[0] is None
        bot.clock.advance(5)
    await bot.settle(horizon=120)
    assert gate(bot, pull.head_sha)[0] == "success"


async def test_while_github_is_down_it_stays_as_it_was_and_is_right_afterwards(bot, github, pull):
    github.faults.add(method="POST|PATCH", path="check-runs", status=502, times=5)
    await finish(bot, github, L4, "failure")
    assert gate(bot, pull.head_sha)[0] is None
    await bot.wait(300)
    assert gate(bot, pull.head_sha)[0] == "failure"


async def test_it_comes_once_the_app_may_write_it(bot, github):
    refused = {"message": "Resource not accessible by integration"}
    github.faults.add(method="POST", path="/check-runs$", status=403, body=refused, times=20)
    pull = await github.open_pull(UPSTREAM)
    await bot.settle(horizon=60)
    assert bot.checks(UPSTREAM, pull.head_sha) == {}
    github.faults.clear()
    installation = github.install(UPSTREAM, github.app)
    await github.announce_installation(installation, "new_permissions_accepted", github.state.repo(UPSTREAM))
    await bot.settle(horizon=60)
    assert gate(bot, pull.head_sha) == (None, "waiting for tpu")


async def test_re_requested_it_is_only_written_anew(bot, github, pull):
    await finish(bot, github, L4)
    before = len(github.dispatches)
    run = next(run for run in github.check_runs(UPSTREAM, pull.head_sha) if run.name == "oot / gate")
    await github.rerequest(run.id)
    assert run.suite.reset
    await bot.settle()
    assert not run.suite.reset
    assert len(github.dispatches) == before
    assert not [call for call in github.calls if "/rerun" in call.path]
    assert [run.name for run in github.check_runs_all(UPSTREAM, pull.head_sha)].count("oot / gate") == 1


async def test_held_back_by_policy_it_says_what_is_needed(bot, github):
    await bot.list_backends(f"L4:\n  tpu: {{repo: {L4}, oncalls: [dave], policy: trusted}}\n")
    pull = await github.open_pull(UPSTREAM, author="mallory", author_association="NONE")
    await bot.settle()
    assert gate(bot, pull.head_sha) == (None, "needs oot/ok-to-test")
