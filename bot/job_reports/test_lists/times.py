"""How long files, classes and tests take: means over jobs, and the statements on them."""

from __future__ import annotations

import zlib
from collections import defaultdict
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import sqlalchemy as sa

from bot.db.rows import select
from bot.evidence.tests import rows
from bot.evidence.tests.parse import block
from bot.evidence.tests.parse.block import NO_TIME, PASSING
from bot.evidence.tests.rows import DAY
from bot.evidence.tests.tables import BASELINE, TestJobRow, test, test_class, test_job, test_summary
from bot.ingest.tables import records
from bot.job_reports.test_lists.tables import PackedTimes, TimeRow, test_time, test_time_source

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence

    from bot.db.transaction import Transaction
    from bot.evidence.tests.parse.block import Block

DEFAULT = "default"
DIGITS = 3  # of seconds

Seconds = dict[str, float]  # by file, or by file and class with a NUL between
Times = dict[str, dict[str, Seconds]]  # by base name and configuration
Sums = defaultdict[int, defaultdict["Hashable", int]]  # milliseconds by test and job

SLOW = 60.0  # seconds; a test that takes longer is slow
SANITIZER = "asan"  # in the name of a job under which everything is slow
MAIN = "__main__"
BATCH = 200  # jobs or tests of one statement
RECENT = 30 * DAY  # milliseconds
JOBS_MOST = 5_000  # looked at, the newest first
JOB, ANY_JOB = test_job.c, records["workflow_job"].c
TIME, SOURCE = test_time.c, test_time_source.c
SUMMARY, CLASS = test_summary.c, test_class.c
# what a job spent on a suite: generation, the file that launched it or "", its file, its name, milliseconds
SuiteTime = tuple[int, str, str, str, int]


class Spent(NamedTuple):
    """The time that one shard of a job spent on a class."""

    job: Hashable  # the same for all shards of a job in a run
    base_name: str
    config: str
    file: str  # that launched it
    suite: str
    milliseconds: int


class NameOfTest(NamedTuple):
    """The name, suite and file of a test."""

    name: str
    suite: str
    file: str


def file_times(spent: Iterable[Spent]) -> Times:
    """Return the mean times of files."""
    return _means(
        (suite.base_name, suite.config, suite.file, suite.job, suite.milliseconds) for suite in spent
    )


def class_times(spent: Iterable[Spent]) -> Times:
    """Return the mean times of classes."""
    return _means(
        (suite.base_name, suite.config, f"{suite.file}\0{suite.suite}", suite.job, suite.milliseconds)
        for suite in spent
    )


def with_defaults(times: Times) -> Times:
    """Add `default` times for unknown jobs: means over base names, and over configurations."""
    known = {base_name: configs for base_name, configs in times.items() if base_name != DEFAULT}
    configs = sorted({config for each in known.values() for config in each})
    over_names = {
        config: _mean(each[config] for each in known.values() if config in each) for config in configs
    }
    return known | {DEFAULT: over_names | {DEFAULT: _mean(over_names.values())}} if known else {}


def round_times(times: Times) -> Times:
    """Round times to the digits that are sent."""
    return {
        base_name: {
            config: {name: round(value, DIGITS) for name, value in seconds.items()}
            for config, seconds in configs.items()
        }
        for base_name, configs in times.items()
    }


def by_file_and_class(times: Times) -> dict[str, dict[str, dict[str, Seconds]]]:
    """Group the times of classes by file."""
    by_base_name: dict[str, dict[str, dict[str, Seconds]]] = {}
    for base_name, configs in times.items():
        for config, seconds in configs.items():
            files = by_base_name.setdefault(base_name, {}).setdefault(config, {})
            for name, value in seconds.items():
                file, _, suite = name.partition("\0")
                files.setdefault(file, {})[suite] = value
    return by_base_name


