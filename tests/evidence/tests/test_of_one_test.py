"""The page of one test: the line of the log, and the administrator's button to reset it."""

from __future__ import annotations

import re
from datetime import date, timedelta

import aiohttp
import pytest

from tests.evidence.tests.reported import JOB, case, ran, xml
from tests.harness import UPSTREAM
from tests.serving import SQLITE

pytestmark = SQLITE
LOG = "2026-01-01T00:00:00.0000000Z collected 3 items\n2026-01-01T00:00:01.0000000Z FAILED test_ops.py::TestOps::test_add - 3 != 4\n"


async def test_a_failure_leads_to_the_line_of_the_log_that_says_why_its_job_failed(bot, github):
    run = await github.start_run(UPSTREAM, event="push")
    job = await github.start_job(run, JOB)
    github.add_artifact(
        run, f"test-reports-test-default-1-2-linux.large_{job.id}", {"a.xml": xml(case("test_add", "failed"))}
    )
    await github.finish_job(job, "failure", log=LOG)
    await github.finish_run(run, "failure")
    # its log names no cause: what stands before its error is the last resort
    other, unexplained = await ran(github, {"a.xml": xml(case("test_add", "failed"))}, conclusion="failure")
    await bot.settle(horizon=120)
    _, listed = await bot.get(f"/api/ci/tests/{UPSTREAM}")
    (test,) = (one["test"] for one in listed["tests"])
    _, answer = await bot.get(f"/api/ci/tests/{UPSTREAM}/{test}")
    logs = {one["run_id"]: one["log"] for one in answer["failures"]}
    assert re.fullmatch(rf"/{UPSTREAM}/job/{job.id}/log\S*2\S*", logs[run.id])
    assert re.fullmatch(rf"/{UPSTREAM}/job/{unexplained.id}/log\S*2\S*", logs[other.id])
    _, page = await bot.get(f"/{UPSTREAM}/test/{test}")
    assert f'href="{logs[run.id]}"' in page
    status, _ = await bot.get(logs[run.id])
    assert status == 200


@pytest.fixture
async def flaky(bot, github):
    """The id of a test that is flaky."""
    for _ in range(2):
        bot.clock.advance(3600)
        await ran(github, {"a.xml": xml(case("test_add", "flaky"))})
    await bot.settle(horizon=900)
    _, listed = await bot.get(f"/api/ci/tests/{UPSTREAM}?sort=flaky")
    return listed["tests"][0]["test"]


async def states(bot, test):
    _, answer = await bot.get(f"/api/ci/tests/{UPSTREAM}/{test}")
    return [(one["state"], one["by"]) for one in answer["states"]]


async def test_the_administrator_resets_a_test_from_its_page_and_no_other_visitor_does(bot, flaky):
    address = f"{bot.url}/{UPSTREAM}/test/{flaky}"
    action = f"{bot.url}/admin/tests/{UPSTREAM}/{flaky}/reset"
    assert "<button>Reset" not in (await bot.get(f"/{UPSTREAM}/test/{flaky}"))[1]
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:
        await browser.post(f"{bot.url}/admin/sign-in", data={"token": bot.context.settings.admin_token})
        async with browser.get(address) as answer:
            page = await answer.text()
        key = re.search(r'name="key" value="([0-9a-f]{64})"', page)[1]
        async with bot.http.post(action, data={"key": key}) as stranger:
            assert stranger.status == 403
        async with browser.post(action, data={"key": "0" * 64}) as elsewhere:
            assert elsewhere.status == 403
        assert await states(bot, flaky) == [("flaky", "bot")]
        async with browser.post(action, data={"key": key}) as answer:
            assert (answer.status, str(answer.url)) == (200, address)
            page = await answer.text()
        assert "by the administrator" in page
        assert "<button>Reset" not in page
        async with browser.post(action.replace(flaky, "0" * 16), data={"key": key}) as unknown:
            assert unknown.status == 404
    assert await states(bot, flaky) == [("healthy", "the administrator")]


async def test_the_page_says_when_a_test_ran_first_and_last_in_each_environment(bot, github):
    for days in (3, 0):
        await ran(github, {"a.xml": xml(case("test_add", "failed" if days else "passed"))})
        await bot.settle(horizon=900)
        bot.clock.advance(days * 86_400)
    _, listed = await bot.get(f"/api/ci/tests/{UPSTREAM}")
    _, page = await bot.get(f"/{UPSTREAM}/test/{listed['tests'][0]['test']}")
    first, last = re.search(r"first (\d{4}-\d\d-\d\d), last (\d{4}-\d\d-\d\d)", page).groups()
    assert date.fromisoformat(last) - date.fromisoformat(first) == timedelta(days=3)
