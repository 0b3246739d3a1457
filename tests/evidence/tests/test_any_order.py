"""Facts in any order, late, twice and after a crash: the same rows and daily sums; and how long they are kept."""

from __future__ import annotations

import itertools
import random

import pytest
import sqlalchemy as sa

from bot.db.rows import metadata
from bot.demo.github.serializers import actions
from bot.demo.github.serializers.repository import repository as show
from bot.evidence.collect import blobs, fetches
from bot.evidence.tests import days as count_days
from bot.evidence.tests import days as day_counts
from bot.evidence.tests import job_parts
from bot.evidence.tests.days import Counts
from bot.evidence.tests.parse import block
from bot.evidence.tests.parse.block import Code
from bot.evidence.tests.rows import GENERATIONS
from bot.evidence.tests.tables import test_failure, test_job, test_summary
from bot.ingest.tables import records
from tests.evidence.tests.reported import (
    JOB,
    JOBS,
    case,
    known_tests,
    leave,
    ran,
    reports,
    run_report,
    shown,
    xml,
)
from tests.harness import L3, UPSTREAM
from tests.serving import SQLITE

HORIZON = 3600
MADE = (
    "test_failure", "test_summary", "test_job", "test_part", "test_day", "test", "test_class", "test_state",
)  # fmt: skip
DAY = 86_400
REPORT = {"a.xml": xml(case("test_a"), case("test_b", "failed"), case("test_c", "flaky"))}
UNTIL_COUNTED = 900
DAY_MS = 86_400_000
FILES = [f"test_{letter}.py" for letter in "abcd"]


@pytest.mark.logic
async def test_every_order_of_artifacts_comes_to_the_same(bot, github):
    """Three jobs of a trusted run, each with two artifacts, stored one by one in some of their orders."""
    run = await github.start_run(UPSTREAM, event="push")
    jobs = [await github.start_job(run, JOB.replace("default", letter)) for letter in JOBS]
    for letter, job in zip(JOBS, jobs, strict=True):
        github.add_artifact(run, f"test-reports-{letter}_{job.id}", reports(letter))
        github.add_artifact(run, f"torchci-reports-{letter}_{job.id}", run_report(letter))
        await github.finish_job(job, "success")
    await github.finish_run(run, "success")
    await bot.settle(horizon=HORIZON)
    first = await _shown(bot)
    assert len(first["jobs"]) == 3
    assert len(first["days"]) == len(first["tests"]) + 2  # test_one ran in three environments
    parts = await bot.rows("test_part")
    for order in itertools.islice(itertools.permutations(parts), 0, 720, 190):
        async with bot.store.transaction() as tx:
            for table in MADE:
                await tx.run(sa.delete(metadata.tables[table]))
        for part in order:  # one after the other, as if each came alone
            async with bot.store.transaction() as tx:
                await tx.run(sa.insert(metadata.tables["test_part"]).values(part))
                key = "/".join(
                    str(part[name]) for name in ("repository_id", "run_id", "run_attempt", "job_id")
                )
                tx.enqueue("test_results", key)
            await bot.settle(horizon=300)
        await bot.settle(horizon=HORIZON)
        assert await _shown(bot) == first


async def _shown(bot):
    kept = {name: await bot.rows(name) for name in metadata.tables if name.startswith("test")}
    return shown(kept.__getitem__)


async def count(bot, *tables):
    return [len(await bot.rows(table)) for table in tables]


async def test_results_go_in_their_time(bot, github):
    await ran(github, REPORT)
    await bot.settle(horizon=HORIZON)
    store = blobs.open_blobs(bot.context.settings)
    assert len([one async for one in store.list()]) == 1
    bot.clock.advance(15 * DAY)
    await job_parts.prune_results(bot.context)
    assert [one async for one in store.list()] == []  # a job's artifacts have long come
    assert await count(bot, "test_failure", "test_summary", "test_job", "test") == [2, 1, 1, 3]
    (row,) = await bot.rows("test_job")
    assert row["block"] is not None
    bot.clock.advance(170 * DAY)
    await job_parts.prune_results(bot.context)
    assert await count(bot, "test_failure", "test_summary", "test_job", "test", "test_day") == [0, 0, 1, 3, 1]
    (row,) = await bot.rows("test_job")
    assert (row["block"], row["tests"]) == (None, 3)
    bot.clock.advance(300 * DAY)
    await job_parts.prune_results(bot.context)
    assert await count(bot, "test_job", "test_part", "test", "test_class", "test_day") == [0, 0, 0, 0, 0]


