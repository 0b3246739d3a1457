"""From a pull request to its verdict, told through the front door."""

from __future__ import annotations

import pytest

from tests.harness import L1, L2, L3, L4, UPSTREAM


@pytest.mark.logic
async def test_an_opened_pull_request_is_relayed_to_every_listed_backend_once(bot, github, pull):
    assert sorted(dispatch.repo.full_name for dispatch in github.dispatches) == sorted([L1, L2, L3, L4])
    sent = bot.dispatch(L4).client_payload
    assert sorted(sent) == [
        "callback_token",
        "callback_url",
        "delivery_id",
        "event_type",
        "payload",
        "schema_version",
    ]
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


@pytest.mark.logic
async def test_a_blocking_backend_turns_green_only_on_githubs_own_word(bot, github, pull):
    run, job = await finish_l4(bot, github, test_results={"passed": 10, "failed": 0, "skipped": 1})
    status, conclusion, title = bot.checks(UPSTREAM, pull.head_sha)["oot / tpu"]
    assert (status, conclusion) == ("in_progress", None)
    assert "confirmed" in title
    await github.finish_job(job, "success")
    await github.finish_run(run, "success")
    await bot.settle()
    checks = bot.checks(UPSTREAM, pull.head_sha)
    assert checks["oot / tpu"] == ("completed", "success", "10 passed, 1 skipped in 90 s (L4)")
    assert checks["oot / gate"] == ("completed", "success", "1 blocking backend passed")


@pytest.mark.logic
async def test_a_lost_word_of_github_is_asked_for(bot, github, pull):
    run, job = await finish_l4(bot, github)
    bot.app.webhook_url = "http://127.0.0.1:9/nobody"
    await github.finish_job(job, "success")
    await github.finish_run(run, "success")
    await bot.settle(horizon=30)
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][:2] == ("completed", "success")


@pytest.mark.logic
async def test_a_failure_blocks_at_once_and_is_said_in_one_comment(bot, github, pull):
    await finish_l4(
        bot, github, conclusion="failure",
        test_results={"passed": 8430, "failed": 2, "skipped": 20},
        failed_tests=[{"name": "test_add", "message": "expected 1"}, {"name": "test_mul"}],
    )  # fmt: skip
    checks = bot.checks(UPSTREAM, pull.head_sha)
    assert checks["oot / tpu"][:2] == ("completed", "failure")
    assert checks["oot / tpu"][2] == "2 failed, 8430 passed, 20 skipped in 90 s (L4)"
    assert checks["oot / gate"][:2] == ("completed", "failure")
    await bot.settle(horizon=60)
    (comment,) = github.comments(pull)
    assert "test_add" in comment.body
    assert "@dave" in comment.body


@pytest.mark.logic
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


@pytest.mark.logic
async def test_an_unfinished_l3_check_ends_neutral_when_its_label_goes_and_goes_on_when_it_returns(
    bot, github, pull
):
    await github.label(pull, "ciflow/crcr/npu")
    await bot.settle()
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / npu"][:2] == ("queued", None)
    bot.clock.advance(5)
    await github.unlabel(pull, "ciflow/crcr/npu")
    await bot.settle()
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / npu"][:2] == ("completed", "neutral")
    bot.clock.advance(5)
    await github.label(pull, "ciflow/oot/npu")
    await bot.settle(horizon=10)
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / npu"][:2] == ("queued", None)
    assert (await bot.report(bot.dispatch(L3)))[0] == 200
    await bot.settle()
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / npu"][:2] == ("completed", "success")


@pytest.mark.logic
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
            code, answer = await bot.report(
                bot.dispatch(repo), status=status, conclusion=conclusion, run_id=run_id
            )
            assert (code, answer.get("duplicate")) == (200, True)
    await bot.wait(120)
    assert seen(github, pull) == before
    assert [call for call in github.calls if call.method != "GET"] == writes


def seen(github, pull):
    """What a person sees on the pull request, with the ids that would show a second writing."""
    checks = {
        run.name: (run.id, run.status, run.conclusion)
        for run in github.check_runs_all(UPSTREAM, pull.head_sha)
    }
    comments = [(comment.id, comment.body) for comment in github.comments(pull)]
    return checks, comments, len(github.check_runs_all(UPSTREAM, pull.head_sha)), len(github.dispatches)


