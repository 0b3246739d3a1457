"""Jobs in parts: several artifacts of one are merged once; suites and jobs that run fewer tests than before."""

from __future__ import annotations

import itertools

import pytest
import sqlalchemy as sa

from bot.evidence.collect import backfill, fetches
from bot.evidence.tests.tables import test_part
from tests.evidence.tests.reported import JOB, case, jsonl, known_tests, leave, outcomes, ran, xml
from tests.harness import L3, UPSTREAM
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
ARTIFACTS = (("test-reports-one", FIRST), ("test-reports-two", SECOND), ("torchci-reports", RUNS))
UNTIL_JUDGED = 1500
SHARDS = [JOB.replace("1, 2", f"{shard}, 2") for shard in (1, 2)]


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


def cases(count, *, suite="TestOps", skipped=0):
    return [
        case(f"test_{number:02}", "skipped" if number < skipped else "passed", suite=suite)
        for number in range(count)
    ]


async def push(bot, github, first, *, second=None, conclusion="success", extra=None, **run):
    """A run of two shards; the first leaves these cases, the second always the same."""
    bot.clock.advance(3600)
    if not run:
        await github.push(UPSTREAM)
    made = await github.start_run(UPSTREAM, event=run.pop("event", "push"), **run)
    for name, some in zip(SHARDS, (first, second or cases(10, suite="TestOther")), strict=True):
        job = await github.start_job(made, name)
        files = {"a.xml": xml(*some)} | (extra or {})
        github.add_artifact(made, f"test-reports-{name.split('(')[1].split(',')[1].strip()}_{job.id}", files)
        await github.finish_job(job, conclusion)
    await github.finish_run(made, conclusion)
    await bot.settle(horizon=UNTIL_JUDGED)
    return made


async def lost(bot, repo=UPSTREAM):
    status, answer = await bot.get(f"/api/ci/lost-tests/{repo}")
    assert status == 200
    return [(one["kind"], one["suite"], one["tests_before"], one["tests"]) for one in answer["lost"]]


async def test_a_suite_that_runs_a_fifth_fewer_tests_is_told_with_those_that_are_gone(bot, github):
    await push(bot, github, cases(40))
    assert await lost(bot) == []
    await push(bot, github, cases(32))
    assert sorted(await lost(bot)) == [("gone", "", 50, 42), ("lost", "TestOps", 40, 32)]
    _, answer = await bot.get(f"/api/ci/lost-tests/{UPSTREAM}")
    gone = next(one for one in answer["lost"] if one["kind"] == "gone")
    assert (gone["gone"], len(gone["examples"])) == (8, 8)
    for page in (f"/{UPSTREAM}/tests/lost", f"/{UPSTREAM}/commit/{gone['sha']}"):
        _, shown = await bot.get(page)
        assert "32 of 40 tests are left" in shown
        assert "8 tests are gone" in shown
        assert "test_32" in shown
    _, changes = await bot.get(f"/{UPSTREAM}/commit/{gone['sha']}/tests?base={gone['base']}")
    assert "test_39" in changes
    await push(bot, github, cases(32))  # it stays so: that is no news
    assert len(await lost(bot)) == 2


async def test_files_of_other_kinds_do_not_keep_lost_tests_from_being_told(bot, github):
    coverage = b"<?xml version='1.0'?><!DOCTYPE coverage SYSTEM 'coverage-04.dtd'><coverage/>"
    extra = {"coverage.xml": coverage, "pom.xml": b"<project/>"}
    await push(bot, github, cases(40), extra=extra)
    run = await push(bot, github, cases(32), extra=extra)
    assert ("lost", "TestOps", 40, 32) in await lost(bot)
    _, page = await bot.get(f"/{UPSTREAM}/run/{run.id}/tests")
    assert "unreadable" not in page
    assert "no report of tests: it begins with &lt;coverage&gt;" in page


async def test_a_share_of_skipped_tests_that_jumps_is_told(bot, github):
    await push(bot, github, cases(40, skipped=4))
    await push(bot, github, cases(40, skipped=11))
    assert await lost(bot) == []
    await push(bot, github, cases(40, skipped=19))
    assert await lost(bot) == [("skipped", "TestOps", 40, 40)]


async def test_fewer_than_a_fifth_and_small_suites_are_not_told(bot, github):
    await push(bot, github, [*cases(40), *cases(4, suite="TestFew")])
    await push(bot, github, [*cases(33), *cases(1, suite="TestFew")])
    assert [one for one in await lost(bot) if one[0] != "gone"] == []


@pytest.mark.parametrize(
    "why",
    [
        pytest.param("a shard", marks=pytest.mark.nightly),
        pytest.param("failed", marks=pytest.mark.nightly),
        "unreadable",
        "pull request",
    ],
)
async def test_runs_that_are_not_complete_or_not_trusted_say_nothing(bot, github, why):
    fork = github.add_repo("someone/pytorch", install=[])
    await push(bot, github, cases(40))
    if why == "a shard":
        bot.clock.advance(3600)
        await github.push(UPSTREAM)
        await ran(github, {"a.xml": xml(*cases(5))}, name=SHARDS[0])
        await bot.settle(horizon=UNTIL_JUDGED)
    elif why == "failed":
        await push(bot, github, cases(5), conclusion="failure")
    elif why == "unreadable":
        await push(bot, github, cases(5), extra={"b.xml": b"<testsuite><testc"})
    else:
        await push(bot, github, cases(5), event="pull_request", head_repo=fork, head_branch="main")
    assert await lost(bot) == []


async def test_a_backend_of_a_pull_request_is_held_against_its_own_trusted_runs(bot, github):
    for count, event in ((20, "push"), (10, "repository_dispatch")):
        bot.clock.advance(3600)
        pull = await github.open_pull(UPSTREAM) if event == "repository_dispatch" else None
        await bot.settle()
        run = await github.start_run(L3, event=event)
        job = await github.start_job(run, JOB.replace("1, 2, ", ""))
        if pull:
            await bot.report(bot.dispatch(L3), run_id=str(run.id))
        await leave(github, run, job, {"a.xml": xml(*cases(count))})
        await bot.settle(horizon=UNTIL_JUDGED)
    assert ("lost", "TestOps", 20, 10) in await lost(bot, L3)
    _, page = await bot.get(f"/{UPSTREAM}/pull/{pull.number}")
    assert "10 of 20 tests are left" in page
