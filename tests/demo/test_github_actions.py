"""Workflow runs and dispatches of the simulated GitHub."""

from __future__ import annotations

import time

import pytest

from tests.demo.app_client import (
    HOUR,
    UPSTREAM,
)


async def test_on_dispatch_is_called_after_the_response(client):
    github, dispatches = client.github, []

    async def backend(dispatch):
        dispatches.append((dispatch.repo.full_name, dispatch.event_type, dispatch.client_payload))
        run = await github.start_run(dispatch.repo)
        job = await github.start_job(run, "test", labels=["npu"])
        await github.finish_job(job, "failure")
        await github.finish_run(run, "failure")

    github.on_dispatch = backend
    body = {"event_type": "pull_request", "client_payload": {"delivery_id": "1"}}
    assert (await client.call("POST", f"/repos/{UPSTREAM}/dispatches", body))[0] == 204
    await github.settled()
    assert dispatches == [(UPSTREAM, "pull_request", {"delivery_id": "1"})]
    assert client.receiver.events == [
        "workflow_run.requested",
        "workflow_run.in_progress",
        "workflow_job.queued",
        "check_run.created",
        "workflow_job.in_progress",
        "workflow_job.completed",
        "check_run.completed",
        "workflow_run.completed",
        "check_suite.completed",
    ]
    _, body, _ = await client.call("GET", f"/repos/{UPSTREAM}/actions/runs?event=repository_dispatch")
    run = body["workflow_runs"][0]
    assert (body["total_count"], run["conclusion"], run["run_attempt"]) == (1, "failure", 1)


async def test_an_error_in_on_dispatch_is_raised(client):
    async def backend(dispatch):
        raise LookupError(dispatch.event_type)

    client.github.on_dispatch = backend
    await client.call("POST", f"/repos/{UPSTREAM}/dispatches", {"event_type": "go"})
    with pytest.raises(LookupError, match="go"):
        await client.github.settled()


async def test_completed_runs_can_be_rerun_for_thirty_days(client):
    github, reruns = client.github, []

    async def backend(run, failed_only):
        reruns.append((run.id, failed_only))

    github.on_rerun = backend
    run = await github.start_run(UPSTREAM)
    job = await github.start_job(run, "test")
    path = f"/repos/{UPSTREAM}/actions/runs/{run.id}"
    assert (await client.call("POST", f"{path}/rerun"))[0] == 403
    await github.finish_job(job, "success")
    await github.finish_run(run, "success")
    assert (await client.call("POST", f"{path}/cancel"))[0] == 409
    assert (await client.call("POST", f"{path}/rerun-failed-jobs"))[0] == 403
    assert (await client.call("POST", f"{path}/rerun"))[0] == 201
    again = await github.start_job(run, "test")
    assert (await client.call("GET", path))[1]["run_attempt"] == 2
    assert (await client.call("GET", f"{path}/attempts/1"))[1]["conclusion"] == "success"
    assert (await client.call("GET", f"{path}/attempts/3"))[0] == 404
    latest, every = [
        [row["id"] for row in (await client.call("GET", f"{path}/jobs{query}"))[1]["jobs"]]
        for query in ("", "?filter=all")
    ]
    assert (latest, every) == ([again.id], [job.id, again.id])
    assert (await client.call("POST", f"{path}/cancel"))[0] == 202
    await github.settled()
    assert (run.conclusion, again.conclusion) == ("cancelled", "cancelled")
    assert (await client.call("POST", f"{path}/rerun-failed-jobs"))[0] == 201
    await github.settled()
    assert reruns == [(run.id, False), (run.id, True)]
    await github.finish_run(run, "failure")
    client.clock.advance(31 * 24 * HOUR)
    assert (await client.call("POST", f"{path}/rerun"))[0] == 403


async def test_one_job_of_a_run_can_be_run_again(client):
    github = client.github
    run = await github.start_run(UPSTREAM)
    job = await github.start_job(run, "test")
    path = f"/repos/{UPSTREAM}/actions/jobs/{job.id}/rerun"
    assert (await client.call("POST", path, {}))[0] == 403, "it runs"
    await github.finish_job(job, "failure")
    await github.finish_run(run, "failure")
    assert (await client.call("POST", path, {}))[0] == 201
    await github.settled()
    assert run.run_attempt == 2
    assert (await client.call("POST", f"/repos/{UPSTREAM}/actions/jobs/7/rerun", {}))[0] == 404


async def test_runs_are_found_by_their_date_of_creation(client):
    run = await client.github.start_run(UPSTREAM)
    day = time.strftime("%Y-%m-%d", time.gmtime(run.created_at / 1000))
    for wanted, count in {
        day: 1,
        f">={day}": 1,
        f">{day}": 0,
        f"{day}..*": 1,
        "<2020-01-01": 0,
    }.items():
        params = f"/repos/{UPSTREAM}/actions/runs?created={wanted}"
        assert (await client.call("GET", params))[1]["total_count"] == count, wanted
    bad = f"/repos/{UPSTREAM}/actions/runs?created=soon"
    assert (await client.call("GET", bad))[0] == 422


async def test_workflow_dispatches_return_their_run_on_request(client):
    path = f"/repos/{UPSTREAM}/actions/workflows/ci.yml/dispatches"
    many = {"ref": "main", "inputs": {f"i{number}": "x" for number in range(26)}}
    assert (await client.call("POST", path, {"ref": "main"}))[0] == 204
    assert (await client.call("POST", path, many))[0] == 422
    assert (await client.call("POST", path, {"ref": "nowhere"}))[0] == 422
    assert (await client.call("POST", path.replace("ci.yml", "no.yml"), {"ref": "main"}))[0] == 404
    asked = {"ref": "main", "return_run_details": True, "inputs": {"a": "b"}}
    status, body, _ = await client.call("POST", path, asked)
    assert status == 200
    assert client.github.dispatches[-1].run.id == body["workflow_run_id"]
    assert client.github.dispatches[-1].client_payload == {"a": "b"}