@pytest.mark.logic
async def test_a_new_commit_keeps_the_previous_verdict_until_the_first_report(bot, github, pull):
    await finish_l4(bot, github, conclusion="failure")
    await bot.wait(60)
    old = pull.head_sha
    new = await github.push_commit(pull)
    await bot.wait(60)
    (comment,) = github.comments(pull)
    assert old[:7] in comment.body
    assert "previous commit" in comment.body
    assert bot.checks(UPSTREAM, new)["oot / gate"][:2] == ("in_progress", None)
    assert bot.checks(UPSTREAM, old)["oot / gate"][:2] == ("completed", "failure")
    await bot.report(bot.dispatch(L4), status="in_progress", run_id="31")
    await bot.wait(60)
    (comment,) = github.comments(pull)
    assert "previous commit" not in comment.body


@pytest.mark.logic
async def test_the_re_run_button_runs_the_failed_jobs_again_and_the_gate_follows(bot, github, pull):
    run, job = await finish_l4(bot, github, conclusion="failure")
    await github.finish_job(job, "failure")
    await github.finish_run(run, "failure")
    await bot.settle()
    red = next(run for run in github.check_runs(UPSTREAM, pull.head_sha) if run.name == "oot / tpu")
    await github.rerequest(red.id)
    await github.rerequest(red.id)
    await bot.settle()
    assert run.run_attempt == 2
    assert len([call for call in github.calls if call.path.endswith("/rerun-failed-jobs")]) == 1
    checks = bot.checks(UPSTREAM, pull.head_sha)
    assert checks["oot / tpu"][:2] == ("queued", None)
    assert checks["oot / gate"][:2] == ("in_progress", None)
    again = await github.start_job(run, "build")
    for status in ("in_progress", "completed"):
        code, answer = await bot.report(bot.dispatch(L4), status=status, run_id=str(run.id), attempt=2)
        assert (code, "duplicate" in answer) == (200, False)
    await github.finish_job(again, "success")
    await github.finish_run(run, "success")
    await bot.settle()
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][:2] == ("completed", "success")
    made = [run for run in github.check_runs_all(UPSTREAM, pull.head_sha) if run.name == "oot / tpu"]
    assert [run.conclusion for run in made] == ["failure", "success"]


@pytest.mark.logic
async def test_a_run_that_cannot_be_run_again_is_dispatched_afresh(bot, github, pull):
    await bot.report(bot.dispatch(L4), conclusion="failure", run_id="4711")
    await bot.settle()
    red = next(run for run in github.check_runs(UPSTREAM, pull.head_sha) if run.name == "oot / tpu")
    first = bot.dispatch(L4).client_payload
    await github.rerequest(red.id)
    await bot.settle()
    second = bot.dispatch(L4).client_payload
    assert second["delivery_id"] != first["delivery_id"]
    assert second["payload"]["pull_request"]["head"]["sha"] == pull.head_sha
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / tpu"][:2] == ("queued", None)


@pytest.mark.logic
async def test_a_backend_that_never_answers_is_said_to_have_never_started(bot, github, pull):
    await bot.wait(24 * 3600 + 120)
    checks = bot.checks(UPSTREAM, pull.head_sha)
    assert checks["oot / tpu"][:2] == ("completed", "failure")
    assert "never started" in checks["oot / tpu"][2]
    assert checks["oot / gate"][:2] == ("completed", "failure")


@pytest.mark.logic
async def test_a_job_that_goes_silent_is_timed_out_and_may_still_report(bot, github, pull):
    await bot.report(bot.dispatch(L4), status="in_progress", run_id="5")
    await bot.wait(6 * 3600 + 120)
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / tpu"][:2] == ("completed", "timed_out")
    code, answer = await bot.report(bot.dispatch(L4), conclusion="failure", run_id="5")
    assert (code, "duplicate" in answer) == (200, False)
    (row,) = [row for row in await bot.rows("oot_workflow_job") if row["run_id"] == "5"]
    assert (row["conclusion"], row["flags"]["late"]) == ("failure", True)


