"""Tasks test_lists_check and test_lists: the lists of how long tests take, made anew when stable commits are new.

What was measured before and is not measured now stays; base names go a month after their last job.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

import structlog

from bot.ci.disabled import rows as disabled_rows
from bot.ci.disabled import sent_lists
from bot.ci.test_lists import rows, slow, stable_jobs, times
from bot.ci.test_lists.rows import Stored
from bot.ci.test_lists.times import Spent
from bot.ci.test_results import block
from bot.ci.test_results import rows as result_rows
from bot.ci.test_results.rows import DAY
from bot.core.errors import GiveUp

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bot.ci.test_lists.rows import SuiteRow
    from bot.ci.test_lists.stable_jobs import StableJob
    from bot.ci.test_results.block import Block
    from bot.context import Context
    from bot.core.settings import Settings
    from bot.queue.tasks import Task

log = structlog.get_logger("bot.ci.test_lists.make")

EVERY = 1800.0  # seconds
MONTH = 30 * DAY
BLOCKS = 50  # read at a time
NAMES = ("test-times", "test-class-times", "slow-tests")
Jobs = dict[tuple[int, str], list["StableJob"]]  # the shards of each job


class _Measured(NamedTuple):
    """What stable commits say."""

    files: times.Times
    classes: times.Times
    slow: dict[str, float]
    newest: dict[tuple[str, str], int]  # when the last job of a base name and configuration ran


def periodic(_settings: Settings) -> dict[str, float]:
    """Return the seconds between runs, by task kind."""
    return {"test_lists_check": EVERY}


async def check(context: Context, _task: Task) -> None:
    """Have the lists of every repository with results made anew."""
    async with context.store.transaction() as tx:
        ours = await disabled_rows.repositories(tx, context.settings)
        for identifier in await rows.with_results(tx, ours):
            tx.enqueue("test_lists", str(identifier))
        tx.enqueue("test_reruns", "")


async def run(context: Context, task: Task) -> None:
    """Make the lists of one repository (key: its id), if there are new results of stable commits."""
    if not task.key.isdigit():
        raise GiveUp(f"{task.key!r} is no repository's id")
    identifier = int(task.key)
    async with context.store.read() as tx:
        found = await stable_jobs.find(tx, context.settings, identifier)
        before = await rows.source(tx, identifier)
    generations = sorted(job["generation"] for job in found)
    digest = hashlib.sha256(repr(generations).encode()).hexdigest()
    if not found or digest == before:
        return
    measured = await _measure(context, found)
    async with context.store.read() as tx:
        known = await rows.times(tx, identifier)
    new = _renewed(known, measured)
    async with context.store.transaction() as tx:
        await rows.store_times(tx, identifier, new)
        await rows.forget_times(tx, identifier, before=tx.now - MONTH)
        kept = await rows.times(tx, identifier)
    pages = await asyncio.to_thread(_pages, kept, measured.slow)
    async with context.store.transaction() as tx:
        changed = [name for name, page in pages.items() if await sent_lists.store(tx, identifier, name, page)]
        await rows.store_source(tx, identifier, digest)
    log.info("lists made", repository=identifier, lists=changed, jobs=len(found))


async def _measure(context: Context, found: Sequence[StableJob]) -> _Measured:
    jobs: Jobs = defaultdict(list)
    for one in found:
        jobs[one["run_id"], one["family"]].append(one)
    by_generation = {one["generation"]: one for one in found}
    async with context.store.read() as tx:
        suites = await rows.suites(tx, sorted(by_generation))
    spent = [
        _spent(by_generation[row["generation"]], row) for row in suites if row["invoking_file"] or row["file"]
    ]
    newest: dict[tuple[str, str], int] = {}
    for one in found:
        place = (one["base_name"], one["config"])
        newest[place] = max(newest.get(place, 0), one["at"])
    files, classes = await asyncio.to_thread(lambda: (times.of_files(spent), times.of_classes(spent)))
    return _Measured(files, classes, await _slow(context, jobs), newest)


def _spent(job: StableJob, suite: SuiteRow) -> Spent:
    return Spent(
        job=(job["run_id"], job["family"]),
        base_name=job["base_name"],
        config=job["config"],
        file=suite["invoking_file"] or suite["file"],
        suite=suite["suite"],
        time_ms=suite["time_ms"],
    )


async def _slow(context: Context, jobs: Mapping[tuple[int, str], Sequence[StableJob]]) -> dict[str, float]:
    """Return the slow tests by the names that PyTorch's CI gives them."""
    wanted = {key: shards for key, shards in jobs.items() if slow.SANITIZER not in key[1].casefold()}
    blocks: defaultdict[Any, list[Block]] = defaultdict(list)
    for key, shards in wanted.items():
        generations = [one["generation"] for one in shards]
        for start in range(0, len(generations), BLOCKS):
            async with context.store.read() as tx:
                read = await result_rows.blocks(tx, generations[start : start + BLOCKS])
            blocks[key] += await asyncio.to_thread(_decoded, list(read.values()))
    means = await asyncio.to_thread(_slow_ids, blocks)
    async with context.store.read() as tx:
        places = await rows.places(tx, means)
    found: dict[str, float] = {}
    for test_id, place in places.items():
        if place.file:
            name = slow.key(place.name, place.suite)
            found[name] = max(found.get(name, 0.0), round(means[test_id], times.DIGITS))
    return found


def _decoded(blocks: Sequence[bytes]) -> list[Block]:
    return [block.decode(one) for one in blocks]


def _slow_ids(blocks: Mapping[Any, Sequence[Block]]) -> dict[int, float]:
    wanted = slow.candidates(one for several in blocks.values() for one in several)
    return slow.means(blocks, wanted)


def _renewed(known: Mapping[tuple[str, str], Stored], measured: _Measured) -> dict[tuple[str, str], Stored]:
    """Return what was measured now, and what was known before of the same base names and configurations."""
    new = {}
    for base_name, config in sorted(measured.newest):
        files = measured.files.get(base_name, {}).get(config, {})
        classes = measured.classes.get(base_name, {}).get(config, {})
        before = known.get((base_name, config), Stored({}, {}, 0))
        at = max(before.at, measured.newest[base_name, config])
        new[base_name, config] = Stored(before.files | files, before.classes | classes, at)
    return new


def _pages(known: Mapping[tuple[str, str], Stored], slow_tests: dict[str, float]) -> dict[str, Any]:
    files: times.Times = {}
    classes: times.Times = {}
    for (base_name, config), stored in known.items():
        files.setdefault(base_name, {})[config] = stored.files
        classes.setdefault(base_name, {})[config] = stored.classes
    of_classes = times.rounded(times.with_defaults(classes))
    contents: dict[str, dict[str, Any]] = {
        "test-times": times.rounded(times.with_defaults(files)),
        "test-class-times": times.by_file_and_class(of_classes),
        "slow-tests": slow_tests,
    }
    return {name: sent_lists.sealed(content) for name, content in contents.items()}
