"""Tests compared, one by one: a commit with the one before it, and a backend with upstream."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import sqlalchemy as sa

from bot.evidence.tests import result_rows, rows
from bot.evidence.tests.parse import block
from bot.evidence.tests.parse.block import FAILING, Code, code_of
from bot.evidence.tests.rows import JOB
from bot.evidence.tests.tables import test, test_class

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from bot.db.transaction import Transaction
    from bot.evidence.tests.parse.block import Block
    from bot.evidence.tests.tables import TestJobRow

CHANGES_MOST = 1_000  # tests of one kind that are named; all are counted
PASSED_AT_ONCE = code_of(Code.PASSED, 1)
SKIPPED = frozenset({Code.SKIPPED})
Names = dict[int, int]  # test -> its name without the device
REFERENCE = "cuda"  # the device of upstream that backends are held against, where upstream ran there
COMMITS = 30  # of the backend, in which one is looked for that upstream tested, too
JOBS_MOST = 1_000
BATCH = 50  # blocks that are held at a time
SLICE = 20_000  # rows that are held at a time


class Change(StrEnum):
    """How a test differs, the most interesting first."""

    NEWLY_FAILING = "newly_failing"
    STILL_FAILING = "still_failing"
    FIXED = "fixed"
    NEW = "new"  # not on the base
    GONE = "gone"  # only on the base
    NEWLY_SKIPPED = "newly_skipped"  # it passed on the base


class TestChange(NamedTuple):
    """A test that differs, in a family of jobs."""

    family: str
    test_id: int


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What changed, counted, and the first tests of every kind."""

    counts: Mapping[Change, int]
    changed: Mapping[Change, list[TestChange]]
    only_head: list[str]  # families that did not run on the base
    only_base: list[str]
    families: int  # compared
    tests: int  # compared, on the head


@dataclass(frozen=True, kw_only=True)
class Sides:
    """A commit that a backend and upstream tested."""

    sha: str
    device: str  # of upstream's jobs; empty: they do not say
    devices: list[str]  # on which upstream tested it
    upstream: list[TestJobRow]  # on that device
    backend: list[TestJobRow]


class _Known(NamedTuple):
    names: Names
    files: dict[int, str]


@dataclass(kw_only=True)
class SideTests:
    """The tests of one family on one side: ids of all, of those that failed, of those that were skipped."""

    known: set[int] = field(default_factory=set)
    failed: set[int] = field(default_factory=set)
    skipped: set[int] = field(default_factory=set)

    def add(self, block: Block) -> None:
        """Add a job's cases."""
        failed, skipped, others = set(), set(), set()
        for test_id, code in zip(block.ids, block.codes, strict=True):
            if code == PASSED_AT_ONCE:  # nearly all
                continue
            outcome = code & 0xF
            if outcome in FAILING:
                failed.add(test_id)
            elif outcome in SKIPPED:
                skipped.add(test_id)
            else:
                others.add(test_id)
        ids = set(block.ids)
        passed = ids - failed - skipped | others
        # looked up one by one: a set of all that passed before would be as large as the family, for each of its jobs
        failed -= {test_id for test_id in failed if self._has_passed(test_id)}
        skipped -= {test_id for test_id in skipped if self._has_passed(test_id)}
        self.failed = (self.failed | failed) - passed
        self.skipped = (self.skipped | skipped) - passed - self.failed
        self.known |= ids

    def _has_passed(self, test_id: int) -> bool:
        return test_id in self.known and test_id not in self.failed and test_id not in self.skipped

    @property
    def passed(self) -> set[int]:
        """Tests that passed, or failed as expected."""
        return self.known - self.failed - self.skipped


Side = dict[str, SideTests]  # by family


def add_jobs(side: Side, jobs: Iterable[tuple[str, Block]]) -> Side:
    """Add jobs, given as family and block, to a side; return the side."""
    for family, results in jobs:
        side.setdefault(family, SideTests()).add(results)
    return side


def compare_sides(base: Side, head: Side, *, most: int = CHANGES_MOST) -> Comparison:
    """Return what changed from base to head."""
    counts = dict.fromkeys(Change, 0)
    changed: dict[Change, list[TestChange]] = {change: [] for change in Change}
    both = sorted(base.keys() & head.keys())
    for family in both:
        for change, ids in _changes(base[family], head[family]).items():
            counts[change] += len(ids)
            left = most - len(changed[change])
            changed[change] += [TestChange(family, test_id) for test_id in sorted(ids)[: max(left, 0)]]
    return Comparison(
        counts=counts,
        changed=changed,
        only_head=sorted(head.keys() - base.keys()),
        only_base=sorted(base.keys() - head.keys()),
        families=len(both),
        tests=sum(len(head[family].known) for family in both),
    )


