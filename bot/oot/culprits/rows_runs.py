"""What backends reported on commits, and what became of one test there: reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.ci.test_results.job_tables import JobGeneration, JobRun, test_job
from bot.ci.test_results.parse.block import FAILING, PASSING, decode
from bot.ci.test_results.tables import test, test_class, test_failure
from bot.db.rows import select
from bot.ingest import watched
from bot.oot.results.store.dispatches import ON_OPEN_HEAD
from bot.oot.results.tables import BACKEND_OF_HEAD, JobRow, oot_dispatch, oot_workflow_job

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from bot.db.transaction import Transaction
    from bot.oot.culprits.signals import TestName

REPORTED, DISPATCH, JOB = oot_workflow_job.c, oot_dispatch.c, test_job.c
TESTS_MOST = 200  # of one name, in all files and on all devices
SHAS_AT_ONCE = 500
BLOCKS_MOST = 200  # jobs whose cases are read


class TestedJob(JobRun, JobGeneration):
    """A job with test results."""


async def reported_jobs(
    tx: Transaction, names: Collection[str], backend: str, shas: Sequence[str]
) -> list[JobRow]:
    """Return what a backend reported on some commits of a repository, given by all its names, case folded.

    Whatever it was dispatched for: a pull request at the same commit counts as well. Heavy columns are left out.
    """
    found: list[JobRow] = []
    light = select(JobRow, oot_workflow_job, failed_tests_json=sa.null(), environment=sa.null())
    for start in range(0, len(shas), SHAS_AT_ONCE):
        query = light.where(
            REPORTED.head_sha.in_(shas[start : start + SHAS_AT_ONCE]),
            BACKEND_OF_HEAD.in_([backend.casefold()]),
            sa.func.lower(REPORTED.upstream_repo).in_(sorted(names)),
        )
        found += await tx.fetch(query.order_by(REPORTED.received_at, REPORTED.job_key))
    return [row for row in found if "refused" not in row["flags"]]


async def failed_tests(tx: Transaction, job_keys: Collection[str]) -> dict[str, list[dict[str, Any]]]:
    """Return the failed tests that some jobs reported, by job."""
    if not job_keys:
        return {}
    query = sa.select(REPORTED.job_key, REPORTED.failed_tests_json).where(
        REPORTED.job_key.in_(sorted(job_keys)), REPORTED.failed_tests_json.is_not(None)
    )
    return dict(map(tuple, await tx.run(query)))


async def queued_pulls(tx: Transaction, backend: str) -> list[int]:
    """Return since when dispatches of open pull requests wait for a backend: sent, and not answered yet."""
    query = sa.select(DISPATCH.dispatched_at).where(
        DISPATCH.backend_key == backend.casefold(),
        DISPATCH.state == "sent",
        DISPATCH.heard_at.is_(None),
        DISPATCH.pr_number.is_not(None),
        DISPATCH.action.is_distinct_from("closed"),
        DISPATCH.dispatched_at.is_not(None),
        ON_OPEN_HEAD,
    )
    return list((await tx.run(query)).scalars())


async def test_ids(tx: Transaction, repo: str, wanted: TestName) -> set[int]:
    """Return the ids of a repository's tests of a name."""
    such = [test.c.repository_id.in_(sorted(await watched.ids(tx, repo))), test.c.name == wanted.name]
    if wanted.suite:
        such.append(
            (test_class.c.suite == wanted.suite)
            | test_class.c.suite.endswith(f".{wanted.suite}", autoescape=True)
        )
    if wanted.file:
        such.append(test_class.c.file == wanted.file)
    query = sa.select(test.c.id).join(test_class, test_class.c.id == test.c.class_id)
    return set((await tx.run(query.where(*such).limit(TESTS_MOST))).scalars())


async def tested_jobs(
    tx: Transaction, repo: str, shas: Sequence[str], *, of_upstream: bool
) -> list[TestedJob]:
    """Return the jobs with test results of a repository on some commits: upstream's own, or those of a backend."""
    ids = sorted(await watched.ids(tx, repo))
    tested = JOB.head_sha if of_upstream else JOB.upstream_sha
    found: list[TestedJob] = []
    for start in range(0, len(shas), SHAS_AT_ONCE):
        some = shas[start : start + SHAS_AT_ONCE]
        query = select(TestedJob, test_job).where(JOB.repository_id.in_(ids), tested.in_(some))
        found += await tx.fetch(query)
    return found


async def outcomes_of_test(
    tx: Transaction, ids: Collection[int], generations: Collection[int]
) -> dict[int, bool]:
    """Return whether a test, given by its ids, passed in some jobs; jobs that do not say are left out."""
    if not ids or not generations:
        return {}
    wanted = sorted(generations)[-BLOCKS_MOST:]
    failure = test_failure.c
    failed = sa.select(failure.generation).where(
        failure.generation.in_(wanted), failure.test_id.in_(sorted(ids)), failure.outcome.in_(sorted(FAILING))
    )
    found = dict.fromkeys((await tx.run(failed)).scalars(), False)
    rest = [one for one in wanted if one not in found]
    blocks = sa.select(JOB.generation, JOB.block).where(JOB.generation.in_(rest), JOB.block.is_not(None))
    for generation, block in await tx.run(blocks):
        cases = decode(block)
        if any(case.code in PASSING for one in ids for case in cases.find(one)):
            found[generation] = True
    return found
