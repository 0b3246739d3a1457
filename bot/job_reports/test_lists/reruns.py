"""Task test_reruns: counts reruns of disabled tests, a job at a time; and their copies for sinks."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import sqlalchemy as sa

from bot.db.exports import ColumnTable, Export, Shape, StoredObject, TableCopy, copy_of, json_line, object_key
from bot.db.rows import select
from bot.evidence.disabled.rows import platforms_of
from bot.evidence.tests import rows
from bot.evidence.tests.exported_tables import RUN_KEY, read_runs
from bot.evidence.tests.parse import block
from bot.evidence.tests.parse.block import FAILING, Code
from bot.evidence.tests.rows import DAY
from bot.evidence.tests.tables import test_failure, test_job
from bot.ingest.retention import delete_rows
from bot.job_reports.test_lists import times
from bot.job_reports.test_lists.tables import RerunRow, test_rerun, test_rerun_job

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from bot.context import Context
    from bot.db.exports import ExportedRow, RowKey
    from bot.db.transaction import Transaction
    from bot.evidence.tests.tables import TestJobRow
    from bot.job_reports.test_lists.times import NameOfTest
    from bot.queue.tasks import Task

RECENT = 14 * DAY  # milliseconds
KEPT = 30 * DAY
JOBS_MOST = 200  # counted in one run
TESTS_MOST = 20_000  # of one job
BATCH = 500  # rows of one statement
MOST_READ = 50_000  # rows of a page
JOB, FAILURE, RERUN, COUNTED = test_job.c, test_failure.c, test_rerun.c, test_rerun_job.c
RERUNS_MOST = 1_000_000  # repetitions that a note may speak of
_REPEAT = re.compile(r"(.*)\[\d+(?:-\d+)?\]", re.DOTALL)
MADE = {
    "upstream": "copy_reruns",
    "clickhouse.ootbot": "copy_rerun_rows",
    "clickhouse.upstream": "copy_upstream_reruns",
}


class RerunCase(NamedTuple):
    """A case of a job that reruns disabled tests."""

    place: NameOfTest
    code: Code
    message: str  # of one that was skipped


class Reruns(NamedTuple):
    """How often a test passed and failed."""

    green: int
    red: int

    @property
    def flaky(self) -> bool:
        """Whether the test is still unreliable: it failed, or was never seen to pass."""
        return self.red > 0 or self.green == 0


class _Note(msgspec.Struct):
    num_green: int
    num_red: int


_NOTE = msgspec.json.Decoder(_Note)


def count_reruns(cases: Iterable[RerunCase]) -> dict[NameOfTest, Reruns]:
    """Count how often each test of a job passed and failed; tests that were only skipped are left out."""
    reruns: dict[NameOfTest, Reruns] = {}
    for case in cases:
        green, red = _said(case)
        if not green and not red:
            continue
        repeated = _REPEAT.fullmatch(case.place.name)
        place = case.place._replace(name=repeated[1]) if repeated else case.place
        before = reruns.get(place, Reruns(0, 0))
        reruns[place] = Reruns(before.green + green, before.red + red)
    return reruns


async def count_new_reruns(context: Context, _task: Task) -> None:
    """Count the reruns in new jobs."""
    async with context.store.read() as tx:
        jobs = await _uncounted(tx)
    for job in jobs:
        await _count(context, job)


async def reruns_since(tx: Transaction, repository_id: int, start: int) -> list[RerunRow]:
    """Return the reruns of trusted jobs since a time (epoch milliseconds), from the last reading of each job."""
    shown = sa.exists().where(JOB.generation == RERUN.generation)
    query = select(RerunRow, test_rerun).where(
        RERUN.repository_id == repository_id, RERUN.at >= start, RERUN.trusted, shown
    )
    return await tx.fetch(query.order_by(RERUN.at.desc()).limit(MOST_READ))


async def read_reruns_of_runs(
    tx: Transaction, export: Export, keys: Sequence[RowKey]
) -> dict[RowKey, ExportedRow]:
    """Read runs with the reruns counted in their jobs, for sinks."""
    exported: dict[RowKey, ExportedRow] = {}
    for key, run in (await read_runs(tx, export, keys)).items():
        generations = sorted(job["generation"] for job in run["jobs"] if job["rerun_disabled"])
        query = select(RerunRow, test_rerun).where(RERUN.generation.in_(generations))
        reruns_of_run = await tx.fetch(query.order_by(RERUN.generation, RERUN.file, RERUN.suite, RERUN.name))
        if reruns_of_run:
            exported[key] = {**run, "reruns": reruns_of_run}
    return exported


async def prune_reruns(context: Context) -> dict[str, int]:
    """Delete old reruns."""
    before = context.clock.now() - KEPT
    await delete_rows(context, test_rerun_job, COUNTED.at < before)
    return {"reruns of disabled tests": await delete_rows(context, test_rerun, RERUN.at < before)}


def copy_reruns(export: Export, row: ExportedRow) -> list[StoredObject]:
    """Copy the reruns of a run, one line per test."""
    lines = describe_reruns(row)
    key = object_key(export.name, row["run_id"], row["run_attempt"])
    return [StoredObject(key=key, content=lambda: map(json_line, lines))]


def describe_reruns(row: ExportedRow) -> list[dict[str, Any]]:
    """Describe the reruns of each test in the form of upstream's document."""
    return [
        {
            "classname": rerun["suite"],
            "filename": rerun["file"],
            "flaky": rerun["flaky"],
            "name": rerun["name"],
            "num_green": rerun["green"],
            "num_red": rerun["red"],
            "workflow_id": row["run_id"],
            "workflow_run_attempt": row["run_attempt"],
        }
        for rerun in row["reruns"]
    ]


