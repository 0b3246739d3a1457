"""The jobs that times of tests are taken from: those of the newest stable commits."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from bot.ci.test_lists import rows
from bot.ci.test_lists.settings import TimesSettings
from bot.ci.trunk.store import rows as trunk_rows

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bot.ci.test_results.job_tables import TestJobRow
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction

COMMITS = 3
BRANCH_MOST = 20  # commits of a branch looked at
LOOKED_AT = 50  # commits, for whether their jobs have ended
ENDED = 0.9  # of a commit's jobs that have to have ended


async def find_stable_jobs(tx: Transaction, settings: Settings, repository_id: int) -> list[TestJobRow]:
    """Return the jobs of the newest stable commits; of a job that was run again, its last attempt."""
    found = await rows.jobs_with_results(tx, repository_id)
    by_commit: defaultdict[str, list[TestJobRow]] = defaultdict(list)
    for one in found:
        by_commit[_commit(one)].append(one)
    branch = settings.of(TimesSettings).ci_times_branch
    if branch:
        commits = await trunk_rows.commits(tx, repository_id, branch, until=None, limit=BRANCH_MOST)
        chosen = [row["sha"] for row in commits if row["sha"] in by_commit][:COMMITS]
    else:
        chosen = await _ended(tx, repository_id, by_commit)
    return [job for commit in chosen for job in _last_attempts(by_commit[commit])]


async def _ended(tx: Transaction, repository_id: int, by_commit: dict[str, list[TestJobRow]]) -> list[str]:
    """Return the newest commits whose jobs have ended, but for a few."""
    newest = sorted(by_commit, key=lambda sha: (min(job["at"] for job in by_commit[sha]), sha), reverse=True)
    chosen: list[str] = []
    for commit in newest[:LOOKED_AT]:
        if await _has_ended(tx, repository_id, by_commit[commit]):
            chosen.append(commit)
        if len(chosen) == COMMITS:
            break
    return chosen


async def _has_ended(tx: Transaction, repository_id: int, jobs: list[TestJobRow]) -> bool:
    """Whether nine tenths of the jobs on a commit have ended; of a backend's, those of the same runs.

    Other CIs report what has ended.
    """
    runs = sorted({job["run_id"] for job in jobs if job["run_id"] > 0})
    heads = sorted({job["head_sha"] for job in jobs if job["head_sha"]})
    if not runs:
        return True
    own = all(job["backend"] is None for job in jobs)
    count, ended = await rows.count_ended(
        tx, repository_id, run_ids=() if own else runs, heads=heads if own else ()
    )
    return not count or ended >= ENDED * count


def _commit(job: TestJobRow) -> str:
    """Return the commit that a job tested: of a backend's, upstream's."""
    return job["upstream_sha"] or job["head_sha"]


def _last_attempts(jobs: Iterable[TestJobRow]) -> list[TestJobRow]:
    last: dict[tuple[int, str], TestJobRow] = {}
    for job in jobs:
        key = (job["run_id"], job["name"])
        if key not in last or last[key]["run_attempt"] < job["run_attempt"]:
            last[key] = job
    return list(last.values())
