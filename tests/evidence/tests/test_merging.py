"""Several artifacts of a job: merged once, whatever comes first and however often."""

from __future__ import annotations

import itertools

import sqlalchemy as sa

from bot.evidence.collect import backfill, fetches
from bot.evidence.tests.tables import test_part
from tests.evidence.tests.reported import JOB, case, jsonl, known_tests, outcomes, xml
from tests.harness import UPSTREAM
from tests.serving import SQLITE

pytestmark = SQLITE
HORIZON = 120
FIRST = {"a.xml": xml(case("test_a"), case("test_b", "failed")), "c.xml": xml(case("test_c"))}
SECOND = {"b.xml": xml(case("test_b")), "c.xml": FIRST["c.xml"]}  # a second try, and a report sent twice
RUNS = {
    "r.report.jsonl": jsonl(("ops2.py", "S", "test_r", "failed", 0), ("ops2.py", "S", "test_r", "passed", 1))
}
MERGED = [
    ("test_a", "passed", 1, 250),
    ("test_b", "failed", 1, 250),  # in one report, and passed in another: a failure never disappears
    ("test_c", "passed", 1, 250),
    ("test_r", "passed", 2, 50),
]


async def begun(github):
    run = await github.start_run(UPSTREAM, event="push")
    job = await github.start_job(run, JOB)
    await github.finish_job(job, "success")
    await github.finish_run(run, "success")
    return run, job


async def list_again(bot, run):
    """Look for artifacts that came late."""
    async with bot.store.transaction() as tx:
        tx.enqueue("artifacts", fetches.run_key(UPSTREAM, run.id, 1))
    await bot.settle(horizon=HORIZON)


async def test_the_order_of_artifacts_does_not_matter(bot, github):
    """Every order on a run of its own; all come to the same."""
    for order in itertools.permutations(ARTIFACTS):
        run, job = await begun(github)
        await bot.settle(horizon=HORIZON)
        for name, files in order:
            github.add_artifact(run, f"{name}_{job.id}", files)
            await list_again(bot, run)
        assert await outcomes(bot, run_id=run.id) == MERGED
        rows = {row["run_id"]: row for row in await bot.rows("test_job")}
        row = rows[run.id]
        assert (row["tests"], row["flaky"], row["files"]) == (4, 1, 5), order
        names = await known_tests(bot)
        failures = [one for one in await bot.rows("test_failure") if one["generation"] == row["generation"]]
        assert sorted((names[one["test_id"]][2], one["outcome"], one["attempts"]) for one in failures) == [
            ("test_b", 2, 1), ("test_r", 1, 2),
        ]  # fmt: skip
    generations = {row["generation"] for row in await bot.rows("test_job")}
    assert {row["generation"] for row in await bot.rows("test_failure")} == generations  # no former ones
    assert len(await bot.rows("test")) == 4


async def test_collecting_again_changes_nothing(bot, github):
    run, job = await begun(github)
    for name, files in ARTIFACTS:
        github.add_artifact(run, f"{name}_{job.id}", files)
    await bot.settle(horizon=HORIZON)
    before = await bot.rows("test_job")
    await bot.settle(horizon=HORIZON)
    asked = await backfill.collect_run(bot.context, UPSTREAM, run.id)
    assert asked.run_id == run.id
    await bot.settle(horizon=HORIZON)
    assert len(before) == 1
    assert await bot.rows("test_job") == before  # not even made again
    assert len(await bot.rows("test_failure")) == 2


async def test_artifacts_that_name_no_job_are_jobs_of_their_own(bot, github):
    """The same test fails in one of them and passes in the other: nothing is flaky for that."""
    run, _ = await begun(github)
    for name, outcome in (("junit-py310", "passed"), ("junit-py311", "failed")):
        github.add_artifact(run, name, {"a.xml": xml(case("test_a", outcome))})
    await bot.settle(horizon=HORIZON)
    rows = {row["name"]: row for row in await bot.rows("test_job")}
    assert {name: (row["passed"], row["failed"], row["flaky"]) for name, row in rows.items()} == {
        "junit-py310": (1, 0, 0), "junit-py311": (0, 1, 0),
    }  # fmt: skip
    assert all(row["job_id"] < 0 for row in rows.values())


async def test_a_run_report_names_its_job_only_among_those_of_the_run(bot, github):
    run, job = await begun(github)
    said = ("a.py", "S", "t", "passed")
    github.add_artifact(run, "torchci-reports-x", {"r.report.jsonl": jsonl(said, uuid="a", job_id=job.id)})
    github.add_artifact(
        run, "torchci-reports-y", {"r.report.jsonl": jsonl(said, uuid="b", job_id=99_000_001)}
    )
    await bot.settle(horizon=HORIZON)
    found = {row["job_id"]: row["name"] for row in await bot.rows("test_job")}
    assert found.pop(job.id) == JOB
    assert list(found.values()) == ["torchci-reports-y"]


async def test_run_reports_of_a_job_are_ordered_by_when_they_began(bot, github):
    run, job = await begun(github)
    for name, outcome, at in (("b", "failed", 1000), ("a", "passed", 2000)):
        report = jsonl(("a.py", "S", "t", outcome), uuid=name, at=at, accelerator=name)
        github.add_artifact(run, f"torchci-reports-{name}-{job.id}", {f"{name}.report.jsonl": report})
    await bot.settle(horizon=HORIZON)
    (row,) = await bot.rows("test_job")
    assert (row["passed"], row["failed"], row["flaky"]) == (1, 0, 1)
    assert [env["accelerator"] for env in await bot.rows("test_env")] == ["b"]


async def test_the_same_report_in_two_artifacts_is_one(bot, github):
    run, job = await begun(github)
    report = jsonl(("a.py", "S", "t", "failed"), uuid="same", job_id=job.id)
    for name in ("one", "two"):
        github.add_artifact(run, f"torchci-reports-{name}_{job.id}", {f"{name}.report.jsonl": report})
    await bot.settle(horizon=HORIZON)
    assert await outcomes(bot) == [("t", "failed", 1, 50)]


ARTIFACTS = (("test-reports-one", FIRST), ("test-reports-two", SECOND), ("torchci-reports", RUNS))


async def test_reports_read_by_earlier_rules_are_read_again_while_the_artifact_is_there(bot, github, clock):
    run, job = await begun(github)
    await bot.settle(horizon=HORIZON)
    github.add_artifact(run, f"test-reports_{job.id}", {"a.xml": xml(case("test_a"))})
    await list_again(bot, run)
    async with bot.store.transaction() as tx:
        await tx.run(sa.update(test_part).values(rules=1))
    (before,) = await bot.rows("test_part")
    clock.advance(3_700)
    await bot.settle(horizon=6_000)
    (after,) = await bot.rows("test_part")
    assert (after["rules"], after["received_at"] > before["received_at"]) == (2, True)
