"""Tests that a run lost or skips since the trusted run before it, and the task test_losses that finds them."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import sqlalchemy as sa

from bot.core.errors import GiveUp
from bot.db.rows import TypedSelect, select
from bot.evidence.collect.tables import ci_fetch
from bot.evidence.tests import rows
from bot.evidence.tests.parse import block
from bot.evidence.tests.rows import DAY, JOB, tested_commit
from bot.evidence.tests.tables import (
    BASELINE,
    LossRow,
    SuitePlace,
    TestJobRow,
    test_class,
    test_loss,
    test_summary,
)
from bot.ingest.tables import records
from bot.jobs.collection import FetchState

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.queue.tasks import Task

LEAST = 5  # tests: of fewer, a share says nothing
FIFTH = 5  # what is told is a fifth, of the tests or as a difference of shares
LOSS, CLASS, SUMMARY, FETCH = test_loss.c, test_class.c, test_summary.c, ci_fetch.c
RECORD, RUN = records["workflow_job"].c, records["workflow_run"].c
AGE = 14 * DAY  # of the run before
RUNS = 5  # before, in which one is looked for that is complete
FAMILIES_MOST = 500  # of a run
SUITES_MOST = 50  # of a family that are told
EXAMPLES = 20
WHOLE = 0  # in place of a suite's id


class LossKind(StrEnum):
    """What a run lost."""

    LOST = "lost"  # a fifth of the tests, or more, no longer runs
    SKIPPED = "skipped"  # the share of skipped tests rose by a fifth of all, or more
    GONE = "gone"  # tests that ran before and are not there any more, whether many or few


class LossCounts(NamedTuple):
    """Tests that a run reported, and those of them that were skipped."""

    tests: int = 0
    skipped: int = 0


class ListedLoss(LossRow, SuitePlace):
    """A loss with its file and suite, which are empty for a loss of the jobs as a whole."""


class _Lost(NamedTuple):
    """What a suite lost."""

    suite: int
    kind: LossKind
    before: LossCounts
    now: LossCounts


def loss_kinds(before: LossCounts, now: LossCounts) -> list[LossKind]:
    """Return what a suite or job lost between two complete runs.

    >>> loss_kinds(LossCounts(100, 10), LossCounts(80, 9))
    [<LossKind.LOST: 'lost'>]
    >>> loss_kinds(LossCounts(100, 10), LossCounts(100, 30))
    [<LossKind.SKIPPED: 'skipped'>]
    >>> loss_kinds(LossCounts(100, 10), LossCounts(81, 24))
    []
    """
    if before.tests < LEAST:
        return []
    kinds = [LossKind.LOST] if now.tests * FIFTH <= before.tests * (FIFTH - 1) else []
    risen = now.skipped * before.tests - before.skipped * now.tests
    if now.tests >= LEAST and risen * FIFTH >= now.tests * before.tests:
        kinds.append(LossKind.SKIPPED)
    return kinds


def losses_of_suites(
    before: Mapping[int, LossCounts], now: Mapping[int, LossCounts], *, most: int
) -> list[tuple[int, LossKind]]:
    """Return what each suite lost, the greatest loss of tests first."""
    losses = [
        (suite, kind)
        for suite, counts in before.items()
        for kind in loss_kinds(counts, now.get(suite, LossCounts()))
    ]
    return sorted(
        losses, key=lambda loss: (now.get(loss[0], LossCounts()).tests - before[loss[0]].tests, loss)
    )[:most]


async def conclusions(
    tx: Transaction, repository_id: int, jobs: Collection[TestJobRow]
) -> dict[int, str | None]:
    """Return the conclusions of jobs on GitHub, by generation; an unknown job has its run's."""
    ids = sorted({job["job_id"] for job in jobs if job["job_id"] > 0})
    runs = sorted({job["run_id"] for job in jobs})
    own = sa.select(RECORD.id, RECORD.conclusion).where(
        RECORD.repository_id == repository_id, RECORD.id.in_(ids)
    )
    by_job = {row.id: row.conclusion for row in await tx.run(own)}
    whole = sa.select(RUN.id, RUN.run_attempt, RUN.conclusion).where(
        RUN.repository_id == repository_id, RUN.id.in_(runs)
    )
    by_run = {(row.id, row.run_attempt): row.conclusion for row in await tx.run(whole)}
    return {
        job["generation"]: by_job.get(job["job_id"])
        if job["job_id"] > 0
        else by_run.get((job["run_id"], job["run_attempt"]))
        for job in jobs
    }


