"""A push of `ciflow/trunk/<number>` is about its pull request: check run, gate, comment and page."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.harness import L2, L4, UPSTREAM
from tests.interop import client
from tests.samples import nightly

pytestmark = pytest.mark.logic

BUILD, TRUNK = f"crcr/{L4}/CI/build", f"crcr/{L4}/CI/trunk-test"
GATE = "oot / gate"


@pytest.fixture
def pull_refs():
    return None


@pytest.fixture
def settings(settings, pull_refs):
    return replace(settings, pull_refs=pull_refs) if pull_refs else settings


@pytest.fixture
async def pull(bot, github):
    """A pull request on which the L4 backend has passed."""
    made = await github.open_pull(UPSTREAM)
    await bot.settle()
    await report(bot, github, pushed(bot, "pull_request"), "build", "success")
    assert bot.checks(UPSTREAM, made.head_sha)[GATE][1] == "success"
    return made


def pushed(bot, event="push", repo=L4):
    """Return the newest dispatch of an event that a backend received."""
    return [
        one for one in bot.github.dispatches
        if one.repo.full_name == repo and one.client_payload["event_type"] == event
    ][-1]  # fmt: skip


async def report(bot, github, dispatch, job, conclusion):
    """Run a job of the L4 backend to its end."""
    run = await github.start_run(dispatch.repo.full_name)
    step = client.of(bot, dispatch, job=job, run_id=str(run.id))
    await step.started()
    await step.ended(conclusion)
    await github.finish_run(run, conclusion)
    await bot.settle(horizon=60)


async def push_main(bot, github):
    await github.push(UPSTREAM, "main", message="unused")
    await bot.settle()
    return next(one for one in reversed(github.deliveries) if one.event == "push")


async def push_tag(bot, github, ref, sha, **more):
    """Push a ref to a commit as a merge bot does, and let the bot work."""
    last = await push_main(bot, github)
    await github.deliver("push", last.payload | {"ref": ref, "after": sha, "before": "0" * 40} | more)
    await bot.settle(horizon=90)


def objections(bot, pull):
    return client.objections(bot.github, UPSTREAM, pull.head_sha, {L4})


@pytest.mark.parametrize("kind", ["tags", nightly("heads")])
async def test_a_failure_there_stops_guard_and_gate(bot, github, pull, kind):
    await push_tag(bot, github, f"refs/{kind}/ciflow/trunk/{pull.number}", pull.head_sha)
    dispatch = pushed(bot)
    assert dispatch.client_payload["payload"]["ref"].endswith(f"ciflow/trunk/{pull.number}")
    await report(bot, github, dispatch, "trunk-test", "failure")
    assert objections(bot, pull) == [TRUNK]
    assert client.seen(github, UPSTREAM, pull.head_sha)[TRUNK].external_id.endswith(f":{pull.number}")
    gate = bot.checks(UPSTREAM, pull.head_sha)[GATE]
    assert gate[1] == "failure"
    (comment,) = github.comments(pull)
    assert "trunk-test" in comment.body
    status, page = await bot.get(f"/{UPSTREAM}/pull/{pull.number}")
    assert status == 200
    assert "trunk-test" in page
    (job,) = [row for row in await bot.rows("oot_workflow_job") if row["job_name"] == "trunk-test"]
    assert (job["pr_number"], job["head_sha"], job["flags"]) == (pull.number, pull.head_sha, {})


async def test_it_is_waited_for_once_it_runs_and_never_for_its_silence(bot, github, pull):
    await push_tag(bot, github, f"refs/tags/ciflow/trunk/{pull.number}", pull.head_sha)
    assert bot.checks(UPSTREAM, pull.head_sha)[GATE][1] == "success"
    run = await github.start_run(L4)
    step = client.of(bot, pushed(bot), job="trunk-test", run_id=str(run.id))
    await step.started()
    await bot.settle()
    assert bot.checks(UPSTREAM, pull.head_sha)[GATE][0] == "in_progress"
    await step.ended()
    await github.finish_run(run, "success")
    await bot.settle(horizon=60)
    assert bot.checks(UPSTREAM, pull.head_sha)[GATE][1] == "success"


async def test_a_green_push_does_not_answer_for_the_pull_request(bot, github):
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    await push_tag(bot, github, f"refs/tags/ciflow/trunk/{pull.number}", pull.head_sha)
    await report(bot, github, pushed(bot), "trunk-test", "success")
    assert bot.checks(UPSTREAM, pull.head_sha)[GATE][0] == "in_progress"
    await report(bot, github, pushed(bot, "pull_request"), "build", "success")
    assert bot.checks(UPSTREAM, pull.head_sha)[GATE][1] == "success"


async def test_the_tag_may_arrive_before_the_head_it_names(bot, github, pull):
    before = len(github.dispatches)
    last = await push_main(bot, github)
    sha = "e" * 40
    ref = f"refs/tags/ciflow/trunk/{pull.number}"
    await github.deliver("push", last.payload | {"ref": ref, "after": sha, "before": "0" * 40})
    await bot.settle()
    (*_, opened) = [one for one in github.deliveries if one.event == "pull_request"]
    body = opened.payload["pull_request"]
    newer = body | {"head": body["head"] | {"sha": sha}, "updated_at": "2026-12-01T00:00:00Z"}
    moved = {"action": "synchronize", "before": body["head"]["sha"], "after": sha, "pull_request": newer}
    await github.deliver("pull_request", opened.payload | moved)
    await bot.settle(horizon=30)
    assert len(github.dispatches) > before
    rows = await bot.rows("oot_dispatch")
    numbers = {row["pr_number"] for row in rows if (row["event_type"], row["head_sha"]) == ("push", sha)}
    assert numbers == {pull.number}


@pytest.mark.parametrize("forced", [True, nightly(False)])
@pytest.mark.parametrize("what", ["closed", "another head", "unknown pull", "other tag", "deleted"])
async def test_a_push_about_nothing_counts_for_nothing(bot, github, pull, what, forced):
    sha, number = pull.head_sha, pull.number
    ref, more = f"refs/tags/ciflow/trunk/{number}", {"forced": forced}
    if what == "closed":
        await github.close(pull)
        await bot.settle()
    elif what == "another head":
        sha = github.state.repo(UPSTREAM).branches["main"]
    elif what == "unknown pull":
        ref = "refs/tags/ciflow/trunk/987654"
    elif what == "other tag":
        ref = f"refs/tags/ciflow/periodic/{number}"
    else:
        sha, more = "0" * 40, more | {"deleted": True}
    await push_tag(bot, github, ref, sha, **more)
    sent = [row for row in await bot.rows("oot_dispatch") if row["event_type"] == "push"]
    assert {row["pr_number"] for row in sent} == {None}
    assert len({row["delivery_id"] for row in sent}) == 2  # main's, and this one
    if what != "deleted":
        await report(bot, github, pushed(bot), "trunk-test", "failure")
    assert objections(bot, pull) == []


@pytest.mark.parametrize("pull_refs", [("refs/tags/ciflow/trunk/{number}", "refs/tags/ciflow/slow/{number}")])
async def test_a_push_takes_the_place_of_pushes_of_its_ref_alone(bot, github, pull):
    pushes = [
        ("trunk", "failure", "failure"),
        ("slow", "success", "failure"),
        ("trunk", "success", "success"),
    ]
    for name, conclusion, gate in pushes:
        await push_tag(bot, github, f"refs/tags/ciflow/{name}/{pull.number}", pull.head_sha)
        await report(bot, github, pushed(bot), f"{name}-test", conclusion)
        assert bot.checks(UPSTREAM, pull.head_sha)[GATE][1] == gate
    assert objections(bot, pull) == []


async def test_a_green_push_hides_no_failure_of_the_pull_request(bot, github):
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    await report(bot, github, pushed(bot, "pull_request"), "build", "failure")
    await push_tag(bot, github, f"refs/tags/ciflow/trunk/{pull.number}", pull.head_sha)
    await report(bot, github, pushed(bot), "trunk-test", "success")
    assert bot.checks(UPSTREAM, pull.head_sha)[GATE][1] == "failure"
    assert objections(bot, pull) == [BUILD]


async def test_nothing_that_a_stranger_may_push_makes_a_gate_green(bot, github):
    """Anyone may have a fork with any branch and tag, and open a pull request with another's commit."""
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    theirs = await github.open_pull(UPSTREAM, author="mallory", head_ref=f"ciflow/trunk/{pull.number}")
    theirs.head_sha = pull.head_sha  # the same commit once more
    await github.edit_title(theirs, "mine now")
    last = await push_main(bot, github)
    about = {"ref": f"refs/tags/ciflow/trunk/{pull.number}", "after": pull.head_sha, "before": "0" * 40}
    fork = last.payload["repository"] | {"id": 987654, "full_name": "mallory/pytorch", "fork": True}
    before = len(github.dispatches)
    await github.deliver("push", last.payload | about | {"repository": fork})
    await bot.settle(horizon=90)
    assert len(github.dispatches) == before  # of a fork nothing is dispatched
    await push_tag(
        bot, github, f"refs/tags/ciflow/trunk/{theirs.number}", pull.head_sha
    )  # its merge bot may err
    dispatch = pushed(bot)
    await report(bot, github, dispatch, "trunk-test", "success")
    body = dispatch.client_payload | {"callback_token": None}
    with pytest.raises(client.StepFailedError) as refused:
        await client.Client(bot, L4, body, job="build").ended()
    assert refused.value.status == 403  # whoever knows the delivery alone
    await client.Client(bot, L2, pushed(bot, repo=L2).client_payload, job="build").ended()
    await bot.settle(horizon=90)
    assert bot.checks(UPSTREAM, pull.head_sha)[GATE][0] == "in_progress"