def copy_rerun_rows(export: Export) -> TableCopy:
    """Copy reruns to our own table."""
    columns = {
        **dict.fromkeys(RUN_KEY, "Int64"), "repo": "LowCardinality(String)", "file": "String", "suite": "String",
        "name": "String", "green": "Int64", "red": "Int64", "flaky": "Bool",
    }  # fmt: skip

    def lines(row: ExportedRow) -> Iterator[Mapping[str, Any]]:
        common = {name: row[name] for name in RUN_KEY} | {"repo": row.get("repo")}
        return ({**rerun, **common} for rerun in row["reruns"])

    order = ("file", "suite", "name")
    return copy_of(export, columns, name="rerun_disabled_test", order=order, rows=lines, several=True)


def copy_upstream_reruns(_export: Export) -> TableCopy:
    """Copy reruns to upstream's table."""
    columns = {
        **dict.fromkeys(("classname", "filename", "name"), "String"), "flaky": "Bool",
        **dict.fromkeys(("num_green", "num_red", "workflow_id", "workflow_run_attempt"), "Int64"),
    }  # fmt: skip
    return TableCopy(
        table=ColumnTable(
            name="default.rerun_disabled_tests",
            columns=columns,
            order=("workflow_id", "filename", "classname", "name"),
        ),
        rows=describe_reruns,
        key=("workflow_id", "workflow_run_attempt"),
        key_values=lambda key, _row: key[1:],
        several=True,
    )


def _shape(make: str) -> Shape:
    read = "bot.job_reports.test_lists.reruns:read_reruns_of_runs"
    return Shape(make=f"bot.job_reports.test_lists.reruns:{make}", read=read, most=20)


EXPORTS = (
    Export(
        name="rerun_disabled_tests",
        group="tests",
        table=test_job,
        key=RUN_KEY,
        day="at",
        repositories=("repository_id", "backend", "upstream_repo"),
        condition=test_job.c.rerun_disabled,
        shapes={name: _shape(make) for name, make in MADE.items()},
    ),
)


def _said(case: RerunCase) -> tuple[int, int]:
    if case.code is not Code.SKIPPED:
        return (0, 1) if case.code in FAILING else (1, 0)
    try:
        note = _NOTE.decode(case.message.encode("utf-8", "replace"))
    except msgspec.DecodeError:
        return 0, 0
    return _bounded(note.num_green), _bounded(note.num_red)


def _bounded(count: int) -> int:
    return min(max(count, 0), RERUNS_MOST)


async def _uncounted(tx: Transaction) -> list[TestJobRow]:
    counted = sa.exists().where(COUNTED.generation == JOB.generation)
    query = rows.JOBS.where(JOB.at > tx.now - RECENT, JOB.rerun_disabled, JOB.block.is_not(None), ~counted)
    return await tx.fetch(query.order_by(JOB.at).limit(JOBS_MOST))


async def _count(context: Context, job: TestJobRow) -> None:
    async with context.store.read() as tx:
        content = (await rows.blocks_of_jobs(tx, [job["generation"]])).get(job["generation"])
        messages = await _messages(tx, job["generation"])
        environments = await rows.environments_by_id(tx, [job["env_id"]])
    decoded = await asyncio.to_thread(block.decode, content) if content else None
    ids = sorted(set(decoded.ids))[:TESTS_MOST] if decoded else []
    async with context.store.read() as tx:
        places = await times.names_of_tests(tx, ids)
    cases = (
        RerunCase(places[test_id], block.outcome_of(code), messages.get(test_id, ""))
        for test_id, code in (zip(decoded.ids, decoded.codes, strict=True) if decoded else ())
        if test_id in places
    )
    counted = await asyncio.to_thread(count_reruns, cases)
    common = {
        "generation": job["generation"],
        "repository_id": job["repository_id"],
        "trusted": job["trusted"],
        "platforms": sorted(platforms_of(job, environments.get(job["env_id"]))),
        "at": job["at"],
    }
    new = [
        common | place._asdict() | {"green": counts.green, "red": counts.red, "flaky": counts.flaky}
        for place, counts in sorted(counted.items())
    ]
    async with context.store.transaction() as tx:
        for start in range(0, len(new), BATCH):
            await tx.run(tx.insert(test_rerun).on_conflict_do_nothing(), new[start : start + BATCH])
        done = tx.insert(test_rerun_job).values(generation=job["generation"], at=job["at"])
        await tx.run(done.on_conflict_do_nothing())
        tx.note_changed("test_job", [job])


async def _messages(tx: Transaction, generation: int) -> Mapping[int, str]:
    """Return the messages of a job's skipped cases."""
    query = sa.select(FAILURE.test_id, FAILURE.message).where(
        FAILURE.generation == generation, FAILURE.outcome == Code.SKIPPED
    )
    return {row.test_id: row.message for row in await tx.run(query)}
