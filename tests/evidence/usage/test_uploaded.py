"""Usage logs that backends on another CI upload."""

from __future__ import annotations

import io

import pytest
import sqlalchemy as sa

from bot.evidence.collect import uploads
from bot.evidence.usage.store_usage import ELSEWHERE
from bot.ingest.tables import records
from tests.evidence.usage.test_stored import busy
from tests.harness import L3, UPSTREAM


async def send(bot, github, dispatch, log, **query):
    payload = dispatch.client_payload
    wanted = {
        "kind": "usage",
        "delivery_id": payload["delivery_id"],
        "run_id": "build-900",
        "workflow": "Nightly",
        "job": "test (1, 2)",
    } | query
    bearer = bot.issuer.mint(repository=L3, repository_id=github.state.repo(L3).id, run_id=wanted["run_id"])
    sent = {"Authorization": f"Bearer {bearer}", uploads.TOKEN_HEADER: payload["callback_token"]}
    status, answer = await bot.request(
        "POST", "/api/oot/uploads", params=wanted, data=io.BytesIO(log.encode()), headers=sent
    )
    assert status == 202, answer
    await bot.settle()


@pytest.mark.logic
async def test_an_uploaded_log_is_a_job_of_another_ci(bot, github):
    await github.open_pull(UPSTREAM)
    await bot.settle()
    dispatch = bot.dispatch(L3)
    await send(bot, github, dispatch, busy(gpu=2.0))
    (row,) = await bot.rows("utilization_job")
    assert (row["repo"], row["workflow_name"], row["job_name"], row["trusted"]) == (
        L3, "Nightly", "test (1, 2)", False,
    )  # fmt: skip
    assert ELSEWHERE <= row["job_id"] < 2 * ELSEWHERE
    assert row["blob"].startswith("util/")
    _, page = await bot.get(f"/oot/{L3}")
    assert "CPU 50 % avg" not in page  # the repository is not known to be public
    before = await bot.rows("utilization_job"), await bot.rows("utilization_day")
    await send(bot, github, dispatch, busy(gpu=2.0))
    assert (await bot.rows("utilization_job"), await bot.rows("utilization_day")) == before
    await send(bot, github, dispatch, busy(gpu=2.0, seconds=400))
    (row,) = await bot.rows("utilization_job")
    assert (row["records"], row["flags"]) == (80, ["several_logs"])
    assert {day["jobs"] for day in await bot.rows("utilization_day")} == {1}


@pytest.mark.logic
async def test_an_uploaded_log_of_a_job_of_githubs_is_that_jobs(bot, github, usage):
    await github.open_pull(UPSTREAM)
    await bot.settle()
    dispatch = bot.dispatch(L3)
    job = await usage.start(repo=L3)
    usage.leave(job, busy(seconds=100))
    await usage.finish(job)
    await send(bot, github, dispatch, busy(), run_id=str(job.run.id), workflow="CI", job=job.name)
    (row,) = await bot.rows("utilization_job")
    assert (row["job_id"], row["records"], row["flags"]) == (job.id, 60, ["several_logs"])


@pytest.mark.logic
async def test_an_uploaded_log_is_shown_where_its_results_are(bot, github, usage):
    pull = await github.open_pull(UPSTREAM)
    await github.start_run(L3, event="push")  # by which the repository is known to be public
    await bot.settle()
    dispatch = bot.dispatch(L3)
    token = bot.issuer.mint(repository=L3, repository_id=github.state.repo(L3).id, run_id="build-900")
    assert (await bot.report(dispatch, token=token, run_id="build-900"))[0] == 200
    await send(bot, github, dispatch, busy(gpu=2.0))
    (row,) = await bot.rows("utilization_job")
    line = "CPU 50 % avg, memory 40 % at 14:13 while pytest test_ops.py ran, NPUs idle 100 %"
    for address in (f"/oot/{L3}", f"/{UPSTREAM}/pull/{pull.number}", f"/{L3}/upload/1"):
        _, page = await bot.get(address)
        assert line in page, address
        assert f"/{L3}/job/{row['job_id']}/utilization" in page, address
    status, page = await bot.get(f"/{L3}/job/{row['job_id']}/utilization")
    assert status == 200
    assert "2 NPUs" in page


async def test_a_log_of_a_backends_run_is_on_the_pull_request_it_was_for(bot, github, usage):
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    job = await usage.start(repo=L3)
    usage.leave(job, busy(memory=97.5))
    await usage.finish(job)
    _, page = await bot.get(f"/{UPSTREAM}/pull/{pull.number}")
    assert "memory 98 %" not in page
    assert (await bot.report(bot.dispatch(L3), run_id=str(job.run.id)))[0] == 200  # later than the log
    _, page = await bot.get(f"/{UPSTREAM}/pull/{pull.number}")
    assert f"{L3} · {job.name}: CPU 50 % avg, memory 98 %" in page
    async with bot.store.transaction() as tx:
        of_backend = records["repository"].c.full_name == L3
        await tx.run(sa.update(records["repository"]).where(of_backend).values(private=True))
    _, page = await bot.get(f"/{UPSTREAM}/pull/{pull.number}")
    assert "memory 98 %" not in page
    _, page = await bot.get(f"/oot/{L3}")
    assert "memory 98 %" not in page
