"""Two jobs of one name are two: what failed and never passed is red, whatever passed beside it."""

from __future__ import annotations

import pytest

from bot.jobs.grid import key_of_column
from tests.harness import START, UPSTREAM
from tests.jobs.branch import COMMITS, MINUTE, deliver, iso, job, push, run
from tests.jobs.test_hud import API, HUD
from tests.pages.page_checks import page_text
from tests.serving import SQLITE

LAST_GOOD = f"/api/ci/{UPSTREAM}/last-good"
QUEUE = f"/api/ci/queue/{UPSTREAM}"


async def cells_of(bot, name="pull / build"):
    """The newest commit's verdict, and its cell of a job."""
    body = (await bot.get(API))[1]
    place = next(str(at) for at, column in enumerate(body["columns"]) if column["name"] == name)
    line = body["lines"][0]
    cell = line["cells"].get(place, {})
    return line["verdict"], cell.get("c"), cell.get("n")


@pytest.mark.logic
async def test_a_job_that_failed_is_red_though_one_of_another_workflow_of_this_name_passed(bot):
    await deliver(
        bot, push(bot, "A"),
        run(bot, "A", number=77, workflow_id=1, conclusion="failure"), run(bot, "A", number=78, workflow_id=2),
        job(bot, "build", "A", "failure", number=1, run=77), job(bot, "build", "A", number=2, run=78),
    )  # fmt: skip
    assert await cells_of(bot) == ("red", "X", [1, 2])
    page = await page_text(bot, f"{HUD}?cell={COMMITS['A'][:12]}.{key_of_column('pull / build')}")
    assert "in 1 of 2 jobs of this name" in page
    await deliver(bot, job(bot, "build", "A", number=3, run=77, attempt=2, at=9))
    assert await cells_of(bot) == ("green", "F", [1, 2])


@SQLITE
@pytest.mark.parametrize(
    ("attempts", "expected"),
    [
        (["fail 1, pass 2"], ("red", "X", [1, 2])),
        (["fail 1, pass 2", "pass 3"], ("green", "F", [1, 2])),  # what had failed was run again
        (["pass 1, fail 2", "copy 3, pass 4"], ("green", "F", [1, 2])),
        (["pass 1, fail 2", "fail 3, copy 4"], ("red", "X", [1, 2])),  # in another order
        (["fail 1, pass 2", "fail 3, pass 4"], ("red", "X", [1, 2])),
        (["fail 1, fail 2", "pass 3"], ("red", "X", [1, 2])),
        (["pass 1, pass 2"], ("green", "O", [2, 2])),
    ],
)
async def test_two_jobs_of_one_name_in_a_run(bot, attempts, expected):
    deliveries = [push(bot, "A"), run(bot, "A", conclusion="failure")]
    for attempt, each in enumerate(attempts, 1):
        for text in each.split(", "):
            word, number = text.split()
            at = 0 if word == "copy" else attempt * 10 + int(number)
            conclusion = "failure" if word == "fail" else "success"
            deliveries.append(
                job(bot, "build", "A", conclusion, number=int(number), attempt=attempt,
                    at=11 if word == "copy" and attempts[0].startswith("pass") else at)
            )  # fmt: skip
    await deliver(bot, *reversed(deliveries))
    assert await cells_of(bot) == expected


@SQLITE
async def test_what_never_passed_is_no_good_commit(bot):
    await deliver(
        bot, push(bot, "A"), push(bot, "B", parent="A", at=9),
        job(bot, "build", "A"),
        job(bot, "build", "B", "failure", number=5), job(bot, "build", "B", number=6),
    )  # fmt: skip
    assert (await bot.get(LAST_GOOD))[1]["sha"] == COMMITS["A"]


@pytest.mark.logic
async def test_a_failure_in_a_run_that_succeeded_is_allowed(bot):
    await deliver(
        bot, push(bot, "A"), job(bot, "build", "A", number=1), job(bot, "nightly torch", "A", "failure", number=2),
    )  # fmt: skip
    assert await cells_of(bot, "pull / nightly torch") == ("red", "X", None)  # the run goes on
    await deliver(bot, run(bot, "A"))
    assert await cells_of(bot, "pull / nightly torch") == ("green", "A", None)
    assert "failure, which is allowed" in (await bot.get(HUD))[1]
    status, body = await bot.get(LAST_GOOD)
    assert (status, body["columns"]) == (200, 2)
    await bot.wait(60)
    jobs = (await bot.get(f"/api/ci/reliability/{UPSTREAM}"))[1]["jobs"]
    assert [(one["name"], one["runs"], one["passed"]) for one in jobs] == [("pull / build", 1, 1)]


