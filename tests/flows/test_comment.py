"""The one comment of a pull request: when it is created and edited, whom it mentions, how it is found again."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from bot.app import make_context, make_worker
from tests import harness
from tests.harness import L2, L3, L4, UPSTREAM
from tests.serving import SQLITE

pytestmark = (
    SQLITE  # that two processes make one comment is tried on both, in test_two_publishers and test_made_once
)

PUSHED = f"""
L4:
  tpu: {{repo: {L4}, oncalls: [dave], events: [pull_request, push]}}
"""


def ours(github, pull):
    return [comment for comment in github.comments(pull) if comment.app is not None]


async def finish(bot, github, repo=L4, conclusion="failure", dispatch=None, **workflow):
    """A backend's run, its report and GitHub's own word on it."""
    run = await github.start_run(repo, event="repository_dispatch", name="CI")
    job = await github.start_job(run, "build")
    await bot.report(dispatch or bot.dispatch(repo), conclusion=conclusion, run_id=str(run.id), **workflow)
    await github.finish_job(job, conclusion)
    await github.finish_run(run, conclusion)
    await bot.settle()
    return run


async def with_setting(settings, github, issuer, clock, **chosen):
    return harness.running(
        harness.replace(settings, **chosen), github=github, issuer=issuer, app=github.app, clock=clock
    )


async def test_by_default_it_comes_with_the_first_failure_and_follows_until_all_is_well(bot, github, pull):
    await bot.report(bot.dispatch(L4), status="in_progress", run_id="1")
    await bot.wait(120)
    assert ours(github, pull) == []
    run = await finish(bot, github)
    await bot.wait(60)
    (comment,) = ours(github, pull)
    assert "**❌ `tpu` blocks merging: 1 failure**" in comment.body
    await github.rerequest(
        next(run.id for run in github.check_runs(UPSTREAM, pull.head_sha) if run.name == "oot / tpu")
    )
    await bot.settle()
    await bot.report(bot.dispatch(L4), run_id=str(run.id), attempt=2)
    await github.finish_run(run, "success")
    await bot.wait(60)
    assert ours(github, pull) == [comment]
    assert "✅ 1 passed" in comment.body


async def test_always_means_from_the_start_and_off_means_never(settings, github, issuer, clock):
    for choice, expected in (("always", 1), ("off", 0)):
        async with await with_setting(settings, github, issuer, clock, comment=choice) as bot:
            pull = await github.open_pull(UPSTREAM)
            await bot.wait(60)
            assert len(ours(github, pull)) == expected
            await finish(bot, github)
            await bot.wait(60)
            assert len(ours(github, pull)) == expected


async def test_a_burst_of_reports_is_one_edit(bot, github, pull):
    for number in range(30):
        await bot.report(bot.dispatch(L4), conclusion="failure", job=f"job {number}", run_id="1")
        bot.clock.advance(0.2)
        await bot.settle()
    await bot.wait(60)
    written = [call for call in github.calls if "/comments" in call.path and call.method in {"POST", "PATCH"}]
    assert len(written) == 1


@pytest.mark.nightly
async def test_it_is_never_more_than_a_minute_behind_however_much_happens(bot, github, pull):
    await finish(bot, github)
    for number in range(40):
        await bot.report(bot.dispatch(L2), conclusion="failure", job=f"job {number}", run_id="1")
        await bot.wait(5)
    edits = [call.at for call in github.calls if "/comments" in call.path and call.method != "GET"]
    assert max(later - earlier for earlier, later in itertools.pairwise(edits)) <= 61_000


# Whom it calls


async def test_on_calls_are_called_once_to_a_head_however_often_it_fails_there(bot, github, pull):
    await finish(bot, github)
    await bot.wait(60)
    (comment,) = ours(github, pull)
    assert "@dave" in comment.body
    await bot.report(bot.dispatch(L2), run_id="5")
    await bot.wait(60)
    assert "@dave" in comment.body  # the same failure still holds
    red = next(run for run in github.check_runs(UPSTREAM, pull.head_sha) if run.name == "oot / tpu")
    run = max(github.state.repo(L4).runs.values(), key=lambda run: run.id)
    await github.rerequest(red.id)
    await bot.wait(60)
    assert "dave" not in comment.body
    await bot.report(bot.dispatch(L4), conclusion="failure", run_id=str(run.id), attempt=2)
    await bot.wait(60)
    assert "`dave`" in comment.body
    assert "@dave" not in comment.body
    await github.push_commit(pull)
    await bot.settle()
    await finish(bot, github)
    await bot.wait(60)
    assert "@dave" in comment.body


async def test_deleted_by_hand_it_comes_back_with_news_but_calls_nobody_again(bot, github, pull):
    await finish(bot, github)
    await bot.wait(60)
    (comment,) = ours(github, pull)
    await github.delete_comment(pull, comment.id)
    await bot.wait(1200)
    assert ours(github, pull) == []
    await bot.report(bot.dispatch(L2), conclusion="failure", run_id="5")
    await bot.wait(60)
    (again,) = ours(github, pull)
    assert "tpu" in again.body
    assert "@dave" not in again.body
    await bot.report(bot.dispatch(L2), conclusion="failure", job="other", run_id="5")
    await bot.wait(60)
    assert ours(github, pull) == [again]
    assert "@dave" not in again.body


async def test_deleted_by_hand_it_does_not_come_back_only_to_say_that_all_is_well(bot, github, pull):
    run = await finish(bot, github)
    await bot.wait(60)
    (comment,) = ours(github, pull)
    red = next(run for run in github.check_runs(UPSTREAM, pull.head_sha) if run.name == "oot / tpu")
    await github.delete_comment(pull, comment.id)
    await github.rerequest(red.id)
    await bot.wait(60)
    await bot.report(bot.dispatch(L4), run_id=str(run.id), attempt=2)
    await github.finish_run(run, "success")
    await bot.wait(120)
    assert ours(github, pull) == []


async def test_who_was_not_asked_is_watched_and_neither_counts_nor_is_called(bot, github, pull):
    await finish(bot, github, L3)
    await bot.wait(120)
    assert ours(github, pull) == []
    await finish(bot, github)
    await bot.wait(60)
    (comment,) = ours(github, pull)
    assert "**❌ `tpu` blocks merging: 1 failure**" in comment.body
    assert "Also watching (level 2, or 3 without its label): ❌ 1 failed" in comment.body
    assert "@dave" in comment.body
    assert "carol" not in comment.body
    await github.label(pull, "ciflow/oot/npu")
    await bot.wait(60)
    assert "**❌ `tpu` blocks merging: 1 failure · `npu`: 1 failure**" in comment.body
    assert "@carol" in comment.body
    bot.clock.advance(5)
    await github.unlabel(pull, "ciflow/oot/npu")
    await bot.wait(60)
    assert "carol" not in comment.body


# How it is found again


async def test_a_lost_answer_is_found_again_among_250_other_comments(bot, github, pull):
    for number in range(250):
        await github.comment(
            pull, f"{'<!-- ootbot:summary -->' if number % 50 == 0 else ''} {number}", "mallory"
        )
    await bot.settle()
    github.faults.add(method="POST", path=r"/comments$", when="after", status=502, times=1)
    await finish(bot, github)
    await bot.wait(120)
    assert len(ours(github, pull)) == 1
    assert len(github.comments(pull)) == 251


async def test_two_processes_publish_one_pull_request_once(bot, github, pull):
    await finish(bot, github, conclusion="failure")
    await github.label(pull, "ciflow/oot/npu")
    bot.clock.advance(60)
    async with make_context(bot.context.settings, clock=bot.clock) as other:
        workers = [bot.worker, make_worker(other)]
        for _ in range(10):
            async with bot.store.transaction() as tx:
                tx.enqueue("publish", f"{UPSTREAM}#{pull.number}")
                tx.enqueue("comment", f"{UPSTREAM}#{pull.number}")
            await asyncio.gather(*(worker.step() for worker in workers))
    await bot.wait(60)
    assert len(ours(github, pull)) == 1
    names = [run.name for run in github.check_runs_all(UPSTREAM, pull.head_sha)]
    assert sorted(names) == ["oot / gate", "oot / npu", "oot / tpu"]


# Known or new


async def history(bot, pull, repo=L4):
    status, answer = await bot.get(f"/api/oot/pulls/{UPSTREAM}/{pull.number}")
    assert status == 200
    (backend,) = [one for one in answer["backends"] if one["repo"] == repo]
    return [(one["history"], one["evidence_url"]) for one in backend["failing"]]


@pytest.fixture
async def pushed(bot, github):
    """The base branch is dispatched too."""
    (bot.context.settings.data_dir / "allowlist.yml").write_text(PUSHED)
    bot.clock.advance(60)
    await bot.settle()
    await github.push(UPSTREAM, message="on main")
    await bot.settle()
    return bot.dispatch(L4)


FAILED = {"failed_tests": [{"name": "test_add"}], "test_results": {"passed": 5, "failed": 1, "skipped": 0}}
OTHER = {"failed_tests": [{"name": "test_mul"}], "test_results": {"passed": 5, "failed": 1, "skipped": 0}}


@pytest.mark.parametrize(
    ("on_base", "expected"), [("success", "new"), ("failure", "known"), (None, "no baseline")]
)
async def test_a_failure_is_compared_with_the_base_branch(bot, github, pushed, on_base, expected):
    run = await finish(bot, github, dispatch=pushed, conclusion=on_base) if on_base else None
    bot.clock.advance(600)
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    await finish(bot, github)
    await bot.wait(60)
    url = run and f"https://github.com/{L4}/actions/runs/{run.id}"
    assert await history(bot, pull) == [(expected, url)]
    (comment,) = ours(github, pull)
    assert expected in comment.body.replace("No baseline", "no baseline")
    check = next(run for run in github.check_runs(UPSTREAM, pull.head_sha) if run.name == "oot / tpu")
    assert expected.replace("no ", "without a ") in check.output.summary
    if url:
        assert url in comment.body
        assert url in check.output.summary
    assert check.conclusion == "failure"


async def test_runs_on_the_base_branch_that_were_cancelled_hide_none_that_ended(bot, github, pushed):
    failed = await finish(bot, github, dispatch=pushed, conclusion="failure")
    for _ in range(5):  # pushes so quick that each cancels the run of the one before
        bot.clock.advance(60)
        await github.push(UPSTREAM, message="on main")
        await bot.settle()
        await finish(bot, github, conclusion="cancelled")
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    await finish(bot, github)
    await bot.wait(60)
    url = f"https://github.com/{L4}/actions/runs/{failed.id}"
    assert await history(bot, pull) == [("known", url)]


async def test_a_failure_is_compared_with_the_commit_the_pull_request_left_the_branch_at(bot, github):
    """It was based on a commit of another branch, where the job failed too; the branch has moved on since."""
    listed = f"L4:\n  tpu: {{repo: {L4}, events: [pull_request, push], refs: [release]}}\n"
    (bot.context.settings.data_dir / "allowlist.yml").write_text(listed)
    bot.clock.advance(60)
    await bot.settle()
    left = await github.push(UPSTREAM, "release", message="where it left")
    await bot.settle()
    await finish(bot, github, dispatch=bot.dispatch(L4), **FAILED)
    repo = github.state.repo(UPSTREAM)
    main, repo.branches["main"] = repo.branches["main"], left
    pull = await github.open_pull(UPSTREAM)
    repo.branches["main"] = main
    await bot.settle()
    for step in (github.close(pull), bot.settle()):
        await step
        bot.clock.advance(60)
    await github.push(UPSTREAM, message="main goes on")
    await github.reopen(pull)
    await bot.settle()
    await finish(bot, github, dispatch=bot.dispatch(L4), **FAILED)
    assert [kind for kind, _ in await history(bot, pull)] == ["known"]
    reads = [call for call in github.calls if "/compare/" in call.path]
    assert len(reads) == 1


async def test_a_nightly_run_of_the_base_branch_is_something_to_compare_with(bot, github, pull):
    listed = f"L4:\n  tpu: {L4}\n"
    (bot.context.settings.data_dir / "allowlist.yml").write_text(listed)
    bot.clock.advance(60)
    nightly = await github.push(UPSTREAM, message="tonight")
    await bot.settle()
    workflow = {
        "status": "completed",
        "conclusion": "failure",
        "name": "CI",
        "job_name": "build",
        "run_id": "70",
    }
    body = {"event_type": "nightly", "delivery_id": nightly, "workflow": workflow}
    sent = {"Authorization": f"Bearer {bot.issuer.mint(repository=L4, run_id='70', run_attempt=1)}"}
    assert (await bot.request("POST", "/api/oot/callback", json=body, headers=sent))[0] == 200
    await bot.settle()
    bot.clock.advance(60)
    await github.push(UPSTREAM, message="later")
    later = await github.open_pull(UPSTREAM)
    await bot.settle()
    await finish(bot, github)
    assert [kind for kind, _ in await history(bot, later)] == ["known"]


@pytest.mark.parametrize(("on_base", "expected"), [(FAILED, "known"), (OTHER, "new")])
async def test_where_tests_are_told_the_same_ones_must_fail(bot, github, pushed, on_base, expected):
    await finish(bot, github, dispatch=pushed, **on_base)
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    await finish(bot, github, **FAILED)
    assert [kind for kind, _ in await history(bot, pull)] == [expected]


async def test_the_same_failure_on_another_pull_request_of_the_week_makes_it_known(bot, github):
    old, first = [await github.open_pull(UPSTREAM) for _ in range(2)]
    await bot.settle()
    for pull, tests in ((old, OTHER), (first, FAILED)):
        sha = pull.head_sha
        mine = [one for one in github.dispatches if one.repo.full_name == L4]
        dispatch = next(
            one for one in mine if one.client_payload["payload"]["pull_request"]["head"]["sha"] == sha
        )
        await finish(bot, github, dispatch=dispatch, **tests)
        bot.clock.advance(4 * 86_400)
    assert [kind for kind, _ in await history(bot, first)] == ["no baseline"]
    second = await github.open_pull(UPSTREAM)
    await bot.settle()
    await finish(bot, github, **FAILED)
    await bot.wait(60)
    assert [kind for kind, _ in await history(bot, second)] == ["known"]
    assert "fails on another pull request too" in ours(github, second)[0].body
    third = await github.open_pull(UPSTREAM)
    bot.clock.advance(8 * 86_400)
    await bot.settle()
    await finish(bot, github, **FAILED)
    assert [kind for kind, _ in await history(bot, third)] == ["no baseline"]


async def test_a_job_that_passed_before_on_the_same_head_is_flaky(bot, github, pull):
    passed = await finish(bot, github, conclusion="success")
    green = next(run for run in github.check_runs(UPSTREAM, pull.head_sha) if run.name == "oot / tpu")
    await github.rerequest(green.id)
    await bot.settle()
    await bot.report(bot.dispatch(L4), conclusion="failure", run_id=str(passed.id), attempt=2)
    await bot.settle()
    assert await history(bot, pull) == [("flaky", f"https://github.com/{L4}/actions/runs/{passed.id}")]
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][:2] == ("completed", "failure")


async def test_what_others_do_later_rewrites_nothing(bot, github, pull):
    await finish(bot, github, **FAILED)
    await bot.wait(60)
    other = await github.open_pull(UPSTREAM)
    await bot.settle()
    await finish(bot, github, **FAILED)
    await bot.wait(60)
    before = [call for call in github.calls if call.method in {"POST", "PATCH"}]
    for one in (pull, other):
        async with bot.store.transaction() as tx:
            tx.enqueue("publish", f"{UPSTREAM}#{one.number}")
        await bot.wait(60)
    assert [call for call in github.calls if call.method in {"POST", "PATCH"}] == before
