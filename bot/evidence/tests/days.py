"""The daily sums of tests, and the task test_days that keeps them. Its key is the repository's id."""

from __future__ import annotations

import asyncio
import sys
import zlib
from array import array
from bisect import bisect_left
from collections import defaultdict
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import sqlalchemy as sa

from bot.core.errors import GiveUp
from bot.db.rows import select
from bot.evidence.tests.known_tests import PAUSE
from bot.evidence.tests.parse.block import FLAKY, NO_TIME, Code, cases, outcome_of
from bot.evidence.tests.rows import DAY
from bot.evidence.tests.tables import (
    BASELINE,
    UNCOUNTED,
    JobBlock,
    JobCounted,
    JobGeneration,
    JobTimes,
    test_day,
    test_env,
    test_job,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.queue.tasks import Task

PAGE_BITS = 12
PAGE_SIZE = 1 << PAGE_BITS  # tests of a page
TIME_UNIT = 10  # milliseconds: times are rounded to that
INFLATED_MOST = 64 * 1024 * 1024
FIELDS = {Code.FAILED: 1, Code.TIMED_OUT: 1, Code.ERROR: 2, Code.CRASHED: 2, Code.SKIPPED: 4}
Sums = dict[int, list[int]]  # position in the page -> the fields of Counts
Changes = dict[int, dict[str, Sums]]  # page -> group -> what is added
TASK = "test_days"
TOGETHER = 60.0  # seconds in which further jobs are awaited
AT_LATEST = 600.0
JOBS = 10  # counted in one transaction
PAGES_READ = 2_000  # rows of one question
JOB, DAYS = test_job.c, test_day.c


class _Group(msgspec.Struct, array_like=True):
    positions: bytes  # u16, differences
    runs: bytes  # u32
    units: bytes  # u32
    rest: dict[int, tuple[int, int, int, int]]  # position -> failed, errors, flaky, skipped


_GROUP = msgspec.msgpack.Decoder(_Group)


class _JobRow(JobGeneration, JobTimes, JobCounted, JobBlock):
    counts: bool  # whether the sums are to hold it
    env_group: str


class Counts(NamedTuple):
    """How a test did in trusted runs; a flaky run also counts by its outcome."""

    runs: int = 0
    failed: int = 0
    erred: int = 0
    flaky: int = 0
    skips: int = 0
    units: int = 0

    @property
    def passed(self) -> int:
        """Runs in which it passed, or failed as expected."""
        return self.runs - self.failed - self.erred - self.skips

    @property
    def time_ms(self) -> int:
        """The total time of all runs."""
        return self.units * TIME_UNIT

    def plus(self, other: Counts) -> Counts:
        """Return the sum of both."""
        return Counts(*map(sum, zip(self, other, strict=True)))


def page_of_test(test_id: int) -> int:
    """Return the page of a test."""
    return test_id >> PAGE_BITS


def add_block(changes: Changes, block: bytes | None, group: str, sign: int) -> None:
    """Add the cases of a job's block, or subtract them with sign -1."""
    for test_id, code, time in cases(block):
        sums = changes[test_id >> PAGE_BITS][group][test_id & PAGE_SIZE - 1]
        sums[0] += sign
        field = FIELDS.get(outcome_of(code))
        if field:
            sums[field] += sign
        if code & FLAKY:
            sums[3] += sign
        if time != NO_TIME:
            sums[5] += sign * ((time + TIME_UNIT // 2) // TIME_UNIT)


def no_changes() -> Changes:
    """Return an empty collection of changes."""
    return defaultdict(lambda: defaultdict(lambda: defaultdict(lambda: [0] * 6)))


def changed_page(stored: bytes | None, changes: Mapping[str, Sums]) -> bytes | None:
    """Apply changes to a page; None if nothing is left of it."""
    groups = _groups(stored)
    for group, added in changes.items():
        sums = _decoded(groups[group]) if group in groups else {}
        for position, values in added.items():
            before = sums.get(position)
            sums[position] = (
                values if before is None else [a + b for a, b in zip(before, values, strict=True)]
            )
        kept = {position: values for position, values in sums.items() if values[0] > 0}
        if kept:
            groups[group] = _encoded(kept)
        else:
            groups.pop(group, None)
    ordered = {group: groups[group] for group in sorted(groups)}
    return zlib.compress(msgspec.msgpack.encode(ordered), 6) if ordered else None


def counts_of_tests(stored: bytes, test_ids: Iterable[int]) -> Iterator[tuple[int, str, Counts]]:
    """Yield test, group and counts for some tests of a page."""
    wanted = [(test_id, test_id & PAGE_SIZE - 1) for test_id in test_ids]
    for name, encoded in _groups(stored).items():
        group = _GROUP.decode(encoded)
        positions = list(accumulate(_array("H", group.positions)))
        runs, units = _array("I", group.runs), _array("I", group.units)
        for test_id, position in wanted:
            at = bisect_left(positions, position)
            if at < len(positions) and positions[at] == position:
                rest = group.rest.get(position, (0, 0, 0, 0))
                yield test_id, name, Counts(runs[at], *rest, units[at])


def request_days(tx: Transaction, repository_id: int) -> None:
    """Request an update of a repository's daily sums."""
    tx.enqueue(TASK, str(repository_id), delay=TOGETHER, max_wait=AT_LATEST)


async def count_days(context: Context, task: Task) -> None:
    """Count the jobs that are not counted yet."""
    if not task.key.lstrip("-").isdigit():
        raise GiveUp(f"{task.key!r} is not the id of a repository")
    while await _count(context, int(task.key)):
        await context.clock.sleep(PAUSE)


async def days_of_tests(
    tx: Transaction, repository_id: int, test_ids: Collection[int], *, since: int, until: int
) -> dict[int, dict[int, dict[str, Counts]]]:
    """Return the counts of tests in trusted runs from `since` to `until`: test -> day -> group -> counts."""
    by_page: dict[int, list[int]] = {}
    for test_id in test_ids:
        by_page.setdefault(page_of_test(test_id), []).append(test_id)
    query = sa.select(DAYS.page, DAYS.day, DAYS.counts).where(
        DAYS.repository_id == repository_id, DAYS.page.in_(sorted(by_page)), DAYS.day.between(since, until)
    )
    stored = [tuple(row) for row in (await tx.run(query.order_by(DAYS.day).limit(PAGES_READ))).all()]
    return await asyncio.to_thread(_history, stored, by_page)


def _groups(stored: bytes | None) -> dict[str, msgspec.Raw]:
    if stored is None:
        return {}
    content = zlib.decompressobj().decompress(stored, INFLATED_MOST)
    return msgspec.msgpack.decode(content, type=dict[str, msgspec.Raw])


def _decoded(encoded: msgspec.Raw) -> Sums:
    group = _GROUP.decode(encoded)
    positions = accumulate(_array("H", group.positions))
    sums = {
        position: [runs, 0, 0, 0, 0, units]
        for position, runs, units in zip(
            positions, _array("I", group.runs), _array("I", group.units), strict=True
        )
    }
    for position, rest in group.rest.items():
        sums[position][1:5] = rest
    return sums


def _encoded(sums: Sums) -> msgspec.Raw:
    order = sorted(sums)
    deltas = (after - before for before, after in zip([0, *order], order, strict=False))
    group = _Group(
        positions=_bytes("H", deltas),
        runs=_bytes("I", (sums[test_id][0] for test_id in order)),
        units=_bytes("I", (max(sums[test_id][5], 0) for test_id in order)),
        rest={
            test_id: (rest[0], rest[1], rest[2], rest[3])
            for test_id in order
            if any(rest := sums[test_id][1:5])
        },
    )
    return msgspec.Raw(msgspec.msgpack.encode(group))


def _array(kind: str, content: bytes) -> array[int]:
    values: array[int] = array(kind, content)
    if sys.byteorder == "big":
        values.byteswap()
    return values


def _bytes(kind: str, numbers: Iterable[int]) -> bytes:
    values = array(kind, numbers)
    if sys.byteorder == "big":
        values.byteswap()
    return values.tobytes()


async def _count(context: Context, repository_id: int) -> bool:
    """Count a few jobs; return whether there were any."""
    async with context.store.read() as tx:
        jobs = await _uncounted(tx, repository_id)
    if not jobs:
        return False
    by_day = await asyncio.to_thread(_changes, jobs)
    async with context.store.read() as tx:
        pages = [(page, day) for day, changes in by_day.items() for page in changes]
        stored = await _stored(tx, repository_id, pages)
    rows = await asyncio.to_thread(_rows, by_day, stored)
    async with context.store.transaction() as tx:
        if [_identity(job) for job in await _uncounted(tx, repository_id)] != [
            _identity(job) for job in jobs
        ]:
            return True  # made again in between
        await _store(tx, repository_id, rows)
        for job in jobs:
            marks = {
                "counted": job["generation"] if job["counts"] else 0,
                "counted_day": job["at"] // DAY if job["counts"] else None,
                "counted_group": job["env_group"] if job["counts"] else None,
                "counted_block": None,
            }
            await tx.run(sa.update(test_job).where(JOB.generation == job["generation"]).values(marks))
    return True


async def _uncounted(tx: Transaction, repository_id: int) -> list[_JobRow]:
    query = (
        select(_JobRow, test_job, test_env, counts=sa.case((BASELINE, sa.true()), else_=sa.false()))
        .select_from(test_job.join(test_env, test_env.c.id == JOB.env_id))
        .where(JOB.repository_id == repository_id, UNCOUNTED)
        .order_by(JOB.at, JOB.generation)
    )
    return await tx.fetch(query.limit(JOBS))


def _identity(job: _JobRow) -> tuple[int, int, bool]:
    return job["generation"], job["counted"], bool(job["counts"])


def _changes(jobs: Sequence[_JobRow]) -> dict[int, Changes]:
    """Return, by day, what these jobs add to the sums."""
    by_day: dict[int, Changes] = {}
    for job in jobs:
        if job["counted"]:
            former = job["block"] if job["counted"] == job["generation"] else job["counted_block"]
            changes = by_day.setdefault(job["counted_day"] or 0, no_changes())
            add_block(changes, former, job["counted_group"] or "", -1)
        if job["counts"]:
            changes = by_day.setdefault(job["at"] // DAY, no_changes())
            add_block(changes, job["block"], job["env_group"], 1)
    return by_day


def _rows(
    by_day: dict[int, Changes], stored: dict[tuple[int, int], bytes]
) -> list[tuple[int, int, bytes | None]]:
    return [
        (page, day, changed_page(stored.get((page, day)), groups))
        for day, changes in by_day.items()
        for page, groups in changes.items()
    ]


async def _stored(
    tx: Transaction, repository_id: int, pages: Sequence[tuple[int, int]]
) -> dict[tuple[int, int], bytes]:
    query = sa.select(DAYS.page, DAYS.day, DAYS.counts).where(
        DAYS.repository_id == repository_id, tx.among((DAYS.page, DAYS.day), pages)
    )
    return {(row.page, row.day): row.counts for row in await tx.run(query)}


async def _store(tx: Transaction, repository_id: int, rows: Sequence[tuple[int, int, bytes | None]]) -> None:
    kept = [
        {"repository_id": repository_id, "page": page, "day": day, "counts": counts}
        for page, day, counts in rows
        if counts is not None
    ]
    if kept:
        await tx.upsert(test_day, kept, replaced=("counts",))
    if empty := [(page, day) for page, day, counts in rows if counts is None]:
        mine = DAYS.repository_id == repository_id
        await tx.run(sa.delete(test_day).where(mine, tx.among((DAYS.page, DAYS.day), empty)))


def _history(
    stored: Sequence[tuple[int, int, bytes]], by_page: dict[int, list[int]]
) -> dict[int, dict[int, dict[str, Counts]]]:
    history: dict[int, dict[int, dict[str, Counts]]] = {}
    for page, day, counts in stored:
        for test_id, group, day_counts in counts_of_tests(counts, by_page[page]):
            history.setdefault(test_id, {}).setdefault(day, {})[group] = day_counts
    return history
