"""Dispatches to backends that are held, out of reach, or started by the name of a workflow."""

from __future__ import annotations

import json

import pytest

from bot.oot.verdict.view import OK_TO_TEST
from tests.flows.scenarios import (
    BY_WORKFLOW,
    MOST_CHARACTERS,
    READS_INPUTS,
    dispatched_to,
    posts,
    reasons,
    states,
)
from tests.harness import L1, L2, L3, L4, UPSTREAM

pytestmark = pytest.mark.logic


# policy: trusted. A stranger's pull request is held until somebody with write access sets the label.


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


# Dispatches to backends without the App, suspended, archived or renamed.


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
    await bot.list_backends(f"L2: [{L4}]\n")
    github.uninstall(L4, github.app)
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    await bot.list_backends(f"L4: {{tpu: {{{L4}: [dave]}}}}\n")
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
    await bot.list_backends(
        f"L2:\n- {{repo: {L2}, repository_id: {right}}}\n- {{repo: {L1}, repository_id: 5}}\n"
    )
    await github.open_pull(UPSTREAM)
    await bot.settle()
    assert dispatched_to(github) == [L2]
    assert await states(bot, L1) == ["failed"]
    assert "repository_id 5" in (await reasons(bot, L1))[0]


# dispatch: workflow. A backend's workflow is started by its file's name.


DISPATCHES = r"/dispatches$"


@pytest.fixture
async def by_workflow(bot, github):
    github.set_file(L4, ".github/workflows/upstream.yml", READS_INPUTS)
    await bot.list_backends(BY_WORKFLOW)


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
    await bot.list_backends(BY_WORKFLOW)
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / tpu"][1] == "failure"
    assert "upstream.yml" in bot.checks(UPSTREAM, pull.head_sha)["oot / tpu"][2]


@pytest.mark.usefixtures("by_workflow")
async def test_an_enterprise_server_is_sent_nothing_that_it_does_not_know(bot, github):
    github.state.server_version = "3.19.4"
    await github.open_pull(UPSTREAM)
    await bot.settle()
    (sent,) = github.dispatches
    (row,) = await bot.rows("oot_dispatch")
    assert (sent.event_type, row["state"], row["run_id"]) == ("workflow_dispatch", "sent", None)