@dataclass(kw_only=True)
class Parity:
    """Tests that upstream passes, counted by their outcome on the backend."""

    tests: int = 0  # that upstream passes
    outcomes: Counter[str] = field(default_factory=Counter)  # passed, failed, skipped

    @property
    def passed(self) -> int:
        """Tests that the backend also passes."""
        return self.outcomes["passed"]

    @property
    def failed(self) -> int:
        """Tests that fail on the backend."""
        return self.outcomes["failed"]

    @property
    def skipped(self) -> int:
        """Tests that the backend skips."""
        return self.outcomes["skipped"]

    @property
    def missing(self) -> int:
        """Tests that the backend does not run."""
        return self.tests - self.passed - self.failed - self.skipped

    @property
    def conformance(self) -> float | None:
        """The share that the backend passes; None if upstream passes nothing."""
        return self.passed / self.tests if self.tests else None


@dataclass(kw_only=True)
class ParityComparison:
    """A backend compared with upstream: in total, and by upstream's files."""

    whole: Parity = field(default_factory=Parity)
    files: dict[str, Parity] = field(default_factory=dict)
    only_theirs: int = 0  # tests that the backend runs and upstream does not


def compare_backend(
    upstream: SideTests, backend: SideTests, *, names: Names, backend_names: Names, files: Mapping[int, str]
) -> ParityComparison:
    """Compare a backend's tests with upstream's; `names` and `files` describe upstream's tests."""
    passed = {backend_names[test_id] for test_id in backend.passed if test_id in backend_names}
    failed = {backend_names[test_id] for test_id in backend.failed if test_id in backend_names} - passed
    skipped = (
        {backend_names[test_id] for test_id in backend.skipped if test_id in backend_names} - passed - failed
    )
    comparison = ParityComparison()
    for test_id in upstream.passed:
        name = names.get(test_id)
        if name is None:
            continue
        for parity in (comparison.whole, comparison.files.setdefault(files.get(test_id, ""), Parity())):
            parity.tests += 1
            parity.outcomes["passed"] += name in passed
            parity.outcomes["failed"] += name in failed
            parity.outcomes["skipped"] += name in skipped
    known = {names[test_id] for test_id in upstream.known if test_id in names}
    comparison.only_theirs = len((passed | failed | skipped) - known)
    return comparison


async def read_sides(
    tx: Transaction, owners: Collection[int], sha: str | None, device: str, hidden: Collection[int]
) -> Sides | None:
    """Return the newest commit that both tested, or the requested one, if any; `hidden` repositories are skipped."""
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


async def compare_on_commit(tx: Transaction, both: Sides) -> ParityComparison:
    """Compare the backend with upstream on a commit."""
    upstream, backend = await _tests(tx, both.upstream), await _tests(tx, both.backend)
    theirs = await _known(tx, both.upstream, upstream.known, files=True)
    mine = await _known(tx, both.backend, backend.known, files=False)
    return compare_backend(
        upstream, backend, names=theirs.names, backend_names=mine.names, files=theirs.files
    )


def _changes(base: SideTests, head: SideTests) -> dict[Change, set[int]]:
    was_passing = base.passed
    return {
        Change.NEWLY_FAILING: head.failed & base.known - base.failed,
        Change.STILL_FAILING: head.failed & base.failed,
        Change.FIXED: base.failed & head.passed,
        Change.NEW: head.known - base.known,
        Change.GONE: base.known - head.known,
        Change.NEWLY_SKIPPED: head.skipped & was_passing,
    }


def _device(by_device: dict[str, list[TestJobRow]], wanted: str) -> str | None:
    """Choose the requested device, else cuda, else the one with the most tests."""
    if wanted:
        return wanted if wanted in by_device else None
    if REFERENCE in by_device:
        return REFERENCE
    return max(by_device, key=lambda device: sum(job["tests"] for job in by_device[device]), default=None)


async def _jobs(tx: Transaction, sha: str) -> list[TestJobRow]:
    return (await result_rows.jobs_testing(tx, sha))[:JOBS_MOST]


async def _tests(tx: Transaction, jobs: Sequence[TestJobRow]) -> SideTests:
    tests = SideTests()
    generations = [job["generation"] for job in jobs]
    for at in range(0, len(generations), BATCH):
        for content in (await rows.blocks_of_jobs(tx, generations[at : at + BATCH])).values():
            tests.add(block.decode(content))
    return tests


async def _known(tx: Transaction, jobs: Sequence[TestJobRow], ids: Collection[int], *, files: bool) -> _Known:
    """Return the device-free names of tests, and their files if wanted."""
    names: Names = {}
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
    file_of_class = await tx.run(
        sa.select(test_class.c.id, test_class.c.file).where(test_class.c.repository_id.in_(owners))
    )
    of_class = {row.id: row.file for row in file_of_class}
    return _Known(names, {test_id: of_class.get(class_id, "") for test_id, class_id in classes.items()})