async def test_what_a_crash_left_half_written_is_not_shown_and_goes(bot, github):
    await ran(github, REPORT)
    await bot.settle(horizon=HORIZON)
    async with bot.store.transaction() as tx:
        for table in (test_failure, test_summary):
            (row,) = (await tx.rows(sa.select(table)))[:1]
            await tx.run(sa.insert(table).values(row | {"generation": tx.now * GENERATIONS + 5}))
    _, answer = await bot.get(f"/api/ci/runs/{UPSTREAM}/{(await bot.rows('test_job'))[0]['run_id']}/tests")
    assert len(answer["failures"]) == 2
    bot.clock.advance(2 * DAY)
    await job_parts.prune_results(bot.context)
    assert await count(bot, "test_failure", "test_summary") == [2, 1]


@pytest.mark.logic
async def test_a_job_that_is_recorded_after_its_reports_names_them(bot, github):
    run, job = await ran(github, REPORT)
    await bot.settle(horizon=HORIZON)
    recorded = records["workflow_job"]
    async with bot.store.transaction() as tx:  # as if the job's deliveries were late
        await tx.run(sa.update(test_job).values(name="?", family="?"))
        await tx.run(sa.delete(recorded).where(recorded.c.id == job.id))
    body = actions.job(github.state, job)
    repository = show(github.state, github.state.repo(UPSTREAM))
    await bot.send("workflow_job", {"action": "completed", "workflow_job": body, "repository": repository})
    await bot.settle(horizon=HORIZON)
    (row,) = await bot.rows("test_job")
    assert (row["run_id"], row["name"], row["tests"]) == (run.id, JOB, 3)
    assert await count(bot, "test_failure") == [2]


@pytest.mark.logic
async def test_a_run_whose_dispatch_is_reported_later_is_tied_to_it(bot, github):
    await github.open_pull(UPSTREAM)
    await bot.settle()
    dispatch = bot.dispatch(L3)
    run, _ = await ran(github, REPORT, repo=L3, event="repository_dispatch")
    await bot.settle(horizon=HORIZON)
    (row,) = await bot.rows("test_job")
    assert (row["backend"], row["upstream_sha"], row["trusted"]) == (L3, None, False)
    status, _ = await bot.report(dispatch, status="completed", conclusion="failure", run_id=str(run.id))
    assert status == 200
    await bot.settle(horizon=HORIZON)
    (row,) = await bot.rows("test_job")
    head = dispatch.client_payload["payload"]["pull_request"]["head"]["sha"]
    assert (row["upstream_repo"], row["upstream_sha"], row["pr_number"]) == (UPSTREAM, head, 1)
    assert {one["head_sha"] for one in await bot.rows("test_failure")} == {head}
    assert len(await known_tests(bot)) == 3


def job(*outcomes, flaky=False, time=20):
    return block.encode(
        (number, block.code_of(outcome, 1, flaky=flaky), time) for number, outcome in enumerate(outcomes, 5)
    )


def pages(*jobs):
    """What pages hold after some jobs (block, group, sign), each counted by itself."""
    stored = {}
    for content, group, sign in jobs:
        changes = day_counts.no_changes()
        day_counts.add_block(changes, content, group, sign)
        for page, groups in changes.items():
            stored[page] = day_counts.changed_page(stored.get(page), groups)
    return {page: content for page, content in stored.items() if content is not None}


