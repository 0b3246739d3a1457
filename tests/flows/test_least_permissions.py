"""Is what the manifests ask for enough? The whole way with exactly those permissions and events, one App and two."""

from __future__ import annotations

import json

import pytest

from bot.github import manifest
from tests import harness
from tests.harness import L2, L4, SECRET, UPSTREAM, make_settings, running
from tests.serving import SQLITE

BY_WORKFLOW = f"""
L2: [{{repo: {L2}, dispatch: workflow, workflow_file: ci.yml}}]
L4: [{{repo: {L4}, device: tpu, oncalls: [dave], dispatch: workflow, workflow_file: ci.yml}}]
"""
SETUPS = {
    "one App": ("one",),
    "two Apps": ("upstream", "relay"),
    "two Apps, by workflow": ("upstream", "relay"),
}


@pytest.fixture(params=SETUPS)
def setup(request):
    return request.param


@pytest.fixture
async def bot(setup, issuer, clock, tmp_path, database_url, app_key):
    github = harness.SimulatedGitHub(clock=clock)
    await github.start()
    by_workflow = setup.endswith("by workflow")
    apps = [
        github.register_app(
            webhook_url=None, webhook_secret=SECRET, private_key_pem=app_key, slug=role,
            permissions=wanted.granted, events=wanted.events,
        )
        for role in SETUPS[setup]
        for wanted in [manifest.manifest_for(role, workflow_dispatch=by_workflow)]
    ]  # fmt: skip
    github.add_repo(UPSTREAM, install=[apps[0]])
    for name in (L2, L4):
        github.add_repo(name, install=[apps[-1]])
    if by_workflow:
        (tmp_path / "allowlist.yml").write_text(BY_WORKFLOW)
    second = {}
    if len(apps) == 2:
        second = {
            "relay_app_id": apps[1].app_id,
            "relay_private_key": app_key,
            "relay_webhook_secret": (SECRET,),
        }
    settings = make_settings(
        github=github, issuer=issuer, app=apps[0], folder=tmp_path, database_url=database_url, **second
    )
    async with running(settings, github=github, issuer=issuer, app=apps[0], clock=clock) as made:
        for app in apps:
            app.webhook_url = apps[0].webhook_url
        yield made
    await github.stop()


def refused(github):
    """Calls that GitHub refused because the App may not."""
    return [f"{call.method} {call.path}" for call in github.calls if call.status in {401, 403}]


@SQLITE
async def test_the_whole_way_from_a_pull_request_to_a_green_gate_and_again(bot, setup):
    github = bot.github
    pull = await github.open_pull(UPSTREAM, author="octocat")
    await bot.settle()
    dispatch = bot.dispatch(L4)
    run = dispatch.run or await github.start_run(L4, event="repository_dispatch", name="CI")
    payload = dispatch.client_payload
    if dispatch.run:
        dispatch = harness.replace(dispatch, client_payload=json.loads(payload["client_payload"]))
    await bot.report(dispatch, conclusion="failure", run_id=str(run.id))
    job = await github.queue_job(run, "build")
    await github.begin_job(job)
    await github.finish_job(job, "failure")
    await github.finish_run(run, "failure")
    await bot.settle(120)
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][1] == "failure"
    (comment,) = github.comments(pull)
    assert comment.app is bot.app
    await github.comment(pull, "/oot rerun tpu", by="octocat")
    await bot.settle()
    assert run.run_attempt == 2
    await bot.report(dispatch, run_id=str(run.id), attempt=2)
    await github.finish_run(run, "success")
    await bot.settle(120)
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][1] == "success"
    await github.push_commit(pull)
    await bot.wait(1300)  # sweeps, reconcile and confirmations too
    await github.push(UPSTREAM)
    await github.merge(pull)
    await bot.settle()
    assert refused(github) == []
    dead = [row for row in await bot.rows("task") if row["state"] == "dead"]
    assert dead == []
    records = {
        name: len(await bot.rows(name))
        for name in ("pull_request", "workflow_run", "push", "check_run", "issue_comment")
    }
    assert all(records.values()), records
