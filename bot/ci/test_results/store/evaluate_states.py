"""test_states: finds flaky and broken tests. Key: a repository's id, or empty for tests that may be healthy again.

Asked for when a trusted job failed; it looks at tests with failures since they were looked at last.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

import sqlalchemy as sa

from bot.ci.test_results import states
from bot.ci.test_results.job_tables import BASELINE, test_job
from bot.ci.test_results.parse import block
from bot.ci.test_results.parse.block import FAILING, PASSING
from bot.ci.test_results.states import Judged, Observation, State
from bot.ci.test_results.store import rows
from bot.ci.test_results.store.earlier_rows import distrust_pulls, request_reading
from bot.ci.test_results.store.known_tests import PAUSE, in_batches
from bot.ci.test_results.store.rows import tested
from bot.ci.test_results.tables import StateRow, test, test_env, test_failure, test_state, test_summary
from bot.core.errors import GiveUp
from bot.db.rows import select

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.queue.tasks import Task

TASK = "test_states"
TOGETHER, AT_LATEST = 60.0, 600.0  # seconds in which further jobs are awaited
AGAIN = 6 * 3600 * 1000  # milliseconds until a test that is not healthy is looked at without a failure
TESTS_MOST = 1_000  # looked at in one run
JOBS_MOST = 300  # newest ones that ran a suite
BLOCKS = 50  # decoded at a time
BY_US = "bot"
STATE, FAILURE, JOB, SUMMARY = test_state.c, test_failure.c, test_job.c, test_summary.c


class _Ran(NamedTuple):
    generation: int
    env_group: str


def request(tx: Transaction, repository_id: int) -> None:
    """Have the tests of a repository looked at that failed in trusted runs."""
    tx.enqueue(TASK, str(repository_id), delay=TOGETHER, max_wait=AT_LATEST)


async def evaluate_states(context: Context, task: Task) -> None:
    """Look at the tests that may have another state now."""
    if not task.key:
        async with context.store.transaction() as tx:
            await distrust_pulls(tx)
            await request_reading(tx)
    async with context.store.read() as tx:
        if task.key:
            found = {_repository(task.key): await _failing(tx, _repository(task.key))}
        else:
            found = await _unhealthy(tx)
    for repository_id, test_ids in found.items():
        await _evaluate(context, repository_id, test_ids)


def _repository(key: str) -> int:
    if not key.lstrip("-").isdigit():
        raise GiveUp(f"{key!r} is not the id of a repository")
    return int(key)


async def _failing(tx: Transaction, repository_id: int) -> list[int]:
    """Return the tests that failed in trusted runs since they were looked at."""
    newest = sa.func.max(FAILURE.generation)
    looked = sa.select(sa.func.max(STATE.at)).where(
        STATE.repository_id == repository_id, STATE.test_id == FAILURE.test_id
    )
    query = (
        sa.select(FAILURE.test_id)
        .where(FAILURE.repository_id == repository_id, FAILURE.trusted, FAILURE.at > tx.now - states.WINDOW)
        .group_by(FAILURE.test_id)
        .having(newest > sa.func.coalesce(looked.scalar_subquery(), 0) * rows.GENERATIONS)
        .order_by(newest.desc())
    )
    return list((await tx.run(query.limit(TESTS_MOST))).scalars())


async def _unhealthy(tx: Transaction) -> dict[int, list[int]]:
    """Return the tests that are not healthy and have not been looked at for long, by repository."""
    waiting = (STATE.state.in_([State.FLAKY.value, State.BROKEN.value]), STATE.at <= tx.now - AGAIN)
    query = sa.select(STATE.repository_id, STATE.test_id).where(*waiting).order_by(STATE.at)
    found: dict[int, list[int]] = defaultdict(list)
    for row in await tx.run(query.limit(TESTS_MOST)):
        found[row.repository_id].append(row.test_id)
    return found


async def _evaluate(context: Context, repository_id: int, test_ids: Sequence[int]) -> None:
    by_class: dict[int, list[int]] = defaultdict(list)
    async with context.store.read() as tx:
        for some in in_batches(sorted(set(test_ids))):
            found = await tx.run(sa.select(test.c.id, test.c.class_id).where(test.c.id.in_(some)))
            for row in found:
                by_class[row.class_id].append(row.id)
    for class_id, tests in by_class.items():
        async with context.store.read() as tx:
            now = tx.now
            seen = await _seen(tx, class_id, tests, since=now - states.QUIET_TIME)
            before = await states_of_tests(tx, tests)
        known = {(row["test_id"], row["env_group"]): row for row in before}
        new = [
            _row(repository_id, key, seen.get(key, []), known.get(key), now)
            for key in sorted({*seen, *known})
        ]
        async with context.store.transaction() as tx:
            for some_rows in in_batches(new):
                await store_states(tx, some_rows)
        await context.clock.sleep(PAUSE)


def _row(
    repository_id: int, key: tuple[int, str], seen: Sequence[Observation], known: StateRow | None, now: int
) -> StateRow:
    before = Judged(State(known["state"]), known["since"], known["evidence"]) if known else None
    judged = states.evaluate(seen, before, now=now)
    same = known is not None and known["state"] == judged.state
    return {
        "repository_id": repository_id,
        "test_id": key[0],
        "env_group": key[1],
        "state": judged.state.value,
        "since": judged.since,
        "evidence": judged.evidence,
        "issue": known["issue"] if known else None,
        "by": known["by"] if known and same else BY_US,
        "at": now,
    }


async def _seen(
    tx: Transaction, class_id: int, test_ids: Collection[int], *, since: int
) -> dict[tuple[int, str], list[Observation]]:
    """Return what the newest trusted jobs that ran a suite said of some of its tests, by test and environment."""
    query = (
        sa.select(JOB.generation, test_env.c.env_group)
        .select_from(
            test_summary.join(test_job, JOB.generation == SUMMARY.generation).join(
                test_env, test_env.c.id == JOB.env_id
            )
        )
        .where(SUMMARY.class_id == class_id, SUMMARY.at > since, BASELINE)
        .order_by(SUMMARY.at.desc())
    )
    ran = {row.generation: row.env_group for row in await tx.run(query.limit(JOBS_MOST))}
    found: dict[tuple[int, str], list[Observation]] = defaultdict(list)
    for some in in_batches(sorted(ran), BLOCKS):
        jobs = {job["generation"]: job for job in await rows.jobs_by_generation(tx, some)}
        blocks = await rows.blocks_of_jobs(tx, some)
        for generation, said in (await asyncio.to_thread(_said, blocks, test_ids)).items():
            job = jobs[generation]
            for test_id, cases in said.items():
                found[test_id, ran[generation]].append(
                    Observation(
                        at=job["at"],
                        job_id=job["job_id"],
                        sha=tested(job),
                        job_family=job["family"],
                        failed=any(one.code in FAILING for one in cases),
                        flaky=any(one.is_flaky for one in cases),
                    )
                )
    return found


def _said(
    blocks: Mapping[int, bytes], test_ids: Collection[int]
) -> dict[int, dict[int, list[block.BlockCase]]]:
    """Return what jobs said of some tests, as far as these ran."""
    found: dict[int, dict[int, list[block.BlockCase]]] = {}
    for generation, content in blocks.items():
        decoded = block.decode(content)
        cases = ((one, decoded.find(one)) for one in test_ids)
        found[generation] = {
            one: said for one, said in cases if any(case.code in PASSING | FAILING for case in said)
        }
    return found


async def states_of_tests(tx: Transaction, test_ids: Collection[int]) -> list[StateRow]:
    """Return the states of some tests."""
    query = select(StateRow, test_state).where(STATE.test_id.in_(sorted(test_ids)))
    return await tx.fetch(query.order_by(STATE.test_id, STATE.env_group))


async def store_states(tx: Transaction, new: Sequence[StateRow]) -> None:
    """Store states in place of what was there."""
    if new:
        await tx.upsert(test_state, new, replaced=[one.name for one in STATE if not one.primary_key])
        tx.note_changed("test_state", new)


async def reset_test(tx: Transaction, repository_id: int, test_id: int, *, by: str) -> int:
    """Call a test mended, in all environments: nothing before now counts; returns in how many it was not healthy."""
    before = [row for row in await states_of_tests(tx, [test_id]) if row["repository_id"] == repository_id]
    mended = states.reset(tx.now)
    values: Any = {
        "state": mended.state.value, "since": mended.since, "evidence": mended.evidence, "by": by, "at": tx.now,
    }  # fmt: skip
    changed: list[Any] = [{**row, **values} for row in before]
    await store_states(tx, changed)
    return sum(row["state"] != State.HEALTHY for row in before)
