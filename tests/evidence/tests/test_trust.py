"""Which results may feed baselines, and what runs that are not trusted may store."""

from __future__ import annotations

import asyncio
import json
import time

import pytest
import sqlalchemy as sa

from bot.evidence.tests import known_tests
from bot.evidence.tests.tables import test_job
from tests.evidence.tests.reported import JOB, case, jsonl, leave, ran, xml
from tests.harness import L3, UPSTREAM
from tests.serving import SQLITE

pytestmark = SQLITE

HORIZON = 200


async def workflow_run(bot, github):
    """A run of the backend's own workflow on its default branch, which it reported on a pull request."""
    run = await github.start_run(L3, event="workflow_dispatch", head_branch="main")
    job = await github.start_job(run, JOB)
    await bot.report(bot.dispatch(L3), conclusion="failure", run_id=str(run.id))
    await leave(github, run, job, {"a.xml": xml(case("test_add", "failed"))}, conclusion="failure")
    await bot.settle(horizon=HORIZON)
    return run


async def test_a_backends_run_for_a_pull_request_is_not_trusted_whoever_started_it(bot, github):
    await github.push(L3)
    await github.open_pull(UPSTREAM, labels=["ciflow/oot/npu"])
    await bot.settle()
    await workflow_run(bot, github)
    (row,) = await bot.rows("test_job")
    assert (row["backend"], row["trusted"]) == (L3, False)
    assert [one["trusted"] for one in await bot.rows("test_failure")] == [False]
    assert [one["trusted_first_at"] for one in await bot.rows("test")] == [None]
    assert await bot.rows("test_day") == []


async def test_rows_that_were_trusted_wrongly_are_counted_again(bot, github, clock):
    await github.push(L3)
    await github.open_pull(UPSTREAM, labels=["ciflow/oot/npu"])
    await bot.settle()
    await workflow_run(bot, github)
    async with bot.store.transaction() as tx:
        await tx.run(sa.update(test_job).values(trusted=True))
        tx.enqueue("test_days", str((await bot.rows("test_job"))[0]["repository_id"]))
    await bot.settle(horizon=HORIZON)
    assert len(await bot.rows("test_day")) == 1
    clock.advance(3_700)
    await bot.settle(horizon=4_000)
    assert [row["trusted"] for row in await bot.rows("test_job")] == [False]
    assert await bot.rows("test_day") == []


async def test_a_trusted_run_of_upstream_is_trusted_still(bot, github):
    await ran(github, {"a.xml": xml(case("test_add"))}, event="push", head_branch="main")
    await bot.settle(horizon=HORIZON)
    assert [row["trusted"] for row in await bot.rows("test_job")] == [True]


async def of_pull(github, files, **run):
    """A run for a pull request of a stranger."""
    fork = github.state.repos.get("someone/pytorch") or github.add_repo("someone/pytorch", install=[])
    return await ran(github, files, event="pull_request", head_repo=fork, **run)


def many(count, prefix="t"):
    cases = "".join(f"<testcase classname='c' name='{prefix}{number}'/>" for number in range(count))
    return f"<testsuite name='s'>{cases}</testsuite>".encode()


async def test_names_of_any_length_take_little_room_in_the_database(bot, github):
    names = "".join(f"<testcase classname='{'c' * 30_000}{n}' name='{'n' * 30_000}{n}'/>" for n in range(50))
    await of_pull(github, {"a.xml": f"<testsuite>{names}</testsuite>".encode()})
    await bot.settle(horizon=HORIZON)
    assert len(await bot.rows("test")) == 50
    assert max(len(row["name"]) for row in await bot.rows("test")) < 540
    assert max(len(row["suite"]) for row in await bot.rows("test_class")) < 540


async def test_too_many_new_tests_of_a_pull_request_are_refused_before_they_are_looked_up(bot, github):
    await of_pull(github, {"a.xml": many(known_tests.NEW_MOST + 1)})
    gaps, ended = [], asyncio.Event()

    async def watch():
        while not ended.is_set():
            before = time.monotonic()
            await asyncio.sleep(0.001)
            gaps.append(time.monotonic() - before)

    watching = asyncio.create_task(watch())
    await bot.settle(horizon=HORIZON)
    ended.set()
    await watching
    (row,) = await bot.rows("test_job")
    assert row["unreadable"] == [
        {"member": "all reports", "reason": "over 50,000 tests that no trusted run had"}
    ]
    assert await bot.rows("test") == []
    assert max(gaps) < 1.0  # of a machine that does other things, too


async def test_a_days_new_tests_of_pull_requests_are_limited_by_repository(bot, github, clock, monkeypatch):
    async with bot.store.transaction() as tx:  # what others stored today
        await known_tests.take_quota(
            tx, github.state.repos[UPSTREAM].id, rows=known_tests.ROWS_A_DAY - 5, size=0
        )
    await of_pull(github, {"a.xml": many(10)})
    await bot.settle(horizon=HORIZON)
    (row,) = await bot.rows("test_job")
    assert "too many new tests today" in row["unreadable"][0]["reason"]
    await ran(github, {"a.xml": many(10)}, event="push", head_branch="main")  # trusted: no limit
    await bot.settle(horizon=HORIZON)
    assert len(await bot.rows("test")) == 10


@pytest.mark.parametrize("number", [2**63, 2**64, 10**30])
async def test_a_run_report_with_numbers_that_are_too_large_spoils_no_other(bot, github, number):
    lines = jsonl(("a.py", "S", "t", "passed"), uuid="u1").split(b"\n")
    head = json.loads(lines[0]) | {"github_workflow_job_id": number}
    head["environment"] = {"device_count": number, "accelerator": "npu"}
    spoiled = b"\n".join([json.dumps(head).encode(), *lines[1:]])
    await ran(github, {"a.report.jsonl": spoiled, "b.xml": xml(case("test_b"))}, event="push")
    await bot.settle(horizon=HORIZON)
    (row,) = await bot.rows("test_job")
    assert row["tests"] - len(row["unreadable"]) in {1, 2}
    assert "test_b" in {one["name"] for one in await bot.rows("test")}
