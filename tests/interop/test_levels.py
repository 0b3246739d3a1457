"""Levels as today's tools ask for them: who is to be demoted, by which criteria, and what lowered the numbers."""

from __future__ import annotations

import pytest

from tests.harness import L2, L3, UPSTREAM
from tests.interop import client
from tests.interop.client import Client
from tests.samples import nightly

pytestmark = pytest.mark.logic

HOUR = 3600


async def run(bot, github, *conclusions, repo=L3, wait=60, took=600, **inputs):
    """Open a pull request, and report on a job of one run for each conclusion."""
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    bot.clock.advance(wait)
    payload = bot.dispatch(repo).client_payload
    steps = [
        Client(bot, repo, payload, job=f"job-{at}", run_id=str(900 + pull.number), audience="ootbot")
        for at in range(len(conclusions))
    ]
    for step in steps:
        await step.started()
    bot.clock.advance(took)
    for step, conclusion in zip(steps, conclusions, strict=True):
        await step.ended(conclusion, **(inputs if conclusion == "failure" else {}))
    await bot.settle()
    return pull


async def status_of(bot, repo=L3):
    status, answer = await bot.get("/api/crcr/level-status")
    assert status == 200
    assert [one["repo"] for one in answer["repos"]] == [repo]
    return answer["repos"][0]


async def test_silence_is_said_and_demotes_nobody(bot):
    found = await status_of(bot)
    assert found == {
        "repo": L3, "level": "L3", "change": None, "noData": True, "windowDays": 7, "sharedFailures": 0,
        "criteria": [
            {"criterion": "End-to-End Time (P50)", "measured": "–", "target": "< 3 h", "met": None},
            {"criterion": "Timeout Rate", "measured": "–", "target": "< 1%", "met": None},
            {"criterion": "Job Pass Rate", "measured": "–", "target": "≥ 90%", "met": None},
        ],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("conclusions", "took", "missed"),
    [
        (["success"] * 9 + ["failure"], 600, set()),
        nightly(["success"] * 8 + ["failure"] * 2, 600, {"Job Pass Rate"}),
        nightly(["success"] * 19 + ["timed_out"], 600, {"Timeout Rate"}),
        (["success"] * 3, 4 * HOUR, {"End-to-End Time (P50)"}),
    ],
    ids=["kept", "pass rate", "timeouts", "time"],
)
async def test_one_missed_criterion_calls_for_demotion(bot, github, conclusions, took, missed):
    await run(bot, github, *conclusions, took=took)
    found = await status_of(bot)
    assert {one["criterion"] for one in found["criteria"] if one["met"] is False} == missed
    assert found["change"] == ("demote" if missed else None)
    assert not found["noData"]
    bot.clock.advance(8 * 24 * HOUR)
    await bot.settle()
    assert (await status_of(bot))["noData"]


async def test_the_page_names_what_lowered_the_numbers_and_the_levels_so_far(bot, github):
    pull = await run(bot, github, "success", "failure", "timed_out")
    _, page = await bot.get(f"/oot/{L3}")
    block = page.partition("What lowered its pass rate in the last 7 days")[2]
    assert f"job-1 on #{pull.number}: failure" in block
    assert f"job-2 on #{pull.number}: timed out" in block
    assert "job-0" not in block.partition("</ul>")[0]
    assert f"https://github.com/{L3}/actions/runs/{900 + pull.number}" in block
    await bot.list_backends(f"L2: [{L3}]")
    _, page = await bot.get(f"/oot/{L3}")
    levels = page.partition("Levels so far")[2]
    assert levels.index("L2 since 2026-") < levels.index("L3 since 2026-")


@pytest.mark.parametrize("preset", ["crcr", None])
async def test_the_criteria_of_the_relay_are_beside_ours_under_the_preset(bot, github, preset):
    await run(bot, github, "success", wait=31 * 60, repo=L2)
    _, page = await bot.get("/oot/levels")
    assert ("L3 by the relay's criteria: 14 days" in page.replace("&#39;", "'")) is bool(preset)
    if preset:
        row = next(row for row in page.partition('id="relay"')[2].split("<tr>") if f"/oot/{L2}" in row)
        assert "31 min" in row
        assert row.count('class="bad"') == 2  # the queue, and the time at L2


@pytest.mark.parametrize("preset", ["crcr", None])
async def test_the_first_job_of_a_run_alone_has_waited(bot, github, preset):
    await run(bot, github, "success", "success", "success")
    jobs = sorted(await bot.rows("oot_workflow_job"), key=lambda row: row["job_name"])
    waits = [row["queue_time"] is not None for row in jobs]
    assert waits == ([True, False, False] if preset else [True] * 3)
    assert round(jobs[0]["queue_time"]) == 60


async def test_a_run_that_never_started_is_dispatched_again_on_request(bot, github):
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    await bot.wait(25 * HOUR)
    before = len(github.dispatches)
    lost = {row["backend"] for row in await bot.rows("oot_dispatch") if row["state"] == "never_started"}
    assert lost
    await github.comment(pull, "/oot rerun", by="octocat")
    await bot.settle()
    again = {one.repo.full_name for one in github.dispatches[before:]}
    assert again == lost
    repo = lost.pop()
    step = client.of(bot, bot.dispatch(repo))
    await step.ended()
    await bot.settle()
    assert [row["conclusion"] for row in await bot.rows("oot_workflow_job")] == ["success"]