async def is_awaited(tx: Transaction, repository_id: int, run_id: int) -> bool:
    """Whether some artifacts of a run have yet to be fetched."""
    query = sa.select(FETCH.object_id).where(
        FETCH.repository_id == repository_id,
        FETCH.run_id == run_id,
        FETCH.kind == "artifact",
        FETCH.state == FetchState.WANTED,
    )
    return (await tx.run(query.limit(1))).scalar() is not None


async def runs_before(
    tx: Transaction, repository_id: int, family: str, *, run_id: int, since: int, until: int, limit: int
) -> list[int]:
    """Return the trusted runs of a family before another run, the newest first."""
    query = sa.select(JOB.run_id).where(
        BASELINE,
        JOB.repository_id == repository_id,
        JOB.family == family,
        JOB.at >= since,
        JOB.at < until,
        JOB.run_id != run_id,
    )
    newest = query.group_by(JOB.run_id).order_by(sa.func.max(JOB.at).desc(), JOB.run_id.desc())
    return list((await tx.run(newest.limit(limit))).scalars())


async def jobs_of(tx: Transaction, repository_id: int, run_id: int, family: str) -> list[TestJobRow]:
    """Return a run's jobs of a family."""
    query = rows.JOBS.where(JOB.repository_id == repository_id, JOB.run_id == run_id, JOB.family == family)
    return await tx.fetch(query.order_by(JOB.run_attempt, JOB.job_id))


async def counts_by_suite(tx: Transaction, generations: Sequence[int]) -> dict[int, LossCounts]:
    """Count the tests that jobs reported, by suite."""
    query = (
        sa.select(SUMMARY.class_id, sa.func.sum(SUMMARY.tests), sa.func.sum(SUMMARY.skipped))
        .where(SUMMARY.generation.in_(generations))
        .group_by(SUMMARY.class_id)
    )
    return {
        class_id: LossCounts(int(tests), int(skipped)) for class_id, tests, skipped in await tx.run(query)
    }


async def replace_losses(tx: Transaction, repository_id: int, run_id: int, losses: Sequence[LossRow]) -> None:
    """Replace what is stored of a run's losses."""
    mine = sa.and_(LOSS.repository_id == repository_id, LOSS.run_id == run_id)
    await tx.run(sa.delete(test_loss).where(mine))
    if losses:
        await tx.run(sa.insert(test_loss), [{**row} for row in losses])
    tx.note_changed("test_loss", [{"repository_id": repository_id, "run_id": run_id}])


async def newest_losses(
    tx: Transaction, repository_ids: Collection[int], *, since: int, skipped: int, limit: int
) -> list[ListedLoss]:
    """Return the losses of a repository's runs in a window, the newest run and the greatest loss first."""
    query = _listed().where(LOSS.repository_id.in_(sorted(repository_ids)), LOSS.at >= since)
    return await tx.fetch(_ordered(query).offset(skipped).limit(limit))


async def losses_on_commit(tx: Transaction, sha: str, *, limit: int) -> list[ListedLoss]:
    """Return the losses of upstream's and backends' runs on a commit; the caller decides which may be shown."""
    return await tx.fetch(_ordered(_listed().where(LOSS.head_sha == sha)).limit(limit))


async def find_losses(context: Context, task: Task) -> None:
    """Compare a run with the trusted run before it."""
    repository_id, run_id = _key(task.key)
    async with context.store.read() as tx:
        if await is_awaited(tx, repository_id, run_id):
            return  # what is fetched last asks again
        families: dict[str, list[TestJobRow]] = defaultdict(list)
        for job in await rows.jobs_of_run(tx, repository_id, run_id):
            families[job["family"]].append(job)
        losses: list[LossRow] = []
        for _, jobs in sorted(families.items())[:FAMILIES_MOST]:
            losses += await _of_family(tx, jobs)
    async with context.store.transaction() as tx:
        await replace_losses(tx, repository_id, run_id, losses)


def _listed() -> TypedSelect[ListedLoss]:
    texts = {name: sa.func.coalesce(CLASS[name], "") for name in ("file", "suite")}
    joined = test_loss.outerjoin(test_class, CLASS.id == LOSS.class_id)
    return select(ListedLoss, test_loss, **texts).select_from(joined)


