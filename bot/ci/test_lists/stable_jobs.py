"""The jobs that times of tests are taken from: those of the newest stable commits."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, TypedDict

import sqlalchemy as sa

from bot.ci.test_lists.settings import TimesSettings
from bot.ci.test_results.job_tables import BASELINE, test_job
from bot.ci.test_results.store.rows import DAY
from bot.ci.trunk import rows as trunk_rows
from bot.ingest.tables import records

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bot.core.settings import Settings
    from bot.db.transaction import Transaction

COMMITS = 3
RECENT = 30 * DAY  # milliseconds
JOBS_MOST = 5_000  # looked at, the newest first
BRANCH_MOST = 20  # commits of a branch looked at
LOOKED_AT = 50  # commits, for whether their jobs have ended
ENDED = 0.9  # of a commit's jobs that have to have ended
JOB, ANY_JOB = test_job.c, records["workflow_job"].c


class StableJob(TypedDict):
    """A job that reported on its tests."""

    run_id: int
    run_attempt: int
    job_id: int
    generation: int
    head_sha: str
    upstream_sha: str | None
    backend: str | None
    name: str
    family: str
    base_name: str
    config: str
    at: int


async def find(tx: Transaction, settings: Settings, repository_id: int) -> list[StableJob]:
    """Return the jobs of the newest stable commits; of a job that was run again, its last attempt."""
    found = await _recent(tx, repository_id)
    by_commit: defaultdict[str, list[StableJob]] = defaultdict(list)
    for one in found:
        by_commit[_commit(one)].append(one)
    branch = settings.of(TimesSettings).ci_times_branch
    if branch:
        commits = await trunk_rows.commits(tx, repository_id, branch, until=None, limit=BRANCH_MOST)
        chosen = [row["sha"] for row in commits if row["sha"] in by_commit][:COMMITS]
    else:
        chosen = await _ended(tx, repository_id, by_commit)
    return [job for commit in chosen for job in _last_attempts(by_commit[commit])]


async def _recent(tx: Transaction, repository_id: int) -> list[StableJob]:
    columns = [JOB[name] for name in StableJob.__annotations__]
    query = sa.select(*columns).where(
        BASELINE, JOB.repository_id == repository_id, JOB.at > tx.now - RECENT, JOB.block.is_not(None)
    )
    order = (JOB.at.desc(), JOB.generation.desc())
    return await tx.rows_as(StableJob, query.order_by(*order).limit(JOBS_MOST))


async def _ended(tx: Transaction, repository_id: int, by_commit: dict[str, list[StableJob]]) -> list[str]:
    """Return the newest commits whose jobs have ended, but for a few."""
    newest = sorted(by_commit, key=lambda sha: (min(job["at"] for job in by_commit[sha]), sha), reverse=True)
    chosen: list[str] = []
    for commit in newest[:LOOKED_AT]:
        if await _has_ended(tx, repository_id, by_commit[commit]):
            chosen.append(commit)
        if len(chosen) == COMMITS:
            break
    return chosen


async def _has_ended(tx: Transaction, repository_id: int, jobs: list[StableJob]) -> bool:
    """Whether nine tenths of the jobs on a commit have ended; of a backend's, those of the same runs.

    Other CIs report what has ended.
    """
    runs = sorted({job["run_id"] for job in jobs if job["run_id"] > 0})
    heads = sorted({job["head_sha"] for job in jobs if job["head_sha"]})
    if not runs:
        return True
    own = all(job["backend"] is None for job in jobs)
    same = ANY_JOB.head_sha.in_(heads) if own else ANY_JOB.run_id.in_(runs)
    done = sa.func.sum(sa.case((ANY_JOB.status == "completed", 1), else_=0))
    query = sa.select(sa.func.count(), done).where(same, ANY_JOB.repository_id == repository_id)
    count, ended = (await tx.run(query)).one()
    return not count or (ended or 0) >= ENDED * count


def _commit(job: StableJob) -> str:
    """Return the commit that a job tested: of a backend's, upstream's."""
    return job["upstream_sha"] or job["head_sha"]


def _last_attempts(jobs: Iterable[StableJob]) -> list[StableJob]:
    last: dict[tuple[int, str], StableJob] = {}
    for job in jobs:
        key = (job["run_id"], job["name"])
        if key not in last or last[key]["run_attempt"] < job["run_attempt"]:
            last[key] = job
    return list(last.values())
