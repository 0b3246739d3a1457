"""Documents that backends on another CI upload: whose they are is decided by the dispatch, never by the file."""

from __future__ import annotations

import io
import json

import pytest

from bot.evidence.collect import uploads
from tests.harness import L3, UPSTREAM
from tests.job_reports.conftest import lines
from tests.job_reports.test_benchmarks import record


async def send(bot, github, dispatch, kind, content, *, job="test (1, 2)"):
    payload = dispatch.client_payload
    wanted = {
        "kind": kind,
        "delivery_id": payload["delivery_id"],
        "run_id": "build-900",
        "workflow": "Nightly",
        "job": job,
    }
    bearer = bot.issuer.mint(repository=L3, repository_id=github.state.repo(L3).id, run_id="build-900")
    sent = {"Authorization": f"Bearer {bearer}", uploads.TOKEN_HEADER: payload["callback_token"]}
    status, answer = await bot.request(
        "POST", "/api/oot/uploads", params=wanted, data=io.BytesIO(content), headers=sent
    )
    assert status == 202, answer
    await bot.settle(horizon=60)


async def test_what_a_backend_measured_for_a_pull_request_is_its_and_of_that(bot, github):
    pull = await github.open_pull(UPSTREAM)
    await github.start_run(L3, event="push")  # by which the repository is known to be public
    await bot.settle()
    dispatch = bot.dispatch(L3)
    await send(bot, github, dispatch, "metrics", lines({"metric": "a", "values": {"x": 1}}))
    await send(bot, github, dispatch, "benchmark", json.dumps([record(5, device="npu")]).encode())
    await send(bot, github, dispatch, "sccache", b"direct_cache_hit\t3\ncache_miss\t1\n", job="build")
    sources = {one["kind"]: one for one in await bot.rows("ci_source")}
    assert sources.keys() == {"metrics", "benchmark", "sccache"}
    for source in sources.values():
        assert (source["repo"], source["pr_number"], source["trusted"]) == (L3, pull.number, False)
        assert (source["upstream_repo"], source["upstream_sha"]) == (UPSTREAM, pull.head_sha)
    assert (
        await bot.rows("benchmark_trend")
        == await bot.rows("ci_cache_trend")
        == await bot.rows("ci_metric_day")
        == []
    )
    _, page = await bot.get(f"/{UPSTREAM}/pull/{pull.number}")
    assert "1 measured, none changed by more than noise" in page


@pytest.mark.logic
async def test_the_same_upload_twice_is_one_file(bot, github):
    await github.open_pull(UPSTREAM)
    await bot.settle()
    dispatch = bot.dispatch(L3)
    for _ in range(2):
        await send(bot, github, dispatch, "metrics", lines({"metric": "a", "values": {"x": 1}}))
    assert len(await bot.rows("ci_source")) == len(await bot.rows("ci_metric")) == 1
