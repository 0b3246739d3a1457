"""What is late, swept or asked for again: how it is shown, and whose check runs our buttons are."""

from __future__ import annotations

from tests.harness import L2, L4, SECRET, UPSTREAM
from tests.serving import SQLITE

pytestmark = SQLITE
HOUR = 3600


async def flags(bot, pull):
    _, answer = await bot.get(f"/api/oot/pulls/{UPSTREAM}/{pull.number}")
    return {job["job_name"]: job["flags"] for job in answer["jobs"]}


async def test_a_swept_job_and_a_late_one_say_so_in_json(bot, pull):
    for job in ("silent", "slow"):
        assert (await bot.report(bot.dispatch(L2), status="in_progress", job=job))[0] == 200
    await bot.wait(6 * HOUR + 120)
    assert await flags(bot, pull) == {"silent": {"swept": True}, "slow": {"swept": True}}
    assert (await bot.report(bot.dispatch(L2), job="slow"))[1] == {"ok": True, "status": "completed"}
    assert await flags(bot, pull) == {"silent": {"swept": True}, "slow": {"late": True}}
    status, answer = await bot.report(bot.dispatch(L2), job="slow", conclusion="failure")
    assert (status, answer["error"]) == (409, "conflict")


async def test_a_report_after_the_dispatch_was_given_up_counts_after_all(bot, github, pull):
    await bot.wait(24 * HOUR + 120)
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][:2] == ("completed", "failure")
    assert {row["state"] for row in await bot.rows("oot_dispatch") if row["level"] > 1} == {
        "never_started",  # at L4
        "not_run",
    }
    run = await github.start_run(L4)
    assert (await bot.report(bot.dispatch(L4), run_id=str(run.id)))[0] == 200
    await github.finish_run(run, "success")
    await bot.settle(horizon=60)
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][:2] == ("completed", "success")


async def failing(bot, github):
    """Both backends with check runs have failed; returns the L4 run."""
    run = await github.start_run(L4)
    job = await github.start_job(run, "build")
    await bot.report(bot.dispatch(L4), conclusion="failure", run_id=str(run.id))
    await github.finish_job(job, "failure")
    await github.finish_run(run, "failure")
    await bot.report(bot.dispatch(L2), run_id="8")
    await bot.settle(horizon=20)
    return run


async def test_all_checks_run_again_are_the_failed_ones_run_again_once(bot, github, pull):
    run = await failing(bot, github)
    for _ in range(2):
        await github.rerequest_suite(UPSTREAM, pull.head_sha, github.app)
        await bot.settle(horizon=20)
    assert run.run_attempt == 2
    assert len([call for call in github.calls if "/rerun" in call.path]) == 1
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][:2] == ("in_progress", None)
    assert len([one for one in github.dispatches if one.repo.full_name == L2]) == 1


async def test_u17_another_apps_check_run_of_our_name_mentions_nobody_and_runs_nothing(
    bot, github, pull, app_key
):
    other = github.register_app(
        webhook_url=None, webhook_secret=SECRET, private_key_pem=app_key, slug="mimic"
    )
    before = (github.comments(pull), len(github.dispatches), len(github.calls))
    check = {
        "id": 4711, "name": "oot / tpu", "head_sha": pull.head_sha, "status": "completed", "conclusion": "failure",
        "external_id": "", "app": {"id": other.app_id, "slug": other.slug}, "pull_requests": [],
        "check_suite": {"id": 4712}, "output": {"title": "failed", "summary": "@dave"},
    }  # fmt: skip
    repo = {"id": github.state.repo(UPSTREAM).id, "full_name": UPSTREAM}
    for action in ("completed", "rerequested", "requested_action"):
        body = {"action": action, "check_run": check, "repository": repo}
        body |= {"requested_action": {"identifier": "rerun-all"}} if action == "requested_action" else {}
        assert (await bot.send("check_run", body))[0] == 202
    suite = {"id": 4712, "head_sha": pull.head_sha, "app": {"id": other.app_id}, "status": "queued"}
    sent = await bot.send("check_suite", {"action": "rerequested", "check_suite": suite, "repository": repo})
    assert sent[0] == 202
    await bot.settle(horizon=30)
    assert (github.comments(pull), len(github.dispatches), len(github.calls)) == before
    assert await bot.rows("oot_rerun") == []
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / tpu"][:2] == ("queued", None)
