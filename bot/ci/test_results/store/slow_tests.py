"""The slowest tests of the newest trusted jobs, by their blocks: no row has the time of a test that passes."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, NamedTuple

import sqlalchemy as sa

from bot.ci.test_results.job_tables import BASELINE
from bot.ci.test_results.parse import block
from bot.ci.test_results.store import rows
from bot.ci.test_results.store.rows import JOB

if TYPE_CHECKING:
    from collections.abc import Collection

    from bot.db.transaction import Transaction

JOBS = 200
BATCH = 50  # blocks that are held at a time
SHORTEST = 1_000  # milliseconds of a test that is slow


class Slow(NamedTuple):
    """A test, and the longest it took in one of the newest jobs."""

    time_ms: int
    test_id: int


async def slowest_tests(
    tx: Transaction, repository_ids: Collection[int], *, since: int, limit: int
) -> list[Slow]:
    """Return the tests that took longest, the slowest first."""
    query = sa.select(JOB.generation).where(
        BASELINE, JOB.repository_id.in_(sorted(repository_ids)), JOB.at >= since
    )
    generations = list((await tx.run(query.order_by(JOB.at.desc()).limit(JOBS))).scalars())
    times: dict[int, int] = {}
    for at in range(0, len(generations), BATCH):
        for content in (await rows.blocks_of_jobs(tx, generations[at : at + BATCH])).values():
            _add(times, content)
    slow = heapq.nlargest(limit, ((time, -test_id) for test_id, time in times.items()))
    return [Slow(time, -test_id) for time, test_id in slow]


def _add(times: dict[int, int], content: bytes) -> None:
    found = block.decode(content)
    for test_id, time in zip(found.ids, found.times, strict=True):
        if SHORTEST <= time < block.NO_TIME and time > times.get(test_id, 0):
            times[test_id] = time