def best_times(
    times: Mapping[str, Mapping[str, Mapping[str, float]]], base_name: str, config: str
) -> Seconds:
    """Return the best known times for a job: its own, else those of its configuration, else of any job."""
    best: Seconds = {}
    for base, name in ((DEFAULT, DEFAULT), (DEFAULT, config), (base_name, config)):
        best |= times.get(base, {}).get(name, {})
    return best


def slow_candidates(shard: Block, shards: int) -> set[int]:
    """Return the ids of the tests of a shard that may be slow, given the number of its job's shards.

    A test on which a job spends over a minute takes its share of that in one of the shards, in one case or, where
    several files launched it, in several.
    """
    share = SLOW * 1000 / max(shards, 1)
    slow = {test_id for test_id, time in zip(shard.ids, shard.times, strict=True) if share <= time < NO_TIME}
    if len(set(shard.ids)) < len(shard.ids):
        spent: defaultdict[int, int] = defaultdict(int)
        for test_id, time in zip(shard.ids, shard.times, strict=True):
            if time != NO_TIME:
                spent[test_id] += time
        slow.update(test_id for test_id, time in spent.items() if time >= share)
    return slow


def add_times(sums: Sums, job: Hashable, shard: Block, wanted: Collection[int]) -> None:
    """Add the time that a shard of a job spent on tests that passed."""
    for test_id, code, time in zip(*shard, strict=True):
        if test_id in wanted and time != NO_TIME and block.outcome_of(code) in PASSING:
            sums[test_id][job] += time


def slow_means(sums: Sums) -> dict[int, float]:
    """Return the slow tests with their mean seconds over jobs."""
    means = {test_id: fmean(by_job.values()) / 1000 for test_id, by_job in sums.items()}
    return {test_id: seconds for test_id, seconds in means.items() if seconds > SLOW}


def no_sums() -> Sums:
    """Return empty sums."""
    return defaultdict(lambda: defaultdict(int))


def test_key(name: str, suite: str) -> str:
    """Return a test's name in PyTorch's CI: a suite without a module is in the main module."""
    return f"{name} ({suite if '.' in suite else f'{MAIN}.{suite}'})"


def pack_times(seconds: Seconds) -> bytes:
    """Pack times for storage."""
    return zlib.compress(msgspec.json.encode(seconds), 6)


def unpack_times(content: bytes) -> Seconds:
    """Unpack stored times."""
    seconds: Seconds = msgspec.json.decode(zlib.decompress(content), type=Seconds)
    return seconds


async def suites_of_jobs(tx: Transaction, generations: Sequence[int]) -> list[SuiteTime]:
    """Return the time that jobs spent on their suites."""
    suites: list[SuiteTime] = []
    columns = (SUMMARY.generation, SUMMARY.invoking_file, CLASS.file, CLASS.suite, SUMMARY.time_ms)
    query = sa.select(*columns).join_from(test_summary, test_class, CLASS.id == SUMMARY.class_id)
    for start in range(0, len(generations), BATCH):
        some = query.where(SUMMARY.generation.in_(generations[start : start + BATCH]))
        suites += [tuple(row) for row in await tx.run(some)]
    return suites


async def names_of_tests(tx: Transaction, ids: Collection[int]) -> dict[int, NameOfTest]:
    """Return the names of tests by id."""
    names: dict[int, NameOfTest] = {}
    ordered = sorted(ids)
    query = sa.select(test.c.id, test.c.name, CLASS.suite, CLASS.file).join_from(
        test, test_class, CLASS.id == test.c.class_id
    )
    for start in range(0, len(ordered), BATCH):
        some = query.where(test.c.id.in_(ordered[start : start + BATCH]))
        names |= {row.id: NameOfTest(row.name, row.suite, row.file) for row in await tx.run(some)}
    return names


async def with_results(tx: Transaction, repository_ids: Collection[int]) -> list[int]:
    """Return the repositories that have test results."""
    having = []
    for repository_id in sorted(repository_ids):
        query = sa.select(test_job.c.run_id).where(test_job.c.repository_id == repository_id).limit(1)
        if await tx.row(query) is not None:
            having.append(repository_id)
    return having


