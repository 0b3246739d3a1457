"""What selection missed: tests that failed on a trusted branch, whose file their pull request had left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import sqlalchemy as sa

from bot.ci.extras import sources
from bot.ci.extras.sources import DAY
from bot.ci.extras.what_ran.tables import MissRow, td_miss
from bot.ci.test_results.job_tables import JOB_KEY, test_job
from bot.ci.test_results.parse.block import FAILING
from bot.ci.test_results.parse.names import without_ending
from bot.ci.test_results.store import result_rows
from bot.ci.test_results.tables import test, test_class, test_exclusion, test_failure
from bot.ci.test_results.verdict import Verdict
from bot.ci.trunk.tables import branch_commit
from bot.db.rows import select
from bot.ingest.tables import records

if TYPE_CHECKING:
    from bot.ci.test_results.tables import TestRow
    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.queue.tasks import Task

WINDOW = 2 * DAY  # failures that are looked at
FAILURES_MOST = 2_000
SHOWN = 200
NEW = (Verdict.NEW.value, Verdict.NEW_TEST.value)
M, F, J, X = td_miss.c, test_failure.c, test_job.c, test_exclusion.c
HEAD = records["pull_head"].c


class Failure(NamedTuple):
    """A test that failed anew on a commit of a trusted branch, and the pull request that the commit is of."""

    repository_id: int
    head_sha: str
    run_id: int
    test_id: int
    file: str
    at: int
    pr_number: int


class NamedMiss(NamedTuple):
    """A test that selection missed."""

    row: MissRow
    test: TestRow


async def find_misses(context: Context, _task: Task) -> None:
    """Look at what failed lately on trusted branches. Key: nothing."""
    async with context.store.read() as tx:
        failures = await _new_failures(tx, since=tx.now - WINDOW)
        left_out = {
            key: await _left_out(tx, *key) for key in {(one.repository_id, one.pr_number) for one in failures}
        }
    found = [
        _row(one, run_id)
        for one in failures
        if (run_id := left_out[one.repository_id, one.pr_number].get(without_ending(one.file)))
    ]
    if found:
        async with context.store.transaction() as tx:
            await tx.run(tx.insert(td_miss).on_conflict_do_nothing(), found)


async def _new_failures(tx: Transaction, *, since: int) -> list[Failure]:
    commit = branch_commit.c
    joined = (
        test_failure.join(test_job, J.generation == F.generation)
        .join(test, test.c.id == F.test_id)
        .join(test_class, test_class.c.id == test.c.class_id)
        .join(branch_commit, (commit.sha == J.head_sha) & (commit.repository_id == J.repository_id))
    )
    query = (
        sa.select(J.repository_id, J.head_sha, J.run_id, F.test_id, test_class.c.file, F.at, commit.pr_number)
        .select_from(joined)
        .where(F.at >= since, F.trusted, F.verdict.in_(NEW), F.outcome.in_(sorted(FAILING)))
        .where(commit.pr_number.is_not(None))
    )
    found = await tx.run(query.order_by(F.at).limit(FAILURES_MOST))
    return list(dict.fromkeys(Failure(*row) for row in found))


async def _left_out(tx: Transaction, repository_id: int, number: int) -> dict[str, int]:
    """Return the files that the last jobs of a pull request left out, each with a run that did."""
    heads = sa.select(HEAD.head_sha).where(HEAD.repository_id == repository_id, HEAD.number == number)
    same = sa.and_(*(X[name] == J[name] for name in JOB_KEY))
    query = (
        sa.select(X.run_id, X.files)
        .select_from(test_exclusion.join(test_job, same))
        .where(J.repository_id == repository_id, J.head_sha.in_(heads), J.pr_number == number)
    )
    return {file: run_id for run_id, files in await tx.run(query.order_by(J.at)) for file in files}


def _row(one: Failure, left_out_run_id: int) -> MissRow:
    return {
        "repository_id": one.repository_id,
        "pr_number": one.pr_number,
        "test_id": one.test_id,
        "file": one.file,
        "head_sha": one.head_sha,
        "run_id": one.run_id,
        "left_out_run_id": left_out_run_id,
        "day": one.at // DAY,
        "at": one.at,
    }


async def misses_of_run(tx: Transaction, repository_id: int, run_id: int) -> list[NamedMiss]:
    """Return what selection missed of the tests that failed in a run."""
    query = select(MissRow, td_miss).where(M.repository_id == repository_id, M.run_id == run_id)
    found = await tx.fetch(query.order_by(M.file, M.test_id).limit(SHOWN))
    tests = await result_rows.tests_by_id(tx, {one["test_id"] for one in found})
    return [NamedMiss(one, tests[one["test_id"]]) for one in found if one["test_id"] in tests]


async def prune(context: Context) -> dict[str, int]:
    """Delete what was missed past the retention of results."""
    return await sources.delete_old(context, {"tests missed by selection": td_miss})
