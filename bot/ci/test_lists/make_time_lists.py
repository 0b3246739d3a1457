"""Tasks test_lists_check and test_lists: list how long tests take, whenever there are new stable commits.

What was measured before and is not measured now stays; base names go a month after their last job.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from typing import TYPE_CHECKING

import structlog

from bot.ci.disabled import list_rows, sent_lists
from bot.ci.disabled import rows as disabled_rows
from bot.ci.test_lists import rows, slow, stable_jobs, times
from bot.ci.test_lists.tables import PackedTimes
from bot.ci.test_lists.times import Spent
from bot.ci.test_results.parse import block
from bot.ci.test_results.store import rows as result_rows
from bot.ci.test_results.store.rows import DAY
from bot.core.errors import GiveUp

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Hashable, Mapping, Sequence

    from bot.ci.test_lists.rows import SuiteTime
    from bot.ci.test_results.job_tables import TestJobRow
    from bot.context import Context
    from bot.core.settings import Settings
    from bot.queue.tasks import Task
    from bot.web.page_cache import CachedPage

log = structlog.get_logger("bot.ci.test_lists.make_time_lists")

EVERY = 1800.0  # seconds
MONTH = 30 * DAY
BLOCKS = 50  # read at a time
NAMES = ("test-times", "test-class-times", "slow-tests")


def periodic(_settings: Settings) -> dict[str, float]:
    """Return the seconds between runs, by task kind."""
    return {"test_lists_check": EVERY}


async def request_all_lists(context: Context, _task: Task) -> None:
    """Request the lists of every repository with results."""
    async with context.store.transaction() as tx:
        ours = await disabled_rows.repositories(tx, context.settings)
        for identifier in await rows.with_results(tx, ours):
            tx.enqueue("test_lists", str(identifier))
        tx.enqueue("test_reruns", "")


async def make_time_lists(context: Context, task: Task) -> None:
    """Make the lists of one repository (key: its id), if there are new results of stable commits."""
    if not task.key.isdigit():
        raise GiveUp(f"{task.key!r} is not the id of a repository")
    identifier = int(task.key)
    async with context.store.read() as tx:
        found = await stable_jobs.find_stable_jobs(tx, context.settings, identifier)
        before = await rows.find_source(tx, identifier)
    generations = sorted(job["generation"] for job in found)
    digest = hashlib.sha256(repr(generations).encode()).hexdigest()
    if not found or digest == before:
        return
    async with context.store.read() as tx:
        suites = await rows.suites_of_jobs(tx, generations)
        known = await rows.stored_times(tx, identifier)
    slow_tests = await _slow(context, found)
    kept, pages = await asyncio.to_thread(_made, known, found, suites, slow_tests, context.clock.now())
    async with context.store.transaction() as tx:
        await rows.replace_times(tx, identifier, kept)
        changed = [
            name for name, page in pages.items() if await list_rows.store_list(tx, identifier, name, page)
        ]
        await rows.store_source(tx, identifier, digest)
    log.info("lists made", repository=identifier, lists=changed, jobs=len(found))


async def _slow(context: Context, jobs: Sequence[TestJobRow]) -> dict[str, float]:
    """Return the slow tests by the names that PyTorch's CI gives them."""
    by_generation = {
        one["generation"]: (one["run_id"], one["family"])
        for one in jobs
        if slow.SANITIZER not in one["family"].casefold()
    }
    shards: Counter[Hashable] = Counter(by_generation.values())
    wanted: set[int] = set()
    async for blocks in _blocks(context, sorted(by_generation)):
        wanted |= await asyncio.to_thread(_candidates, blocks, by_generation, shards)
    sums = slow.no_sums()
    async for blocks in _blocks(context, sorted(by_generation) if wanted else []):
        await asyncio.to_thread(_add, sums, blocks, by_generation, wanted)
    means = slow.slow_means(sums)
    async with context.store.read() as tx:
        places = await rows.places_of_tests(tx, means)
    found: dict[str, float] = {}
    for test_id, place in places.items():
        if place.file:
            name = slow.test_key(place.name, place.suite)
            found[name] = max(found.get(name, 0.0), round(means[test_id], times.DIGITS))
    return found


async def _blocks(context: Context, generations: Sequence[int]) -> AsyncIterator[dict[int, bytes]]:
    """Yield the blocks of some jobs, a few at a time: all of them decoded would be hundreds of megabytes."""
    for start in range(0, len(generations), BLOCKS):
        async with context.store.read() as tx:
            yield await result_rows.blocks_of_jobs(tx, generations[start : start + BLOCKS])


def _candidates(
    blocks: Mapping[int, bytes], jobs: Mapping[int, Hashable], shards: Mapping[Hashable, int]
) -> set[int]:
    found: set[int] = set()
    for generation, one in blocks.items():
        found |= slow.candidates(block.decode(one), shards[jobs[generation]])
    return found


def _add(
    sums: slow.Sums, blocks: Mapping[int, bytes], jobs: Mapping[int, Hashable], wanted: Collection[int]
) -> None:
    for generation, one in blocks.items():
        slow.add_times(sums, jobs[generation], block.decode(one), wanted)


def _made(
    known: Mapping[tuple[str, str], PackedTimes],
    jobs: Sequence[TestJobRow],
    suites: Sequence[SuiteTime],
    slow_tests: dict[str, float],
    now: int,
) -> tuple[dict[tuple[str, str], PackedTimes], dict[str, CachedPage]]:
    """Return all times that are kept, and the lists made of them."""
    by_generation = {one["generation"]: one for one in jobs}
    spent = [
        _spent(by_generation[generation], launched_by or file, suite, milliseconds)
        for generation, launched_by, file, suite, milliseconds in suites
        if launched_by or file
    ]
    files, classes = _unpacked(known)
    newest = {place: one["at"] for place, one in known.items()}
    _renew(files, times.file_times(spent))
    _renew(classes, times.class_times(spent))
    for one in jobs:
        place = (one["base_name"], one["config"])
        newest[place] = max(newest.get(place, 0), one["at"])
    alive = {base_name for (base_name, _), at in newest.items() if at >= now - MONTH}
    files, classes = ({name: each[name] for name in sorted(alive & each.keys())} for each in (files, classes))
    kept = {
        (base_name, config): PackedTimes(
            files=rows.pack_times(seconds),
            classes=rows.pack_times(classes.get(base_name, {}).get(config, {})),
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
    return kept, {name: sent_lists.seal_list(content) for name, content in contents.items()}


def _unpacked(known: Mapping[tuple[str, str], PackedTimes]) -> tuple[times.Times, times.Times]:
    files: times.Times = {}
    classes: times.Times = {}
    for (base_name, config), one in known.items():
        files.setdefault(base_name, {})[config] = rows.unpack_times(one["files"])
        classes.setdefault(base_name, {})[config] = rows.unpack_times(one["classes"])
    return files, classes


def _renew(known: times.Times, measured: times.Times) -> None:
    """Replace what was measured again; the rest stays."""
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
