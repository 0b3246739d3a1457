"""What is read to judge the failing tests of a commit, and what is written."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.db.rows import select
from bot.evidence.tests import verdict
from bot.evidence.tests.known_tests import in_batches
from bot.evidence.tests.parse.block import FAILING
from bot.evidence.tests.parse.texts import DEVICES, without_device
from bot.evidence.tests.rows import JOB, JOBS, PROVEN, tested_commit
from bot.evidence.tests.tables import (
    BASELINE,
    FailureHead,
    FailureKey,
    FailureOutcome,
    FailureTime,
    FailureVerdict,
    SuitePlace,
    TestCanonical,
    TestDigest,
    TestJobRow,
    TestName,
    test,
    test_class,
    test_failure,
    test_job,
    test_state,
)
from bot.evidence.tests.verdict import Verdict
from bot.ingest.tables import records
from bot.jobs import job_cells, job_names
from bot.jobs.job_cells import JobTests

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from bot.db.transaction import Transaction
    from bot.web.failures import FailedJob, SharedFailuresSubject

FAILURES_MOST = 5_000  # of a commit
JOBS_MOST = 3_000  # on a commit
BASELINE_JOBS = 300  # of a family: a few commits, all their shards
ELSEWHERE_MOST = 5_000
SHAS_PER_QUERY = 100
HEADS_MOST = 300  # that are judged again at once
NAMES_MOST = 5_000
FAILURE = test_failure.c
COMMIT: sa.ColumnElement[str] = sa.func.coalesce(JOB.upstream_sha, JOB.head_sha)  # what was tested
ROWS_MOST = 5_000
EXCUSED = (Verdict.FLAKY.value, Verdict.LIKELY_FLAKY.value, Verdict.DISABLED.value)
SharedName = tuple[str, str]  # suite and name of a test, the same on every device


class FailedRow(
    FailureKey, FailureOutcome, FailureVerdict, FailureTime, SuitePlace, TestDigest, TestCanonical, TestName
):
    """A case that failed or was flaky, as it is judged."""

    trusted_first_at: int | None


class ElsewhereRow(FailureHead, FailureTime):
    """A failure of a test on another commit."""

    test_id: int
    family: str
    pr_number: int | None


async def failures_on(tx: Transaction, sha: str) -> list[FailedRow]:
    """Return the failing and flaky cases that are shown for a commit and proven to be of it."""
    joined = (
        test_failure.join(test_job, JOB.generation == FAILURE.generation)
        .join(test, test.c.id == FAILURE.test_id)
        .join(test_class, test_class.c.id == test.c.class_id)
    )
    query = select(FailedRow, test_failure, test, test_class).select_from(joined)
    query = query.where(FAILURE.head_sha == sha, PROVEN)
    return await tx.fetch(query.order_by(FAILURE.generation, FAILURE.test_id).limit(FAILURES_MOST))


async def failed_upstream(tx: Transaction, shas: Collection[str]) -> dict[str, list[tuple[str, str]]]:
    """Return the suite and name of each test that failed in upstream's own jobs, by commit."""
    joined = (
        test_failure.join(test_job, JOB.generation == FAILURE.generation)
        .join(test, test.c.id == FAILURE.test_id)
        .join(test_class, test_class.c.id == test.c.class_id)
    )
    failed: dict[str, list[tuple[str, str]]] = {}
    wanted = sorted(shas)
    for start in range(0, len(wanted), SHAS_PER_QUERY):
        query = sa.select(FAILURE.head_sha, test_class.c.suite, test.c.name).select_from(joined)
        query = query.where(
            FAILURE.head_sha.in_(wanted[start : start + SHAS_PER_QUERY]),
            FAILURE.outcome.in_(sorted(FAILING)),
            JOB.backend.is_(None),
            PROVEN,
        )
        for sha, suite, name in await tx.run(query):
            failed.setdefault(sha, []).append((suite, name))
    return failed


async def jobs_testing(tx: Transaction, sha: str, repository_ids: Collection[int]) -> list[TestJobRow]:
    """Return the jobs that tested a commit of upstream, or of these repositories."""
    own = sa.and_(JOB.upstream_sha.is_(None), JOB.repository_id.in_(sorted(repository_ids)))
    query = JOBS.where(
        sa.or_(JOB.upstream_sha == sha, sa.and_(own, JOB.head_sha == sha)),
        sa.not_(JOB.rerun_disabled),
        PROVEN,
    )
    return await tx.fetch(query.order_by(JOB.generation).limit(JOBS_MOST))


