"""The page of one test: the line of the log, and the administrator's button to reset it."""

from __future__ import annotations

import io
import re
from datetime import date, timedelta

import aiohttp
import pytest

from tests.evidence.tests.reported import JOB, case, ran, xml
from tests.harness import L3, UPSTREAM
from tests.serving import SQLITE

pytestmark = SQLITE

LOG = "2026-01-01T00:00:00.0000000Z collected 3 items\n2026-01-01T00:00:01.0000000Z FAILED test_ops.py::TestOps::test_add - 3 != 4\n"
HORIZON = 200
OWN = "ab" * 20  # a commit of the backend's own
FAILING = xml(case("test_add", "failed"), case("test_mul"))


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


async def send(bot, body=FAILING, *, commit, event_type="nightly", job=JOB, run_id="900", kind="junit"):
    """Upload a file of a run of the backend's own, with its CI's token and nothing else."""
    named = {
        "kind": kind, "delivery_id": commit, "event_type": event_type, "run_id": run_id, "workflow": "CI", "job": job,
    }  # fmt: skip
    token = bot.issuer.mint(repository=L3, run_id=run_id, run_attempt=1)
    headers = {"Authorization": f"Bearer {token}"}
    given = {name: value for name, value in named.items() if value is not None}
    status, answer = await bot.request(
        "POST", "/api/oot/uploads", params=given, data=io.BytesIO(body), headers=headers
    )
    await bot.settle(horizon=HORIZON)
    return status, answer


async def page(bot, address):
    status, text = await bot.get(address)
    assert status == 200, text
    return text


@pytest.mark.parametrize("event", ["nightly", "periodic"])
async def test_a_nightly_is_of_upstreams_commit_and_feeds_no_baseline(bot, github, event):
    await github.push(L3)  # its repository is known
    sha = await github.push(UPSTREAM)
    await bot.settle(horizon=HORIZON)
    assert (await send(bot, commit=sha, event_type=event))[0] == 202
    (row,) = await bot.rows("test_job")
    told = (
        "backend",
        "event",
        "upstream_repo",
        "upstream_sha",
        "head_sha",
        "trusted",
        "dispatch_id",
        "pr_number",
    )
    assert [row[name] for name in told] == [L3, event, UPSTREAM, sha, "", False, None, None]
    assert (row["run_id"] < 0, row["tests"], row["failed"]) == (True, 2, 1)
    assert await bot.rows("test_day") == []
    assert "test_add" in await page(bot, f"/{UPSTREAM}/commit/{sha}/tests")


async def test_a_nightly_that_names_a_pull_requests_head_says_nothing_of_it(bot, github, upload):
    await github.push(L3)
    pull = await github.open_pull(UPSTREAM, labels=["ciflow/oot/npu"])
    await bot.settle()
    assert (await send(bot, commit=pull.head_sha, job="nightly"))[0] == 202
    assert (await send(bot, commit=pull.head_sha, job="pushed", event_type="push"))[0] == 202
    shas = {(row["event"], row["upstream_sha"], row["head_sha"]) for row in await bot.rows("test_job")}
    assert shas == {("nightly", None, ""), ("push", None, pull.head_sha)}
    assert "test_add" not in await page(bot, f"/{UPSTREAM}/pull/{pull.number}")
    await upload(
        L3, xml(case("test_add", "failed")), job=JOB
    )  # of the dispatch: this one is the pull request's
    await bot.report(bot.dispatch(L3), conclusion="failure", run_id="900", job_name=JOB)
    await bot.settle(horizon=HORIZON)
    assert "test_add" in await page(bot, f"/{UPSTREAM}/pull/{pull.number}")


async def test_a_nightly_of_a_commit_that_is_a_head_too_stays_out_of_the_pull_request(bot, github):
    await github.push(L3)  # its repository is known
    sha = await github.push(UPSTREAM)
    pull = await github.open_pull(UPSTREAM, labels=["ciflow/oot/npu"])
    await github.push_commit(pull, commit=sha)
    await bot.settle(horizon=HORIZON)
    await bot.report(bot.dispatch(L3), conclusion="failure", run_id="900", job_name=JOB)
    assert (await send(bot, commit=sha))[0] == 202
    assert "test_add" in await page(bot, f"/{UPSTREAM}/commit/{sha}/tests")
    assert "test_add" not in await page(bot, f"/{UPSTREAM}/pull/{pull.number}")
    assert all("test_add" not in comment.body for comment in github.comments(pull))


async def test_a_push_of_the_backend_itself_is_of_its_own_commit(bot, github):
    await github.push(L3)
    await bot.settle()
    assert (await send(bot, commit=OWN, event_type="push"))[0] == 202
    (row,) = await bot.rows("test_job")
    assert [row[name] for name in ("backend", "event", "upstream_sha", "head_sha", "trusted")] == [
        L3, "push", None, OWN, False,
    ]  # fmt: skip
    assert "test_add" in await page(bot, f"/{L3}/commit/{OWN}/tests")


async def test_what_only_the_backend_says_excuses_no_failure(bot, github, upload):
    """Three commits of which an upload says that the test failed there, and the head of which one says it passed."""
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    for number in range(3):
        assert (await send(bot, commit=f"{number}{OWN[1:]}", event_type="push"))[0] == 202
    passing = xml(case("test_add"))
    assert (await send(bot, passing, commit=pull.head_sha, event_type="push", run_id="901"))[0] == 202
    await upload(L3, FAILING, job=JOB)
    await bot.settle(horizon=HORIZON)
    verdicts = {row["head_sha"]: row["verdict"] for row in await bot.rows("test_failure")}
    assert verdicts[pull.head_sha] == "no_baseline"


async def test_jobs_of_one_run_may_upload_the_same_bytes(bot, github):
    for job in ("a", "b"):
        assert (await send(bot, commit=OWN, event_type="push", job=job))[0] == 202
    assert {row["state"] for row in await bot.rows("ci_fetch")} == {"parsed"}
    assert sorted(row["name"] for row in await bot.rows("test_job")) == ["a", "b"]


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"event_type": None}, 404, "unknown_dispatch"),
        ({"event_type": "pull_request"}, 404, "unknown_dispatch"),
        ({"commit": "not-a-commit"}, 400, "invalid_parameter"),
        ({"event_type": "push", "kind": "log"}, 400, "invalid_parameter"),
    ],
)
async def test_what_is_no_run_of_the_backends_own_is_refused(bot, change, status, code):
    got, answer = await send(bot, **{"commit": OWN} | change)
    assert (got, answer["error"]) == (status, code), answer
    assert await bot.rows("ci_upload") == []


async def test_a_backend_whose_own_runs_are_refused_uploads_none(bot):
    (bot.context.settings.data_dir / "allowlist.yml").write_text(f"L2: [{{repo: {L3}, nightly: refused}}]")
    bot.clock.advance(600)
    await bot.settle()
    got, answer = await send(bot, commit=OWN)
    assert (got, answer["error"]) == (403, "forbidden"), answer