async def find_source(tx: Transaction, repository_id: int) -> str | None:
    """Return the digest of the jobs that a repository's lists were made from."""
    query = sa.select(SOURCE.digest).where(SOURCE.repository_id == repository_id)
    digest: str | None = (await tx.run(query)).scalar()
    return digest


async def store_source(tx: Transaction, repository_id: int, digest: str) -> None:
    """Store the digest of the jobs that a repository's lists were made from."""
    new = {"digest": digest, "at": tx.now}
    insert = tx.insert(test_time_source).values(repository_id=repository_id, **new)
    await tx.run(insert.on_conflict_do_update(index_elements=["repository_id"], set_=new))


async def stored_times(tx: Transaction, repository_id: int) -> dict[tuple[str, str], PackedTimes]:
    """Return the times of a repository by base name and configuration."""
    query = select(TimeRow, test_time).where(TIME.repository_id == repository_id)
    return {
        (row["base_name"], row["config"]): PackedTimes(
            files=row["files"], classes=row["classes"], at=row["at"]
        )
        for row in await tx.fetch(query)
    }


async def replace_times(
    tx: Transaction, repository_id: int, kept: Mapping[tuple[str, str], PackedTimes]
) -> None:
    """Replace all times of a repository."""
    await tx.run(sa.delete(test_time).where(TIME.repository_id == repository_id))
    new = [
        {"repository_id": repository_id, "base_name": base_name, "config": config, **packed}
        for (base_name, config), packed in sorted(kept.items())
    ]
    for start in range(0, len(new), BATCH):
        await tx.run(sa.insert(test_time), new[start : start + BATCH])


async def jobs_with_results(tx: Transaction, repository_id: int) -> list[TestJobRow]:
    """Return the jobs of the last month whose results feed lists, the newest first."""
    query = rows.JOBS.where(
        BASELINE, JOB.repository_id == repository_id, JOB.at > tx.now - RECENT, JOB.block.is_not(None)
    )
    order = (JOB.at.desc(), JOB.generation.desc())
    return await tx.fetch(query.order_by(*order).limit(JOBS_MOST))


async def count_ended(
    tx: Transaction, repository_id: int, *, run_ids: Collection[int] = (), heads: Collection[str] = ()
) -> tuple[int, int]:
    """Count the jobs of runs, or of commits if no runs are given, and how many have ended."""
    same = ANY_JOB.run_id.in_(sorted(run_ids)) if run_ids else ANY_JOB.head_sha.in_(sorted(heads))
    done = sa.func.sum(sa.case((ANY_JOB.status == "completed", 1), else_=0))
    query = sa.select(sa.func.count(), done).where(same, ANY_JOB.repository_id == repository_id)
    count, ended = (await tx.run(query)).one()
    return int(count), int(ended or 0)


def _means(measured: Iterable[tuple[str, str, str, Hashable, int]]) -> Times:
    """Return the mean over jobs, in seconds, of each job's sum of milliseconds."""
    sums: defaultdict[tuple[str, str, str], defaultdict[Hashable, int]] = defaultdict(
        lambda: defaultdict(int)
    )
    for base_name, config, name, job, time_ms in measured:
        sums[base_name, config, name][job] += time_ms
    means: Times = {}
    for (base_name, config, name), by_job in sorted(sums.items()):
        means.setdefault(base_name, {}).setdefault(config, {})[name] = fmean(by_job.values()) / 1000
    return means


def _mean(several: Iterable[Mapping[str, float]]) -> Seconds:
    values: defaultdict[str, list[float]] = defaultdict(list)
    for seconds in several:
        for name, value in seconds.items():
            values[name].append(value)
    return {name: fmean(seconds) for name, seconds in sorted(values.items())}
