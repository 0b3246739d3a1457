"""Tasks test_lists and test_lists_check: list how long tests take once there are new stable commits."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import structlog

from bot.core.errors import GiveUp
from bot.evidence.disabled import lists
from bot.evidence.disabled import rows as disabled_rows
from bot.evidence.tests import rows
from bot.evidence.tests.parse import block
from bot.evidence.tests.rows import DAY
from bot.job_reports.feature import JobReportSettings
from bot.job_reports.test_lists import times
from bot.job_reports.test_lists.tables import PackedTimes
from bot.job_reports.test_lists.times import Spent
from bot.jobs import rows as job_rows

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Hashable, Iterable, Mapping, Sequence

    from bot.context import Context
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.evidence.tests.tables import TestJobRow
    from bot.job_reports.test_lists.times import SuiteTime
    from bot.queue.tasks import Task
    from bot.web.page_cache import CachedPage

log = structlog.get_logger("bot.job_reports.test_lists.make_time_lists")

MONTH = 30 * DAY
BLOCKS = 50  # read at a time
NAMES = ("test-times", "test-class-times", "slow-tests")
COMMITS = 3
BRANCH_MOST = 20  # commits of a branch looked at
LOOKED_AT = 50  # commits, for whether their jobs have ended
ENDED = 0.9  # of a commit's jobs that have to have ended


async def request_all_lists(context: Context, _task: Task) -> None:
    """Request the lists of every repository with test results."""
    async with context.store.transaction() as tx:
        ours = await disabled_rows.listing_repositories(tx, context.settings)
        for identifier in await times.with_results(tx, ours):
            tx.enqueue("test_lists", str(identifier))
        tx.enqueue("test_reruns", "")


async def make_time_lists(context: Context, task: Task) -> None:
    """Make the lists of a repository if stable commits have new results. Key: its id."""
    if not task.key.isdigit():
        raise GiveUp(f"{task.key!r} is not the id of a repository")
    identifier = int(task.key)
    async with context.store.read() as tx:
        stable_jobs = await find_stable_jobs(tx, context.settings, identifier)
        before = await times.find_source(tx, identifier)
    generations = sorted(job["generation"] for job in stable_jobs)
    digest = hashlib.sha256(repr(generations).encode()).hexdigest()
    if not stable_jobs or digest == before:
        return
    async with context.store.read() as tx:
        suites = await times.suites_of_jobs(tx, generations)
        known = await times.stored_times(tx, identifier)
    slow_tests = await _slow(context, stable_jobs)
    kept, pages = await asyncio.to_thread(_made, known, stable_jobs, suites, slow_tests, context.clock.now())
    async with context.store.transaction() as tx:
        await times.replace_times(tx, identifier, kept)
        changed = [name for name, page in pages.items() if await lists.store_list(tx, identifier, name, page)]
        await times.store_source(tx, identifier, digest)
    log.info("lists made", repository=identifier, lists=changed, jobs=len(stable_jobs))


async def find_stable_jobs(tx: Transaction, settings: Settings, repository_id: int) -> list[TestJobRow]:
    """Return the jobs of the newest stable commits, each with its last attempt only."""
    jobs_with_results = await times.jobs_with_results(tx, repository_id)
    by_commit: defaultdict[str, list[TestJobRow]] = defaultdict(list)
    for result in jobs_with_results:
        by_commit[_commit(result)].append(result)
    branch = settings.of(JobReportSettings).ci_times_branch
    if branch:
        commits = await job_rows.commits(tx, repository_id, branch, until=None, limit=BRANCH_MOST)
        chosen = [row["sha"] for row in commits if row["sha"] in by_commit][:COMMITS]
    else:
        chosen = await _ended(tx, repository_id, by_commit)
    return [job for commit in chosen for job in _last_attempts(by_commit[commit])]


async def _slow(context: Context, jobs: Sequence[TestJobRow]) -> dict[str, float]:
    """Return the seconds of slow tests, under the names that PyTorch's CI uses."""
    by_generation = {
        job["generation"]: (job["run_id"], job["family"])
        for job in jobs
        if times.SANITIZER not in job["family"].casefold()
    }
    shards: Counter[Hashable] = Counter(by_generation.values())
    wanted: set[int] = set()
    async for blocks in _blocks(context, sorted(by_generation)):
        wanted |= await asyncio.to_thread(_candidates, blocks, by_generation, shards)
    sums = times.no_sums()
    async for blocks in _blocks(context, sorted(by_generation) if wanted else []):
        await asyncio.to_thread(_add, sums, blocks, by_generation, wanted)
    means = times.slow_means(sums)
    async with context.store.read() as tx:
        places = await times.names_of_tests(tx, means)
    slowest: dict[str, float] = {}
    for test_id, place in places.items():
        if place.file:
            name = times.test_key(place.name, place.suite)
            slowest[name] = max(slowest.get(name, 0.0), round(means[test_id], times.DIGITS))
    return slowest


async def _blocks(context: Context, generations: Sequence[int]) -> AsyncIterator[dict[int, bytes]]:
    """Yield the blocks of jobs in small batches: decoded, all of them would take hundreds of megabytes."""
    for start in range(0, len(generations), BLOCKS):
        async with context.store.read() as tx:
            yield await rows.blocks_of_jobs(tx, generations[start : start + BLOCKS])


