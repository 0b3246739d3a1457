"""dispatch: workflow. A backend's workflow is started by its file's name."""

from __future__ import annotations

import json

import pytest

from tests.flows.scenarios import (
    BY_WORKFLOW,
    MOST_CHARACTERS,
    READS_INPUTS,
)
from tests.harness import L4, UPSTREAM

pytestmark = pytest.mark.logic


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