def test_outcomes_are_counted_and_times_summed():
    stored = pages(
        (job(Code.PASSED, Code.FAILED, Code.SKIPPED, Code.XFAILED), "linux", 1),
        (job(Code.PASSED, Code.ERROR, flaky=True, time=block.NO_TIME), "linux", 1),
    )
    found = {test_id: counts for test_id, _, counts in day_counts.counts_of_tests(stored[0], range(5, 20))}
    assert found == {
        5: Counts(runs=2, flaky=1, units=2),
        6: Counts(runs=2, failed=1, erred=1, flaky=1, units=2),
        7: Counts(runs=1, skips=1, units=2),
        8: Counts(runs=1, units=2),
    }
    assert (found[5].passed, found[6].passed, found[5].time_ms) == (2, 0, 20)


def test_no_order_and_nothing_taken_away_again_makes_a_difference():
    chance = random.Random(3)
    jobs = [
        (
            block.encode(
                (test_id, block.code_of(chance.choice([1, 1, 1, 2, 3, 4, 5]), 1, flaky=chance.random() < 0.1), 1230)
                for test_id in chance.sample(range(1, 30_000), 200)
            ),
            f"group {number % 3}",
            1,
        )
        for number in range(12)
    ]  # fmt: skip
    once = pages(*jobs)
    assert len(once) > 3
    shuffled = chance.sample(jobs, len(jobs))
    extra = (job(Code.FAILED, Code.PASSED), "other", 1)
    assert pages(extra, *shuffled, (extra[0], "other", -1)) == once
    assert pages(*jobs, *((content, group, -1) for content, group, _ in jobs)) == {}


