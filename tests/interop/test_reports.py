"""Today's clients report: whatever their relay takes is taken, flagged where it lacks something, never made better."""

from __future__ import annotations

import pytest

from tests.harness import L1, L2, L3, L4, UPSTREAM, replace
from tests.interop import client
from tests.interop.client import AUDIENCE, Client, StepFailedError
from tests.samples import nightly
from tests.serving import SQLITE

pytestmark = [pytest.mark.logic, SQLITE]

WITH_AND_WITHOUT = pytest.mark.parametrize("preset", ["crcr", nightly(None)])  # see test_differences
LEVELS = pytest.mark.parametrize("repo", [L2, L3, L4])


@pytest.fixture
def settings(settings):
    """Without the preset too, today's audience is let in: the rest of what differs is looked at here."""

    return replace(settings, oidc_audience=("ootbot", AUDIENCE))


@pytest.fixture
async def pull(bot, github):
    made = await github.open_pull(UPSTREAM, labels=["ciflow/crcr/npu"])
    await bot.settle()
    return made


async def jobs(bot, repo):
    _, answer = await bot.get(f"/api/oot/backends/{repo}")
    return answer["jobs"]


@WITH_AND_WITHOUT
@LEVELS
async def test_a_job_that_starts_and_ends(bot, pull, repo):
    step = client.of(bot, bot.dispatch(repo), check_run_id="77")
    assert await step.started() == {"ok": True, "status": "in_progress"}
    bot.clock.advance(90)
    assert await step.ended("failure", test_results={"passed": 7, "failed": 1, "skipped": 2}) == {
        "ok": True,
        "status": "completed",
    }
    (job,) = await jobs(bot, repo)
    assert (job["status"], job["conclusion"], job["execution_time"], job["total_tests"]) == (
        "completed",
        "failure",
        90,
        10,
    )
    assert job["flags"] == {}
    _, page = await bot.get(f"/{UPSTREAM}/pull/{pull.number}")
    assert f"https://github.com/{repo}/actions/runs/900/job/77" in page


@WITH_AND_WITHOUT
@pytest.mark.parametrize("path", ["/api/oot/callback", "/api/oot/callback/", "/github/callback/"])
async def test_every_address_may_end_with_a_slash(bot, pull, path):
    assert (await client.of(bot, bot.dispatch(L2), path=path).started())["ok"]


@WITH_AND_WITHOUT
@pytest.mark.parametrize("caller", [L1, "stranger/fork"])
@pytest.mark.parametrize("body", ['{"workflow": {}}', "[]", "{}"])
async def test_who_is_ignored_is_ignored_whatever_it_sends(bot, pull, preset, caller, body):
    token = bot.issuer.mint(repository=caller, run_id="1")
    headers = {"Authorization": f"Bearer {token}"}
    status, answer = await bot.request("POST", "/api/oot/callback", data=body, headers=headers)
    assert (status, answer.get("status")) == ((200, "ignored") if preset else (400, None))


ODD = {  # what is sent -> what is stored of it, and the flags
    "no conclusion": ({"conclusion": None}, {"conclusion": "neutral"}, {"no_conclusion"}),
    "an empty conclusion": ({"conclusion": ""}, {"conclusion": "neutral"}, {"no_conclusion"}),
    "a word GitHub does not know": ({"conclusion": "broken"}, {"conclusion": "neutral"}, {"no_conclusion"}),
    "counts as texts": ({"test_results": {"passed": "10", "failed": 0.0}}, {"passed_tests": 10, "failed_tests": 0}, ()),
    "a count that is none": (
        {"test_results": {"passed": "many", "failed": -1, "skipped": 2}},
        {"passed_tests": None, "failed_tests": None, "skipped_tests": 2},
        {"counts_dropped"},
    ),
    "results that are a list": ({"test_results": [1]}, {"passed_tests": None}, {"test_results_dropped"}),
    "failed tests as names": (
        {"failed_tests_detail": ["test_add", 3, {"classname": "no name"}]},
        {"failed_tests_json": [{"name": "test_add"}, {"name": "3"}]},
        {"failed_tests_dropped"},
    ),
    "an environment in a line": ({"environment": "driver 24.1"}, {"environment": None}, {"environment_dropped"}),
    "an artifact that is no address": ({"artifact_url": 7}, {"artifact_url": None}, {"artifact_url_dropped"}),
    "an attempt that is none": ({"run_attempt": "-1"}, {"run_attempt": 1}, {"run_attempt_dropped"}),
}  # fmt: skip


@WITH_AND_WITHOUT
@pytest.mark.parametrize("case", ODD)
async def test_what_is_odd_is_flagged_or_refused(bot, pull, preset, case):
    sent, stored, flags = ODD[case]
    step = client.of(bot, bot.dispatch(L2))
    if not preset:
        with pytest.raises(StepFailedError) as caught:
            await step.post(
                step.client_payload | {"workflow": step.fields("completed", "success", {}) | sent}
            )
        assert (caught.value.status, caught.value.answer["error"]) == (400, "invalid_report")
        return
    await step.post(step.client_payload | {"workflow": step.fields("completed", "success", {}) | sent})
    (job,) = await jobs(bot, L2)
    assert {name: job[name] for name in stored} | {"conclusion": job["conclusion"]} == (
        {"conclusion": "success"} | stored
    )
    assert set(job["flags"]) == {"no_start", *flags}


async def test_a_job_that_did_not_say_how_it_ended_never_lets_a_commit_pass(bot, github, pull):
    run = await github.start_run(L4)
    step = client.of(bot, bot.dispatch(L4), run_id=str(run.id))
    other = Client(bot, L4, step.client_payload, job="test", run_id=step.run_id)
    await step.ended("")
    await other.ended("success")
    await github.finish_run(run, "success")
    await bot.wait(120)
    checks = bot.checks(UPSTREAM, pull.head_sha)
    assert checks["oot / gate"][1] == "failure"


async def test_lone_surrogates_are_read(bot, pull):
    step = client.of(bot, bot.dispatch(L2))
    await step.ended("failure", environment={"file": "\ud800.py"})
    (job,) = await jobs(bot, L2)
    assert job["environment"] == {"file": "?.py"}


# nightly


@WITH_AND_WITHOUT
async def test_a_nightly_may_have_any_id(bot, preset):
    step = Client(bot, L2, run_id="8d0c-41")
    if not preset:
        with pytest.raises(StepFailedError):
            await step.nightly("buildkite-41-test-npu")
        return
    for _ in range(2):
        await step.nightly("buildkite-41-test-npu", "failure")
    (job,) = await jobs(bot, L2)
    assert (job["head_sha"], job["delivery_id"], job["upstream_repo"]) == (
        None,
        "buildkite-41-test-npu",
        UPSTREAM,
    )
    assert job["flags"] == {"no_commit": True, "no_start": True}
    _, summary = await bot.get("/api/oot/summary?event=nightly")
    assert [(one["repo"], one["failure"]) for one in summary["backends"] if one["runs"]] == [(L2, 1)]
    _, page = await bot.get(f"/oot/{L2}?tab=nightly")
    assert "build" in page


async def test_a_nightly_that_says_otherwise_is_a_repetition(bot):
    step = Client(bot, L2)
    await step.nightly("any text", "failure")
    assert (await step.nightly("any text", "success"))["duplicate"]
    (job,) = await jobs(bot, L2)
    assert job["conclusion"] == "failure"