def _candidates(
    blocks: Mapping[int, bytes], jobs: Mapping[int, Hashable], shards: Mapping[Hashable, int]
) -> set[int]:
    test_ids: set[int] = set()
    for generation, content in blocks.items():
        test_ids |= times.slow_candidates(block.decode(content), shards[jobs[generation]])
    return test_ids


def _add(
    sums: times.Sums, blocks: Mapping[int, bytes], jobs: Mapping[int, Hashable], wanted: Collection[int]
) -> None:
    for generation, content in blocks.items():
        times.add_times(sums, jobs[generation], block.decode(content), wanted)


def _made(
    known: Mapping[tuple[str, str], PackedTimes],
    jobs: Sequence[TestJobRow],
    suites: Sequence[SuiteTime],
    slow_tests: dict[str, float],
    now: int,
) -> tuple[dict[tuple[str, str], PackedTimes], dict[str, CachedPage]]:
    """Return all times to keep, and the lists made from them."""
    by_generation = {job["generation"]: job for job in jobs}
    spent = [
        _spent(by_generation[generation], launched_by or file, suite, milliseconds)
        for generation, launched_by, file, suite, milliseconds in suites
        if launched_by or file
    ]
    files, classes = _unpacked(known)
    newest = {place: row["at"] for place, row in known.items()}
    _renew(files, times.file_times(spent))
    _renew(classes, times.class_times(spent))
    for job in jobs:
        place = (job["base_name"], job["config"])
        newest[place] = max(newest.get(place, 0), job["at"])
    alive = {base_name for (base_name, _), at in newest.items() if at >= now - MONTH}
    files, classes = ({name: each[name] for name in sorted(alive & each.keys())} for each in (files, classes))
    kept = {
        (base_name, config): PackedTimes(
            files=times.pack_times(seconds),
            classes=times.pack_times(classes.get(base_name, {}).get(config, {})),
            at=newest[base_name, config],
        )
        for base_name, configs in files.items()
        for config, seconds in configs.items()
    }
    of_classes = times.round_times(times.with_defaults(classes))
    contents: dict[str, Mapping[str, object]] = {
        "test-times": times.round_times(times.with_defaults(files)),
        "test-class-times": times.by_file_and_class(of_classes),
        "slow-tests": slow_tests,
    }
    return kept, {name: lists.seal_list(content) for name, content in contents.items()}


def _unpacked(known: Mapping[tuple[str, str], PackedTimes]) -> tuple[times.Times, times.Times]:
    files: times.Times = {}
    classes: times.Times = {}
    for (base_name, config), row in known.items():
        files.setdefault(base_name, {})[config] = times.unpack_times(row["files"])
        classes.setdefault(base_name, {})[config] = times.unpack_times(row["classes"])
    return files, classes


def _renew(known: times.Times, measured: times.Times) -> None:
    """Replace the times that were measured again; keep the rest."""
    for base_name, configs in measured.items():
        for config, seconds in configs.items():
            before = known.setdefault(base_name, {})
            before[config] = before.get(config, {}) | seconds


def _spent(job: TestJobRow, file: str, suite: str, milliseconds: int) -> Spent:
    return Spent(
        job=(job["run_id"], job["family"]),
        base_name=job["base_name"],
        config=job["config"],
        file=file,
        suite=suite,
        milliseconds=milliseconds,
    )


async def _ended(tx: Transaction, repository_id: int, by_commit: dict[str, list[TestJobRow]]) -> list[str]:
    """Return the newest commits on which almost all jobs have ended."""
    newest = sorted(by_commit, key=lambda sha: (min(job["at"] for job in by_commit[sha]), sha), reverse=True)
    chosen: list[str] = []
    for commit in newest[:LOOKED_AT]:
        if await _has_ended(tx, repository_id, by_commit[commit]):
            chosen.append(commit)
        if len(chosen) == COMMITS:
            break
    return chosen


async def _has_ended(tx: Transaction, repository_id: int, jobs: list[TestJobRow]) -> bool:
    """Whether nine tenths of the jobs on a commit have ended; for a backend, the jobs of the same runs count.

    Other CIs report what has ended.
    """
    runs = sorted({job["run_id"] for job in jobs if job["run_id"] > 0})
    heads = sorted({job["head_sha"] for job in jobs if job["head_sha"]})
    if not runs:
        return True
    own = all(job["backend"] is None for job in jobs)
    count, ended = await times.count_ended(
        tx, repository_id, run_ids=() if own else runs, heads=heads if own else ()
    )
    return not count or ended >= ENDED * count


def _commit(job: TestJobRow) -> str:
    """Return the commit that a job tested; for a backend's job, upstream's."""
    return job["upstream_sha"] or job["head_sha"]


def _last_attempts(jobs: Iterable[TestJobRow]) -> list[TestJobRow]:
    last: dict[tuple[int, str], TestJobRow] = {}
    for job in jobs:
        key = (job["run_id"], job["name"])
        if key not in last or last[key]["run_attempt"] < job["run_attempt"]:
            last[key] = job
    return list(last.values())
