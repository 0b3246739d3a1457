"""From a pull request to its verdict, told through the front door."""

from __future__ import annotations

import pytest

from tests.harness import L1, L2, L3, L4, UPSTREAM


@pytest.fixture
async def pull(bot, github):
    made = await github.open_pull(UPSTREAM, title="Make it faster", author="octocat")
    await bot.settle()
    return made


async def test_an_opened_pull_request_is_relayed_to_every_listed_backend_once(bot, github, pull):
    assert sorted(dispatch.repo.full_name for dispatch in github.dispatches) == sorted([L1, L2, L3, L4])
    sent = bot.dispatch(L4).client_payload
    assert sorted(sent) == ["callback_token", "callback_url", "delivery_id", "event_type", "payload", "schema_version"]
    assert sent["payload"]["pull_request"]["head"]["sha"] == pull.head_sha
    assert sent["callback_url"] == f"{bot.url}/api/oot/callback"
    assert bot.checks(UPSTREAM, pull.head_sha) == {
        "oot / tpu": ("queued", None, "queued"),
        "oot / gate": ("in_progress", None, "waiting for tpu"),
    }
    assert github.comments(pull) == []


async def finish_l4(bot, github, *, conclusion="success", **workflow):
    """A backend's workflow run as it is: jobs report, then GitHub says that the run ended."""
    run = await github.start_run(L4, event="repository_dispatch", name="CI")
    job = await github.start_job(run, "build")
    dispatch = bot.dispatch(L4)
    assert (await bot.report(dispatch, status="in_progress", run_id=str(run.id)))[0] == 200
    await bot.settle()
    bot.clock.advance(90)
    assert (await bot.report(dispatch, conclusion=conclusion, run_id=str(run.id), **workflow))[0] == 200
    await bot.settle()
    return run, job


async def test_a_blocking_backend_turns_green_only_on_githubs_own_word(bot, github, pull):
    run, job = await finish_l4(bot, github, test_results={"passed": 10, "failed": 0, "skipped": 1})
    status, conclusion, title = bot.checks(UPSTREAM, pull.head_sha)["oot / tpu"]
    assert (status, conclusion) == ("in_progress", None)
    assert "confirmed" in title
    await github.finish_job(job, "success")
    await github.finish_run(run, "success")
    await bot.settle()
    checks = bot.checks(UPSTREAM, pull.head_sha)
    assert checks["oot / tpu"] == ("completed", "success", "10 passed, 1 skipped in 1 min 30 s (L4)")
    assert checks["oot / gate"] == ("completed", "success", "1 blocking backend passed")


async def test_a_lost_word_of_github_is_asked_for(bot, github, pull):
    run, job = await finish_l4(bot, github)
    bot.app.webhook_url = "http://127.0.0.1:9/nobody"
    await github.finish_job(job, "success")
    await github.finish_run(run, "success")
    await bot.settle(horizon=30)
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][:2] == ("completed", "success")


async def test_a_failure_blocks_at_once_and_is_said_in_one_comment(bot, github, pull):
    await finish_l4(
        bot, github, conclusion="failure",
        test_results={"passed": 8430, "failed": 2, "skipped": 20},
        failed_tests=[{"name": "test_add", "message": "expected 1"}, {"name": "test_mul"}],
    )  # fmt: skip
    checks = bot.checks(UPSTREAM, pull.head_sha)
    assert checks["oot / tpu"][:2] == ("completed", "failure")
    assert checks["oot / tpu"][2] == "2 failed, 8430 passed, 20 skipped in 1 min 30 s (L4)"
    assert checks["oot / gate"][:2] == ("completed", "failure")
    await bot.settle(horizon=60)
    (comment,) = github.comments(pull)
    assert "test_add" in comment.body
    assert "@dave" in comment.body


async def test_a_labelled_l3_backend_shows_a_check_that_does_not_block(bot, github, pull):
    dispatch = bot.dispatch(L3)
    assert (await bot.report(dispatch, status="in_progress"))[0] == 200
    await bot.settle()
    assert "oot / npu" not in bot.checks(UPSTREAM, pull.head_sha)
    await github.label(pull, "ciflow/oot/npu")
    await bot.settle()
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / npu"][:2] == ("in_progress", None)
    bot.clock.advance(60)
    assert (await bot.report(dispatch, conclusion="failure"))[0] == 200
    await bot.settle()
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / npu"][:2] == ("completed", "neutral")
    await github.unlabel(pull, "ciflow/oot/npu")
    await bot.settle()
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / npu"][:2] == ("completed", "neutral")


async def test_an_unfinished_l3_check_ends_neutral_when_its_label_goes_and_goes_on_when_it_returns(bot, github, pull):
    await github.label(pull, "ciflow/crcr/npu")
    await bot.settle()
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / npu"][:2] == ("queued", None)
    await github.unlabel(pull, "ciflow/crcr/npu")
    await bot.settle()
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / npu"][:2] == ("completed", "neutral")
    await github.label(pull, "ciflow/oot/npu")
    await bot.settle()
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / npu"][:2] == ("queued", None)
    assert (await bot.report(bot.dispatch(L3)))[0] == 200
    await bot.settle()
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / npu"][:2] == ("completed", "success")


async def test_everything_said_once_more_changes_nothing_on_github(bot, github, pull):
    await github.label(pull, "ciflow/oot/npu")
    await bot.settle()
    run, job = await finish_l4(bot, github, conclusion="failure")
    await github.finish_job(job, "failure")
    await github.finish_run(run, "failure")
    await bot.report(bot.dispatch(L3), status="in_progress", run_id="7")
    await bot.report(bot.dispatch(L3), run_id="7")
    await bot.wait(120)
    before = seen(github, pull)
    writes = [call for call in github.calls if call.method != "GET"]
    for delivery in list(github.deliveries):
        await github.redeliver(delivery)
    for repo, run_id, conclusion in ((L4, str(run.id), "failure"), (L3, "7", "success")):
        for status in ("in_progress", "completed"):
            code, answer = await bot.report(bot.dispatch(repo), status=status, conclusion=conclusion, run_id=run_id)
            assert (code, answer.get("duplicate")) == (200, True)
    await bot.wait(120)
    assert seen(github, pull) == before
    assert [call for call in github.calls if call.method != "GET"] == writes


def seen(github, pull):
    """What a person sees on the pull request, with the ids that would show a second writing."""
    checks = {run.name: (run.id, run.status, run.conclusion) for run in github.check_runs_all(UPSTREAM, pull.head_sha)}
    comments = [(comment.id, comment.body) for comment in github.comments(pull)]
    return checks, comments, len(github.check_runs_all(UPSTREAM, pull.head_sha)), len(github.dispatches)