@SQLITE
@pytest.mark.parametrize(("conclusion", "expected"), [("success", ("green", "S")), ("failure", ("red", "C"))])
async def test_a_job_that_github_leaves_queued_ends_with_its_run(bot, conclusion, expected):
    await deliver(
        bot, push(bot, "A"), job(bot, "build", "A", number=1), job(bot, "docs", "A", "", status="queued", number=2),
    )  # fmt: skip
    assert (await cells_of(bot, "pull / docs"))[:2] == ("running", "Q")
    bot.clock.advance(27 * 3600)
    assert [one["waiting"] for one in (await bot.get(QUEUE))[1]["runners"]] == [1]
    await deliver(bot, run(bot, "A", conclusion=conclusion))
    assert (await cells_of(bot, "pull / docs"))[:2] == expected
    assert [one["waiting"] for one in (await bot.get(QUEUE))[1]["runners"]] == [0]


@pytest.mark.logic
async def test_a_job_that_waits_for_an_approval_waits_for_no_runner(bot):
    await deliver(
        bot, push(bot, "A"), job(bot, "build", "A", number=1), job(bot, "deploy", "A", "", status="waiting", number=2),
    )  # fmt: skip
    bot.clock.advance(3 * 3600)
    assert not [one for one in (await bot.get(QUEUE))[1]["runners"] if one["waiting"]]
    _, body = job(bot, "deploy", "A", number=2)
    body["workflow_job"]["started_at"] = iso(START + 170 * MINUTE)
    body["workflow_job"]["completed_at"] = iso(START + 175 * MINUTE)
    await deliver(bot, ("workflow_job", body))
    await bot.wait(60)
    (runner,) = (await bot.get(QUEUE))[1]["runners"]
    assert (runner["jobs"], sum(runner["queue_counts_week"]), runner["queue_p90"]) == (
        2,
        1,
        runner["queue_p50"],
    )


@SQLITE
async def test_a_job_that_no_runner_took_has_no_queue_time(bot):
    deliveries = [job(bot, f"job {at}", "A", conclusion, number=at) for at, conclusion in
                  enumerate(("success", "skipped", "cancelled"), 1)]  # fmt: skip
    for _, body in deliveries[1:]:
        body["workflow_job"]["started_at"] = body["workflow_job"]["completed_at"]
    await deliver(bot, push(bot, "A"), *deliveries)
    await bot.wait(60)
    (runner,) = (await bot.get(QUEUE))[1]["runners"]
    assert (runner["jobs"], sum(runner["queue_counts_week"])) == (3, 1)


@pytest.mark.logic
async def test_what_a_rerun_lists_again_is_counted_once(bot):
    await deliver(
        bot, push(bot, "A"), job(bot, "build", "A", number=1), job(bot, "test", "A", "failure", number=2),
        job(bot, "build", "A", number=11, attempt=2), job(bot, "test", "A", number=12, attempt=2, at=30),
    )  # fmt: skip
    await bot.wait(60)
    whole = (await bot.get(f"/api/ci/metrics/{UPSTREAM}"))[1]["whole"]
    assert (whole["jobs"], whole["reruns"], whole["job_seconds"]) == (3, 1, 3 * 4 * 60)
    jobs = (await bot.get(f"/api/ci/reliability/{UPSTREAM}"))[1]["jobs"]
    assert {one["name"]: one["job_seconds"] for one in jobs} == {"pull / build": 240, "pull / test": 480}
    (runner,) = (await bot.get(QUEUE))[1]["runners"]
    assert runner["jobs"] == 3
    found = (await bot.get(f"/{UPSTREAM}/commit/{COMMITS['A']}"))[1]
    drawn = found[found.index("When jobs waited and ran") :]
    assert '/job/1"' in drawn
    assert '/job/11"' not in drawn
