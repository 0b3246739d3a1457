"""The gate of a pull request: what it waits for, and when it turns green."""

from __future__ import annotations

import pytest

from tests import harness
from tests.flows.scenarios import finish, gate
from tests.harness import ALLOWLIST, L2, L3, L4, SECRET, UPSTREAM
from tests.serving import SQLITE

pytestmark = SQLITE

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


# The gate where pull requests share a commit, a commit is overtaken, or the base branch changes.


async def test_of_two_pull_requests_with_one_head_the_first_decides(bot, github, pull):
    await finish(bot, github, L4, "failure")
    assert gate(bot, pull.head_sha)[0] == "failure"
    second = await github.open_pull(UPSTREAM, author="mallory")
    second.head_sha = pull.head_sha
    await github.edit_title(second, "the same commit once more")
    await bot.settle()
    await github.close(second)
    await bot.settle()
    assert gate(bot, pull.head_sha)[0] == "failure"


@pytest.mark.parametrize(("author", "shown"), [("octocat", None), ("mallory", "success")])
async def test_a_gate_found_for_one_base_branch_does_not_pass_for_its_authors_other_one(
    bot, github, author, shown
):
    await github.push(UPSTREAM, "release", message="a branch")
    pull = await github.open_pull(UPSTREAM, author="octocat")
    await bot.settle()
    await finish(bot, github, L4)
    assert gate(bot, pull.head_sha)[0] == "success"
    bot.clock.advance(60)
    second = await github.open_pull(UPSTREAM, author=author)
    second.head_sha = pull.head_sha
    await github.retarget(second, "release")
    await bot.settle(horizon=20)
    assert gate(bot, pull.head_sha)[0] == shown
    bot.clock.advance(60)
    await finish(bot, github, L4, "failure")
    await bot.settle(horizon=20)
    assert gate(bot, pull.head_sha)[0] == (shown or "failure")
    bot.clock.advance(60)
    await github.close(second)
    await bot.settle(horizon=20)
    assert gate(bot, pull.head_sha)[0] == "success"


async def test_nobody_takes_a_gate_by_pushing_anothers_commit_to_an_older_pull_request(bot, github):
    await bot.list_backends(f"L4:\n  tpu: {{repo: {L4}, oncalls: [dave], policy: trusted}}\n")
    older = await github.open_pull(UPSTREAM, author="mallory", author_association="NONE")
    await bot.settle()
    pull = await github.open_pull(UPSTREAM, author="octocat", author_association="MEMBER")
    await bot.settle()
    await finish(bot, github, L4)
    assert gate(bot, pull.head_sha)[0] == "success"
    bot.clock.advance(1)
    await github.push_commit(older, commit=pull.head_sha)
    await bot.settle(horizon=20)
    assert gate(bot, pull.head_sha)[0] == "success"
    bot.clock.advance(1)
    await github.push_commit(pull)
    await bot.settle(horizon=20)
    assert gate(bot, older.head_sha) == (
        None,
        "needs oot/ok-to-test",
    )  # who moved on has left it to the other


@pytest.mark.parametrize("leaves", ["closed", "moved"])
async def test_where_the_first_of_two_leaves_their_commit_the_second_decides(bot, github, pull, leaves):
    second = await github.open_pull(UPSTREAM, author="mallory")
    second.head_sha = pull.head_sha
    for act in (github.close, github.reopen):
        bot.clock.advance(1)
        await act(second)
        await bot.settle()
    await finish(bot, github, L4)
    assert gate(bot, pull.head_sha) == (None, "waiting for tpu")
    bot.clock.advance(1)
    await (github.close(pull) if leaves == "closed" else github.push_commit(pull))
    await bot.settle(horizon=20)
    assert gate(bot, second.head_sha)[0] == "success"


async def test_a_head_that_was_overtaken_before_anything_was_said_of_it_stays_bare(bot, github):
    pull = await github.open_pull(UPSTREAM, author="octocat")
    first = pull.head_sha
    for _ in range(3):
        bot.clock.advance(1)
        await github.push_commit(pull)
    await bot.settle()
    assert bot.checks(UPSTREAM, first) == {}
    assert gate(bot, pull.head_sha) == (None, "waiting for tpu")
    written = [call for call in github.calls if call.path.endswith("/check-runs")]
    assert len(written) == 2


async def test_what_was_begun_is_concluded_however_often_the_head_moves_on(bot, github, pull):
    first, dispatch = pull.head_sha, bot.dispatch(L4)
    for _ in range(11):
        bot.clock.advance(1)
        await github.push_commit(pull)
    await bot.settle()
    await bot.report(dispatch, conclusion="failure")
    await bot.settle(horizon=20)
    assert bot.checks(UPSTREAM, first)["oot / tpu"][:2] == ("completed", "failure")
    assert gate(bot, first)[0] == "failure"


async def test_the_gate_of_an_overtaken_head_follows_what_still_runs_there(bot, github, pull):
    first, dispatch = pull.head_sha, bot.dispatch(L4)
    await github.push_commit(pull)
    await bot.settle()
    await bot.report(dispatch, conclusion="failure")
    await bot.settle()
    assert gate(bot, first)[0] == "failure"
    assert gate(bot, pull.head_sha) == (None, "waiting for tpu")


async def test_a_verdict_counts_for_the_base_branch_it_was_found_on(bot, github, pull):
    github.set_permission(UPSTREAM, "wendy", "write")
    await github.push(UPSTREAM, "release", message="a branch")
    await finish(bot, github, L4)
    assert gate(bot, pull.head_sha)[0] == "success"
    bot.clock.advance(60)
    await github.retarget(pull, "release")
    await bot.settle(horizon=20)
    sent = bot.dispatch(L4).client_payload["payload"]
    assert (sent["action"], sent["pull_request"]["base"]["ref"]) == ("edited", "release")
    assert gate(bot, pull.head_sha) == (None, "waiting for tpu")
    await finish(bot, github, L4, "failure")
    assert gate(bot, pull.head_sha)[0] == "failure"
    bot.clock.advance(60)
    await github.comment(pull, "/oot ignore tpu not for a release", "wendy")
    await bot.settle(horizon=20)
    assert gate(bot, pull.head_sha)[0] == "success"
    bot.clock.advance(60)
    await github.push(UPSTREAM, "next", message="a branch")
    await github.retarget(pull, "next")
    await bot.settle(horizon=20)
    assert gate(bot, pull.head_sha) == (None, "waiting for tpu")


@pytest.mark.parametrize("meanwhile", ["failure", None])
async def test_back_on_its_first_base_branch_the_check_run_shows_what_was_found_there(bot, github, meanwhile):
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    await github.push(UPSTREAM, "release", message="a branch")
    await finish(bot, github, L4)
    for base in ("release", "main"):
        bot.clock.advance(60)
        await github.retarget(pull, base)
        await bot.settle(horizon=20)
        if base == "release" and meanwhile:
            await finish(bot, github, L4, meanwhile)
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / tpu"][:2] == ("completed", "success")
    assert gate(bot, pull.head_sha)[0] == "success"
    written = len([call for call in github.calls if "/check-runs" in call.path])
    bot.clock.advance(60)
    await github.label(pull, "anything")
    await bot.settle(horizon=20)
    assert len([call for call in github.calls if "/check-runs" in call.path]) == written


# What is late, swept or asked for again: how it is shown, and whose check runs our buttons are.


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