async def counted(bot):
    names = await known_tests(bot)
    (owner,) = {row["repository_id"] for row in await bot.rows("test_job")}
    days = {row["counted_day"] or row["at"] // DAY_MS for row in await bot.rows("test_job")}
    async with bot.store.read() as tx:
        found = await count_days.days_of_tests(tx, owner, names, since=min(days), until=max(days))
    return {
        names[test_id][2]: {group: counts for groups in by_day.values() for group, counts in groups.items()}
        for test_id, by_day in found.items()
    }


async def test_trusted_runs_are_counted_once_however_often_they_are_collected(bot, github):
    run, job = await ran(github, {"a.xml": xml(case("test_a"), case("test_b", "flaky"))})
    await bot.settle(horizon=UNTIL_COUNTED)
    expected = {
        "test_a": {"linux cuda default": Counts(runs=1, units=25)},
        "test_b": {"linux cuda default": Counts(runs=1, flaky=1, units=25)},
    }
    assert await counted(bot) == expected
    for name, files in (
        ("late", {"b.xml": xml(case("test_a", "failed"))}),
        ("again", {"c.xml": xml(case("test_c"))}),
    ):
        github.add_artifact(run, f"test-reports-{name}_{job.id}", files)
        async with bot.store.transaction() as tx:
            tx.enqueue("artifacts", fetches.run_key(UPSTREAM, run.id, 1))
        await bot.settle(horizon=UNTIL_COUNTED)
    assert await counted(bot) == {
        "test_a": {"linux cuda default": Counts(runs=1, failed=1, units=25)},
        "test_b": expected["test_b"],
        "test_c": expected["test_a"],
    }


@pytest.mark.logic
@pytest.mark.parametrize(
    "changes",
    [
        {"event": "pull_request", "head_branch": "main"},  # a fork's branch called main
        {"event": "push", "head_branch": "feature"},
        {"name": JOB.replace("default", "rerun_disabled_tests")},
    ],
)
async def test_nothing_else_is_counted(bot, github, changes):
    if changes.get("event") == "pull_request":
        changes = changes | {"head_repo": github.add_repo("someone/pytorch", install=[])}
    await ran(github, {"a.xml": xml(case("test_a"), case("test_b", "failed"))}, **changes)
    await bot.settle(horizon=UNTIL_COUNTED)
    assert len(await bot.rows("test_job")) == 1
    assert await bot.rows("test_day") == []
    assert {row["trusted_first_at"] for row in await bot.rows("test")} == {None}
    assert await bot.rows("test_state") == []


@pytest.mark.logic
async def test_what_is_made_again_before_it_was_counted_counts_once(bot, github):
    run = await github.start_run(UPSTREAM, event="push")
    job = await github.start_job(run, JOB)
    await leave(github, run, job, {"a.xml": xml(case("test_a"))})
    await bot.settle(horizon=30)  # stored, not counted yet
    assert await bot.rows("test_day") == []
    async with bot.store.transaction() as tx:
        (row,) = await bot.rows("test_job")
        tx.enqueue("test_results", f"{row['repository_id']}/{run.id}/1/{job.id}")
    await bot.settle(horizon=UNTIL_COUNTED)
    assert await counted(bot) == {"test_a": {"linux cuda default": Counts(runs=1, units=25)}}


def crashed_reports(*files):
    return {f"{file}.xml": xml(case("test_one", file=file)) for file in files}


async def trusted(bot, github, count):
    for _ in range(count):
        bot.clock.advance(3600)
        await github.push(UPSTREAM)
        await ran(github, crashed_reports(*FILES))
        await bot.settle(horizon=HORIZON)


async def crashed(bot):
    names = await known_tests(bot)
    return sorted(
        (names[row["test_id"]][0], names[row["test_id"]][2], row["verdict"])
        for row in await bot.rows("test_failure")
        if row["outcome"] == 7
    )


@pytest.mark.parametrize(
    ("before", "now", "conclusion", "expected"),
    [
        (3, ["test_a.py"], "failure", FILES[1:]),
        pytest.param(3, [], "timed_out", FILES, marks=pytest.mark.nightly),  # not one report
        pytest.param(3, FILES[:2], "failure", [], marks=pytest.mark.nightly),  # half of them
        (2, [], "failure", []),  # too few runs before
        (3, ["test_a.py"], "success", []),
    ],
)
@SQLITE
async def test_files_that_gave_no_report_are_named(bot, github, before, now, conclusion, expected):
    await trusted(bot, github, before)
    pull = await github.open_pull(UPSTREAM)
    run = await github.start_run(
        UPSTREAM, event="pull_request", head_sha=pull.head_sha, head_branch="feature"
    )
    job = await github.start_job(run, JOB)
    if now:
        await leave(github, run, job, crashed_reports(*now), conclusion=conclusion)
    else:
        await github.finish_job(job, conclusion)
        await github.finish_run(run, conclusion)
    await bot.settle(horizon=HORIZON)
    assert await crashed(bot) == [(file, "(no report)", "no_baseline") for file in expected]
    rows = [row for row in await bot.rows("test_job") if row["job_id"] == job.id]
    assert [row["crashed"] for row in rows] == ([len(expected)] if now or expected else [])


@SQLITE
@pytest.mark.parametrize("now", [pytest.param([], marks=pytest.mark.nightly), ["test_a.py"]])
async def test_files_are_missed_also_once_the_trusted_runs_are_known_later(bot, github, now):
    """A run on the branch that began before the failed job, and is collected after it."""
    await trusted(bot, github, 2)
    bot.clock.advance(3600)
    await github.push(UPSTREAM)
    third = await github.start_run(UPSTREAM, event="push")
    of_third = await github.start_job(third, JOB)
    bot.clock.advance(600)
    pull = await github.open_pull(UPSTREAM)
    run = await github.start_run(
        UPSTREAM, event="pull_request", head_sha=pull.head_sha, head_branch="feature"
    )
    job = await github.start_job(run, JOB)
    if now:
        await leave(github, run, job, crashed_reports(*now), conclusion="failure")
    else:
        await github.finish_job(job, "failure")
        await github.finish_run(run, "failure")
    await bot.settle(horizon=HORIZON)
    assert await crashed(bot) == []
    await leave(github, third, of_third, crashed_reports(*FILES))
    await bot.settle(horizon=HORIZON)
    assert [file for file, _, _ in await crashed(bot)] == [file for file in FILES if file not in now]


@SQLITE
async def test_a_job_of_another_name_is_not_missed(bot, github):
    await trusted(bot, github, 3)
    pull = await github.open_pull(UPSTREAM)
    run = await github.start_run(
        UPSTREAM, event="pull_request", head_sha=pull.head_sha, head_branch="feature"
    )
    job = await github.start_job(run, "lint")
    await github.finish_job(job, "failure")
    await github.finish_run(run, "failure")
    await bot.settle(horizon=HORIZON)
    assert await crashed(bot) == []
