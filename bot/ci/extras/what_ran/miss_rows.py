"""Statements about what selection missed."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import sqlalchemy as sa

from bot.ci.extras.what_ran.tables import MissedFailure, MissRow, td_miss
from bot.ci.test_results.job_tables import JOB_KEY, test_job
from bot.ci.test_results.parse.block import FAILING
from bot.ci.test_results.store import result_rows
from bot.ci.test_results.tables import test, test_class, test_exclusion, test_failure
from bot.ci.test_results.verdict import Verdict
from bot.ci.trunk.tables import branch_commit
from bot.db.rows import select
from bot.ingest.tables import records

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from bot.ci.test_results.tables import TestRow
    from bot.db.transaction import Transaction

FAILURES_MOST = 2_000
SHOWN = 200
NEW = (Verdict.NEW.value, Verdict.NEW_TEST.value)
M, F, J, X, COMMIT = td_miss.c, test_failure.c, test_job.c, test_exclusion.c, branch_commit.c
HEAD = records["pull_head"].c


class NamedMiss(NamedTuple):
    """A test that selection missed."""

    row: MissRow
    test: TestRow


async def new_failures(tx: Transaction, owners: Collection[int], *, since: int) -> list[MissedFailure]:
    """Return tests that newly failed on a commit by which a pull request came to a trusted branch."""
    joined = (
        test_failure.join(test_job, J.generation == F.generation)
        .join(test, test.c.id == F.test_id)
        .join(test_class, test_class.c.id == test.c.class_id)
        .join(branch_commit, (COMMIT.sha == J.head_sha) & (COMMIT.repository_id == J.repository_id))
    )
    query = select(
        MissedFailure, test_job, test_failure, test_class, pr_number=COMMIT.pr_number, at=F.at
    ).select_from(joined)
    query = query.where(
        F.repository_id.in_(sorted(owners)),
        F.at >= since,
        F.trusted,
        F.verdict.in_(NEW),
        F.outcome.in_(sorted(FAILING)),
    )
    query = query.where(COMMIT.pr_number.is_not(None)).order_by(F.at, F.generation, F.test_id)
    return await tx.fetch(query.limit(FAILURES_MOST))


async def left_out(tx: Transaction, repository_id: int, number: int) -> dict[str, int]:
    """Return the files that the last jobs of a pull request left out, each with a run that did."""
    heads = sa.select(HEAD.head_sha).where(HEAD.repository_id == repository_id, HEAD.number == number)
    same = sa.and_(*(X[name] == J[name] for name in JOB_KEY))
    query = (
        sa.select(X.run_id, X.files)
        .select_from(test_exclusion.join(test_job, same))
        .where(J.repository_id == repository_id, J.head_sha.in_(heads), J.pr_number == number)
    )
    return {file: run_id for run_id, files in await tx.run(query.order_by(J.at)) for file in files}


async def add_misses(tx: Transaction, found: Sequence[MissRow]) -> None:
    """Store what was missed; what is known stays as it was found first."""
    await tx.run(tx.insert(td_miss).on_conflict_do_nothing(), list(found))
    tx.note_changed("td_miss", found)


async def misses_of_run(tx: Transaction, repository_id: int, run_id: int) -> list[NamedMiss]:
    """Return what selection missed of the tests that failed in a run."""
    query = select(MissRow, td_miss).where(M.repository_id == repository_id, M.run_id == run_id)
    found = await tx.fetch(query.order_by(M.file, M.test_id).limit(SHOWN))
    tests = await result_rows.tests_by_id(tx, {one["test_id"] for one in found})
    return [NamedMiss(one, tests[one["test_id"]]) for one in found if one["test_id"] in tests]