def _ordered(query: TypedSelect[ListedLoss]) -> TypedSelect[ListedLoss]:
    return query.order_by(
        LOSS.at.desc(), LOSS.run_id, (LOSS.tests - LOSS.tests_before), LOSS.family, LOSS.class_id, LOSS.kind
    )


async def _of_family(tx: Transaction, all_jobs: Sequence[TestJobRow]) -> list[LossRow]:
    jobs = await _complete(tx, all_jobs)
    if not jobs or not (jobs[0]["trusted"] or jobs[0]["backend"]):
        return []
    before = await _before(tx, jobs[0], at=min(job["at"] for job in jobs))
    if not before:
        return []
    sides = [await counts_by_suite(tx, [job["generation"] for job in side]) for side in (before, jobs)]
    whole = [_sum(side) for side in (before, jobs)]
    lost = [_Lost(WHOLE, kind, *whole) for kind in loss_kinds(*whole)]
    for suite, kind in losses_of_suites(*sides, most=SUITES_MOST):
        lost.append(_Lost(suite, kind, sides[0][suite], sides[1].get(suite, LossCounts())))
    rows_of_family = [_row(before, jobs, loss) for loss in lost]
    was, now = await _ids(tx, before), await _ids(tx, jobs)
    if gone := was - now if was and now else None:
        row = _row(before, jobs, _Lost(WHOLE, LossKind.GONE, *whole))
        rows_of_family.append({**row, "gone": len(gone), "examples": sorted(gone)[:EXAMPLES]})
    return rows_of_family


async def _before(tx: Transaction, job: TestJobRow, *, at: int) -> list[TestJobRow]:
    """Return the jobs of the newest complete trusted run of the same family."""
    repository_id, family = job["repository_id"], job["family"]
    runs = await runs_before(
        tx, repository_id, family, run_id=job["run_id"], since=at - AGE, until=at, limit=RUNS
    )
    for run_id in runs:
        jobs = await _complete(tx, await jobs_of(tx, repository_id, run_id, family))
        if jobs and all(job["trusted"] for job in jobs):
            return jobs
    return []


async def _complete(tx: Transaction, jobs: Iterable[TestJobRow]) -> list[TestJobRow]:
    """Return the newest attempt of each of a family's jobs; none if something is missing."""
    ordered = sorted(jobs, key=lambda job: (job["run_attempt"], job["job_id"]))
    newest = list({job["name"]: job for job in ordered}.values())
    if len({(job["name"], job["run_attempt"]) for job in ordered}) < len(ordered):
        return []  # two jobs of one name cannot be told apart
    if not newest or any(job["rerun_disabled"] or job["unreadable"] or job["crashed"] for job in newest):
        return []
    shards = {job["shards"] for job in newest}
    wanted = (
        {None} if shards == {None} else set(range(1, max(shard_count or 1 for shard_count in shards) + 1))
    )
    if len(shards) > 1 or {job["shard"] for job in newest} != wanted:
        return []
    ended = await conclusions(tx, newest[0]["repository_id"], newest)
    return newest if set(ended.values()) == {"success"} else []


async def _ids(tx: Transaction, jobs: Sequence[TestJobRow]) -> set[int] | None:
    """Return the ids of all tests of jobs; None if their blocks are past retention."""
    contents = await rows.blocks_of_jobs(tx, [job["generation"] for job in jobs])
    if len(contents) < len(jobs):
        return None
    return await asyncio.to_thread(_decoded, list(contents.values()))


def _decoded(contents: Iterable[bytes]) -> set[int]:
    return {test_id for content in contents for test_id in block.decode(content).ids}


def _sum(jobs: Iterable[TestJobRow]) -> LossCounts:
    return LossCounts(sum(job["tests"] for job in jobs), sum(job["skipped"] for job in jobs))


def _row(before: Sequence[TestJobRow], jobs: Sequence[TestJobRow], lost: _Lost) -> LossRow:
    first = jobs[0]
    return {
        "repository_id": first["repository_id"],
        "run_id": first["run_id"],
        "family": first["family"],
        "class_id": lost.suite,
        "kind": lost.kind.value,
        "backend": first["backend"],
        "head_sha": tested_commit(first),
        "base_sha": tested_commit(before[0]),
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