@pytest.mark.logic
async def test_a_green_l4_report_of_a_run_github_does_not_know_is_a_failure(bot, github, pull):
    await bot.report(bot.dispatch(L4), status="in_progress", run_id="123456")
    await bot.report(bot.dispatch(L4), run_id="123456")
    await bot.settle(horizon=200)
    status, conclusion, title = bot.checks(UPSTREAM, pull.head_sha)["oot / tpu"]
    assert (status, conclusion) == ("completed", "failure")
    assert "123456" in title


async def test_a_backend_without_the_app_is_said_to_be_not_installed(bot, github):
    github.uninstall(L4, github.app)
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    checks = bot.checks(UPSTREAM, pull.head_sha)
    assert checks["oot / tpu"][:2] == ("completed", "failure")
    assert "not installed" in checks["oot / tpu"][2]
    assert sorted(dispatch.repo.full_name for dispatch in github.dispatches) == sorted([L1, L2, L3])


@pytest.mark.logic
async def test_a_dispatch_is_retried_until_github_takes_it(bot, github):
    github.faults.add(method="POST", path=rf"/repos/{L4}/dispatches$", when="before", status=502, times=2)
    await github.open_pull(UPSTREAM)
    await bot.settle(horizon=60)
    sent = [call.status for call in github.calls if call.path == f"/repos/{L4}/dispatches"]
    assert sent == [502, 502, 204]
    (row,) = [row for row in await bot.rows("oot_dispatch") if row["backend"] == L4]
    assert (row["state"], row["attempts"]) == ("sent", 3)


@pytest.mark.logic
async def test_a_dispatch_whose_answer_was_lost_is_sent_again_as_the_same(bot, github):
    github.faults.add(method="POST", path=rf"/repos/{L4}/dispatches$", when="after", status=502, times=1)
    await github.open_pull(UPSTREAM)
    await bot.settle(horizon=60)
    first, second = [
        dispatch.client_payload for dispatch in github.dispatches if dispatch.repo.full_name == L4
    ]
    assert first == second


async def test_a_dispatch_whose_answer_was_lost_is_not_sent_again_once_its_run_is_seen(bot, github):
    github.faults.add(method="POST", path=rf"/repos/{L4}/dispatches$", when="after", status=502, times=1)

    async def begin(dispatch):
        bot_login, title = dispatch.app.bot_login, dispatch.event_type
        await github.start_run(dispatch.repo, name="CI", display_title=title, actor=bot_login)

    github.on_dispatch = begin
    await github.open_pull(UPSTREAM)
    await bot.settle(horizon=60)
    assert len([dispatch for dispatch in github.dispatches if dispatch.repo.full_name == L4]) == 1


@pytest.mark.logic
async def test_closing_a_pull_request_drops_what_was_not_sent_and_tells_the_backends(bot, github):
    github.faults.add(method="POST", path=rf"/repos/{L4}/dispatches$", when="before", status=503, times=1)
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    await github.close(pull)
    await bot.settle(horizon=60)
    actions = [d.client_payload["payload"]["action"] for d in github.dispatches if d.repo.full_name == L4]
    assert actions == ["closed"]


async def test_a_check_run_whose_answer_was_lost_is_found_again(bot, github):
    github.faults.add(method="POST", path=r"/check-runs$", when="after", status=502, times=2)
    pull = await github.open_pull(UPSTREAM)
    await bot.settle(horizon=60)
    made = [run.name for run in github.check_runs_all(UPSTREAM, pull.head_sha)]
    assert sorted(made) == ["oot / gate", "oot / tpu"]


async def test_a_comment_whose_answer_was_lost_is_found_again_past_a_strangers_marker(bot, github, pull):
    await github.comment(pull, "<!-- ootbot:summary -->\nI was here first", "mallory")
    github.faults.add(method="POST", path=r"/comments$", when="after", status=502, times=1)
    await finish_l4(bot, github, conclusion="failure")
    await bot.settle(horizon=90)
    stranger, ours = github.comments(pull)
    assert stranger.body.endswith("I was here first")
    assert "tpu" in ours.body
