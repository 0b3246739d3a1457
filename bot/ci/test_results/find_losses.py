"""test_losses: finds what a run has less of than the trusted run before it. Key: repository and run, by `/`.

Only complete runs are compared, family of jobs by family: all shards there, every report read, every job successful,
for one that fails may not have run to its end. What was found stays where a run is not complete.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from bot.ci.test_results import losses
from bot.ci.test_results.losses import Counts, Kind
from bot.ci.test_results.parse import block
from bot.ci.test_results.store import loss_rows, rows
from bot.ci.test_results.store.rows import DAY, tested
from bot.core.errors import GiveUp

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bot.ci.test_results.job_tables import TestJobRow
    from bot.ci.test_results.tables import LossRow
    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.queue.tasks import Task

AGE = 14 * DAY  # of the run before
RUNS = 5  # before, in which one is looked for that is complete
FAMILIES_MOST = 500  # of a run
SUITES_MOST = 50  # of a family that are told
EXAMPLES = 20
WHOLE = 0  # in place of a suite's id


class _Lost(NamedTuple):
    """What a suite lost."""

    suite: int
    kind: Kind
    before: Counts
    now: Counts


async def find_losses(context: Context, task: Task) -> None:
    """Compare a run with the trusted run before it."""
    repository_id, run_id = _key(task.key)
    async with context.store.read() as tx:
        if await loss_rows.is_awaited(tx, repository_id, run_id):
            return  # what is fetched last asks again
        families: dict[str, list[TestJobRow]] = defaultdict(list)
        for job in await rows.jobs_of_run(tx, repository_id, run_id):
            families[job["family"]].append(job)
        found: list[LossRow] = []
        for _, jobs in sorted(families.items())[:FAMILIES_MOST]:
            found += await _of_family(tx, jobs)
    async with context.store.transaction() as tx:
        await loss_rows.replace_losses(tx, repository_id, run_id, found)


async def _of_family(tx: Transaction, all_jobs: Sequence[TestJobRow]) -> list[LossRow]:
    jobs = await _complete(tx, all_jobs)
    if not jobs or not (jobs[0]["trusted"] or jobs[0]["backend"]):
        return []
    before = await _before(tx, jobs[0], at=min(job["at"] for job in jobs))
    if not before:
        return []
    sides = [
        await loss_rows.counts_by_suite(tx, [job["generation"] for job in side]) for side in (before, jobs)
    ]
    whole = [_sum(side) for side in (before, jobs)]
    lost = [_Lost(WHOLE, kind, *whole) for kind in losses.kinds(*whole)]
    for suite, kind in losses.losses_of_suites(*sides, most=SUITES_MOST):
        lost.append(_Lost(suite, kind, sides[0][suite], sides[1].get(suite, Counts())))
    found = [_row(before, jobs, one) for one in lost]
    was, now = await _ids(tx, before), await _ids(tx, jobs)
    if gone := was - now if was and now else None:
        row = _row(before, jobs, _Lost(WHOLE, Kind.GONE, *whole))
        found.append({**row, "gone": len(gone), "examples": sorted(gone)[:EXAMPLES]})
    return found


async def _before(tx: Transaction, job: TestJobRow, *, at: int) -> list[TestJobRow]:
    """Return the jobs of the newest complete trusted run of the same family."""
    repository_id, family = job["repository_id"], job["family"]
    runs = await loss_rows.runs_before(
        tx, repository_id, family, run_id=job["run_id"], since=at - AGE, until=at, limit=RUNS
    )
    for run_id in runs:
        jobs = await _complete(tx, await loss_rows.jobs_of(tx, repository_id, run_id, family))
        if jobs and all(job["trusted"] for job in jobs):
            return jobs
    return []


async def _complete(tx: Transaction, jobs: Iterable[TestJobRow]) -> list[TestJobRow]:
    """Return the newest attempt of each of a family's jobs; none where something is missing."""
    ordered = sorted(jobs, key=lambda job: (job["run_attempt"], job["job_id"]))
    found = list({job["name"]: job for job in ordered}.values())
    if len({(job["name"], job["run_attempt"]) for job in ordered}) < len(ordered):
        return []  # two jobs of one name cannot be told apart
    if not found or any(job["rerun_disabled"] or job["unreadable"] or job["crashed"] for job in found):
        return []
    shards = {job["shards"] for job in found}
    wanted = {None} if shards == {None} else set(range(1, max(one or 1 for one in shards) + 1))
    if len(shards) > 1 or {job["shard"] for job in found} != wanted:
        return []
    ended = await loss_rows.conclusions(tx, found[0]["repository_id"], found)
    return found if set(ended.values()) == {"success"} else []


async def _ids(tx: Transaction, jobs: Sequence[TestJobRow]) -> set[int] | None:
    """Return the ids of all tests of some jobs; None where these are past their retention."""
    contents = await rows.blocks_of_jobs(tx, [job["generation"] for job in jobs])
    if len(contents) < len(jobs):
        return None
    return await asyncio.to_thread(_decoded, list(contents.values()))


def _decoded(contents: Iterable[bytes]) -> set[int]:
    return {test_id for content in contents for test_id in block.decode(content).ids}


def _sum(jobs: Iterable[TestJobRow]) -> Counts:
    return Counts(sum(job["tests"] for job in jobs), sum(job["skipped"] for job in jobs))


def _row(before: Sequence[TestJobRow], jobs: Sequence[TestJobRow], lost: _Lost) -> LossRow:
    first = jobs[0]
    return {
        "repository_id": first["repository_id"],
        "run_id": first["run_id"],
        "family": first["family"],
        "class_id": lost.suite,
        "kind": lost.kind.value,
        "backend": first["backend"],
        "head_sha": tested(first),
        "base_sha": tested(before[0]),
        "tests_before": lost.before.tests,
        "tests": lost.now.tests,
        "skipped_before": lost.before.skipped,
        "skipped": lost.now.skipped,
        "gone": 0,
        "examples": [],
        "at": min(job["at"] for job in jobs),
    }


def _key(text: str) -> tuple[int, int]:
    try:
        repository_id, run_id = map(int, text.split("/"))
    except ValueError:
        raise GiveUp(f"{text!r} names no run") from None
    return repository_id, run_id