async def baseline_jobs(
    tx: Transaction, repository_id: int, family: str, *, since: int, until: int, but: str
) -> list[TestJobRow]:
    """Return the newest trusted jobs of a family on other commits."""
    query = JOBS.where(
        BASELINE,
        JOB.repository_id == repository_id,
        JOB.family == family,
        JOB.at.between(since, until),
        COMMIT.is_distinct_from(but),
    )
    return await tx.fetch(query.order_by(JOB.at.desc(), JOB.generation).limit(BASELINE_JOBS))


async def trusted_jobs_on(
    tx: Transaction, repository_id: int, family: str, shas: Collection[str]
) -> list[TestJobRow]:
    """Return the trusted jobs of a family on some commits."""
    own = sa.and_(JOB.upstream_sha.is_(None), JOB.head_sha.in_(sorted(shas)))
    query = JOBS.where(
        BASELINE,
        JOB.repository_id == repository_id,
        JOB.family == family,
        sa.or_(JOB.upstream_sha.in_(sorted(shas)), own),
    )
    return await tx.fetch(query.order_by(JOB.generation).limit(BASELINE_JOBS))


async def names_in_runs(tx: Transaction, run_ids: Iterable[int]) -> dict[int, list[tuple[str, str]]]:
    """Return the workflow and name of every job, by run."""
    job = records["workflow_job"].c
    names: dict[int, list[tuple[str, str]]] = {}
    for some in in_batches(sorted({run_id for run_id in run_ids if run_id > 0})):
        query = sa.select(job.run_id, job.workflow_name, job.name).where(job.run_id.in_(some)).distinct()
        for row in await tx.run(query.limit(NAMES_MOST)):
            names.setdefault(row.run_id, []).append((row.workflow_name or "", row.name or ""))
    return names


async def families(tx: Transaction, jobs: Sequence[TestJobRow]) -> dict[int, str]:
    """Return the family of each job, by generation; sibling jobs decide which numbers in names are shards."""
    siblings = await names_in_runs(tx, {job["run_id"] for job in jobs if job["shard"] is not None})
    by_generation: dict[int, str] = {}
    by_commit: dict[tuple[int, str], list[TestJobRow]] = {}
    for job in jobs:
        by_commit.setdefault((job["repository_id"], tested_commit(job)), []).append(job)
    for some in by_commit.values():
        names = [job_names.parse_name(job["workflow"], job["name"]) for job in some]
        others = {name for job in some for name in siblings.get(job["run_id"], ())}
        resolved = job_names.resolve_shards(
            [*names, *(job_names.parse_name(*name) for name in sorted(others))]
        )
        by_generation |= {
            job["generation"]: name.shard_free for job, name in zip(some, resolved, strict=False)
        }
    return by_generation


async def failures_elsewhere(
    tx: Transaction, test_ids: Collection[int], *, since: int, until: int, but: str
) -> list[ElsewhereRow]:
    """Return failures of tests on other commits, without those judged as known."""
    failures: list[ElsewhereRow] = []
    for some in in_batches(sorted(test_ids)):
        query = (
            select(ElsewhereRow, test_failure, test_job)
            .select_from(test_failure.join(test_job, JOB.generation == FAILURE.generation))
            .where(
                FAILURE.test_id.in_(some),
                FAILURE.at.between(since, until),
                FAILURE.head_sha != but,
                FAILURE.outcome.in_(sorted(FAILING)),
                PROVEN,
                FAILURE.verdict.is_distinct_from(verdict.Verdict.KNOWN.value),
            )
        )
        failures += await tx.fetch(query.order_by(FAILURE.at.desc()).limit(ELSEWHERE_MOST))
    return failures


async def flaky_states(tx: Transaction, test_ids: Collection[int]) -> dict[tuple[int, str], int]:
    """Return since when tests are flaky, by test and group of environments."""
    c = test_state.c
    since_when: dict[tuple[int, str], int] = {}
    for some in in_batches(sorted(test_ids)):
        query = sa.select(c.test_id, c.env_group, c.since).where(c.test_id.in_(some), c.state == "flaky")
        since_when |= {(row.test_id, row.env_group): row.since for row in await tx.run(query)}
    return since_when


async def same_tests(
    tx: Transaction, canonical: Collection[int], repository_ids: Collection[int]
) -> dict[int, int]:
    """Return the canonical name of each test with one of these names, by id."""
    canonicals: dict[int, int] = {}
    for some in in_batches(sorted(canonical)):
        query = sa.select(test.c.id, test.c.canonical).where(
            test.c.canonical.in_(some), test.c.repository_id.in_(sorted(repository_ids))
        )
        canonicals |= {row.id: row.canonical for row in await tx.run(query.limit(ELSEWHERE_MOST))}
    return canonicals