@pytest.mark.parametrize("pull_refs", [("refs/tags/merge/{number}/trunk",)])
async def test_the_refs_are_a_setting(bot, github, pull):
    for ref, number in ((f"ciflow/trunk/{pull.number}", None), (f"merge/{pull.number}/trunk", pull.number)):
        await push_tag(bot, github, f"refs/tags/{ref}", pull.head_sha)
        rows = [row for row in await bot.rows("oot_dispatch") if row["ref"] == f"refs/tags/{ref}"]
        assert {row["pr_number"] for row in rows} == {number}


async def test_what_is_held_back_is_released_all_the_same(bot, github):
    await bot.list_backends(f"L4: [{{{L4}: {{policy: trusted}}}}]")
    pull = await github.open_pull(UPSTREAM, author_association="NONE")
    await bot.settle()
    await push_tag(bot, github, f"refs/tags/ciflow/trunk/{pull.number}", pull.head_sha)
    await report(bot, github, pushed(bot), "trunk-test", "success")
    assert bot.checks(UPSTREAM, pull.head_sha)[GATE][0] == "in_progress"
    await github.label(pull, "oot/ok-to-test")
    await bot.settle()
    await report(bot, github, pushed(bot, "pull_request"), "build", "success")
    assert bot.checks(UPSTREAM, pull.head_sha)[GATE][1] == "success"


async def test_a_failed_push_is_run_again_as_any_run(bot, github, pull):
    await push_tag(bot, github, f"refs/tags/ciflow/trunk/{pull.number}", pull.head_sha)
    await report(bot, github, pushed(bot), "trunk-test", "failure")
    run_id = next(
        row["run_id"] for row in await bot.rows("oot_workflow_job") if row["job_name"] == "trunk-test"
    )
    await github.comment(pull, "/oot rerun", by="octocat")
    await bot.settle()
    (rerun,) = await bot.rows("oot_rerun")
    (dispatch,) = [row for row in await bot.rows("oot_dispatch") if row["id"] == rerun["dispatch_id"]]
    assert (rerun["run_id"], dispatch["event_type"]) == (run_id, "push")
    again = client.of(bot, pushed(bot), job="trunk-test", run_id=run_id, run_attempt="2")
    await again.started()
    await again.ended()
    await bot.wait(120)
    assert bot.checks(UPSTREAM, pull.head_sha)[GATE][1] != "failure"
    assert objections(bot, pull) == []
