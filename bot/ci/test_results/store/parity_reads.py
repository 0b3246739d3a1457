"""Reading what a backend is held against upstream by: the commit both tested, and the tests of either."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import sqlalchemy as sa

from bot.ci.test_results import parity
from bot.ci.test_results.comparing import Tests
from bot.ci.test_results.parity import REFERENCE, Compared
from bot.ci.test_results.parse import block
from bot.ci.test_results.store import result_rows, rows
from bot.ci.test_results.store.rows import JOB
from bot.ci.test_results.tables import test, test_class

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from bot.ci.test_results.job_tables import TestJobRow
    from bot.db.transaction import Transaction

COMMITS = 30  # of the backend, in which one is looked for that upstream tested, too
JOBS_MOST = 1_000
BATCH = 50  # blocks that are held at a time
SLICE = 20_000  # rows that are held at a time


@dataclass(frozen=True, kw_only=True)
class Sides:
    """A commit that a backend and upstream tested."""

    sha: str
    device: str  # of upstream's jobs; empty: they do not say
    devices: list[str]  # on which upstream tested it
    upstream: list[TestJobRow]  # on that device
    backend: list[TestJobRow]


class _Known(NamedTuple):
    names: parity.Names
    files: dict[int, str]


async def read_sides(
    tx: Transaction, owners: Collection[int], sha: str | None, device: str, hidden: Collection[int]
) -> Sides | None:
    """Return the newest commit that both tested, or the one asked for; None without one. `hidden` is left out."""
    query = sa.select(JOB.upstream_sha, sa.func.max(JOB.at).label("at")).where(
        JOB.repository_id.in_(sorted(owners)), JOB.backend.is_not(None), JOB.upstream_sha.is_not(None)
    )
    if sha:
        query = query.where(JOB.upstream_sha >= sha, JOB.upstream_sha < sha + "g")
    newest = query.group_by(JOB.upstream_sha).order_by(sa.desc("at")).limit(COMMITS)
    for row in (await tx.run(newest)).all():
        jobs = [job for job in await _jobs(tx, row.upstream_sha) if job["repository_id"] not in hidden]
        envs = await rows.environments_by_id(tx, {job["env_id"] for job in jobs})
        by_device: dict[str, list[TestJobRow]] = defaultdict(list)
        for job in jobs:
            if not job["backend"] and not job["rerun_disabled"]:
                by_device[envs[job["env_id"]]["accelerator"] if job["env_id"] in envs else ""].append(job)
        chosen = _device(by_device, device)
        if chosen is None:
            continue
        return Sides(
            sha=row.upstream_sha,
            device=chosen,
            devices=sorted(by_device),
            upstream=by_device[chosen],
            backend=[job for job in jobs if job["repository_id"] in owners and not job["rerun_disabled"]],
        )
    return None


def _device(by_device: dict[str, list[TestJobRow]], wanted: str) -> str | None:
    """Return the device asked for, else cuda, else the one with most tests."""
    if wanted:
        return wanted if wanted in by_device else None
    if REFERENCE in by_device:
        return REFERENCE
    return max(by_device, key=lambda one: sum(job["tests"] for job in by_device[one]), default=None)


async def _jobs(tx: Transaction, sha: str) -> list[TestJobRow]:
    return (await result_rows.jobs_testing(tx, sha))[:JOBS_MOST]


async def compared(tx: Transaction, both: Sides) -> Compared:
    """Return how the backend stands on a commit."""
    upstream, backend = await _tests(tx, both.upstream), await _tests(tx, both.backend)
    theirs = await _known(tx, both.upstream, upstream.known, files=True)
    mine = await _known(tx, both.backend, backend.known, files=False)
    return parity.compare(upstream, backend, names=theirs.names, backend_names=mine.names, files=theirs.files)


async def _tests(tx: Transaction, jobs: Sequence[TestJobRow]) -> Tests:
    found = Tests()
    generations = [job["generation"] for job in jobs]
    for at in range(0, len(generations), BATCH):
        for content in (await rows.blocks_of_jobs(tx, generations[at : at + BATCH])).values():
            found.add(block.decode(content))
    return found


async def _known(tx: Transaction, jobs: Sequence[TestJobRow], ids: Collection[int], *, files: bool) -> _Known:
    """Return the names of tests without the device, and their files where these are wanted."""
    names: parity.Names = {}
    classes: dict[int, int] = {}
    if not ids:
        return _Known(names, {})
    owners = sorted({job["repository_id"] for job in jobs})
    these = test.c.repository_id.in_(owners)
    query = sa.select(test.c.id, test.c.class_id, test.c.canonical)
    query = query.where(test.c.id.between(min(ids), max(ids)), these).order_by(test.c.id)
    async for some in tx.slices(query, size=SLICE):
        for row in some:
            if row["id"] in ids:
                names[row["id"]] = row["canonical"]
                classes[row["id"]] = row["class_id"]
    if not files:
        return _Known(names, {})
    found = await tx.run(
        sa.select(test_class.c.id, test_class.c.file).where(test_class.c.repository_id.in_(owners))
    )
    of_class = {row.id: row.file for row in found}
    return _Known(names, {test_id: of_class.get(class_id, "") for test_id, class_id in classes.items()})