async def heads_concerned(tx: Transaction, job: TestJobRow, test_ids: Collection[int]) -> set[str]:
    """Return the commits whose failing tests must be judged again after a job's results."""
    until = job["at"] + verdict.ELSEWHERE_AGE
    heads = {tested_commit(job)}
    if job["trusted"]:
        query = (
            sa.select(FAILURE.head_sha)
            .select_from(test_failure.join(test_job, JOB.generation == FAILURE.generation))
            .where(
                FAILURE.repository_id == job["repository_id"],
                FAILURE.at.between(job["at"], job["at"] + verdict.BASELINE_AGE),
                JOB.family == job["family"],
            )
        )
        heads |= set((await tx.run(query.distinct().limit(HEADS_MOST))).scalars())
    return heads | await heads_failing(tx, test_ids, since=job["at"], until=until)


async def heads_failing(tx: Transaction, test_ids: Collection[int], *, since: int, until: int) -> set[str]:
    """Return the commits on which these tests failed."""
    heads: set[str] = set()
    for some in in_batches(sorted(test_ids)):
        query = sa.select(FAILURE.head_sha).where(FAILURE.test_id.in_(some), FAILURE.at.between(since, until))
        heads |= set((await tx.run(query.distinct().limit(HEADS_MOST))).scalars())
    return heads


async def store_verdicts(tx: Transaction, judged: Sequence[tuple[FailedRow, str, Any]]) -> None:
    """Store verdicts with their evidence."""
    changed = (
        sa.update(test_failure)
        .where(
            FAILURE.generation == sa.bindparam("of_generation"),
            FAILURE.test_id == sa.bindparam("of_test"),
            FAILURE.invoking_file == sa.bindparam("of_file"),
        )
        .values(verdict=sa.bindparam("new_verdict"), evidence=sa.bindparam("new_evidence", type_=FAILURE.evidence.type))
    )  # fmt: skip
    await tx.run(
        changed,
        [
            {
                "of_generation": row["generation"],
                "of_test": row["test_id"],
                "of_file": row["invoking_file"],
                "new_verdict": verdict_,
                "new_evidence": evidence,
            }
            for row, verdict_, evidence in judged
        ],
    )


async def write_job_cells(tx: Transaction, sha: str) -> None:
    """Store the judged failing tests of a commit in the cells of their jobs."""
    joined = test_failure.join(test_job, JOB.generation == FAILURE.generation).join(
        test, test.c.id == FAILURE.test_id
    )
    query = sa.select(
        JOB.repository_id, JOB.job_id, JOB.failed + JOB.errors, test.c.canonical, FAILURE.verdict
    )
    query = query.select_from(joined).where(
        FAILURE.head_sha == sha,
        JOB.head_sha == sha,
        # not those known by an artifact's name only
        sa.or_(JOB.job_id > 0, JOB.job_id <= job_cells.LARGEST_NUMBER),
        JOB.backend.is_(None),
        FAILURE.outcome.in_(sorted(FAILING)),
        FAILURE.verdict.is_not(None),
    )
    failing: defaultdict[tuple[int, int, int], set[int]] = defaultdict(set)
    for repository_id, job_id, failed, canonical, judged in await tx.run(query.limit(ROWS_MOST)):
        tests = failing[repository_id, job_id, failed]
        if judged not in EXCUSED:
            tests.add(canonical)
    await job_cells.write_tests(tx, [JobTests(*key, frozenset(failing[key])) for key in sorted(failing)])


async def find_shared(tx: Transaction, subject: SharedFailuresSubject) -> frozenset[str]:
    """Return the keys of jobs whose failed tests all failed in upstream's own jobs on the same commit, too."""
    upstream = await failed_upstream(tx, {job.head_sha for job in subject.jobs})
    devices = DEVICES | subject.devices
    known = {
        sha: {_shared_name(suite, name, devices) for suite, name in tests} for sha, tests in upstream.items()
    }
    return frozenset(
        job.key
        for job in subject.jobs
        if job.tests and _shared_names(job, devices) <= known.get(job.head_sha, set())
    )


def _shared_names(job: FailedJob, devices: frozenset[str]) -> set[SharedName]:
    return {_shared_name(suite, name, devices) for suite, name in job.tests}


def _shared_name(suite: str, name: str, devices: frozenset[str]) -> SharedName:
    """Return the name a test is compared by, with the last word of its suite: some reports put the module before it."""
    return without_device(suite.rpartition(".")[2], devices), without_device(name, devices)
