"""What sinks may have copies of: test results, a document for each attempt of a run, as upstream has them."""

from __future__ import annotations

import asyncio
import tempfile
import weakref
from typing import IO, TYPE_CHECKING, Any, cast

from bot.ci.test_results import exported_hub, exported_states
from bot.ci.test_results.exported_cases import (
    describe_case,
    describe_failure,
    describe_suite,
    is_exported_whole,
)
from bot.ci.test_results.job_tables import test_job
from bot.ci.test_results.parse import block
from bot.ci.test_results.store import exported_rows
from bot.ci.test_results.store.exported_rows import NAMES_AT_ONCE, RUN_KEY
from bot.ci.test_results.store.rows import blocks_of_jobs
from bot.core.stored_objects import StoredObject, json_line, object_key
from bot.db.exports import Export, Shape

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from bot.ci.test_results.job_tables import TestJobRow
    from bot.context import Context
    from bot.db.exports import Key, Row

PIECE = 256 * 1024


def copy_lines(export: Export, row: Row) -> list[StoredObject]:
    """Return the suites of a run, a line each."""
    return _object(export, row, [describe_suite(row, one) for one in row["rows"]])


def copy_failures(export: Export, row: Row) -> list[StoredObject]:
    """Return the failed cases of a run, a line each."""
    return _object(export, row, [describe_failure(row, one) for one in row["rows"]])


def _object(export: Export, row: Row, found: list[dict[str, Any]]) -> list[StoredObject]:
    return [StoredObject(key=_key(export, row), content=lambda: map(json_line, found))]


def _key(export: Export, row: Row) -> str:
    return object_key(export.name, row["run_id"], row["run_attempt"])


async def load_cases(context: Context, rows: Mapping[Key, Row]) -> dict[Key, Row]:
    """Add a file with all cases of each run: there may be millions. Other runs than those of branches have none."""
    found: dict[Key, Row] = {}
    for key, run in rows.items():
        jobs = [job for job in run["jobs"] if is_exported_whole(job)]
        found[key] = {**run, "cases": await _write_cases(context, run, jobs) if jobs else None}
    return found


async def load_all_cases(context: Context, rows: Mapping[Key, Row]) -> dict[Key, Row]:
    """Add a file with all cases of each run, whatever branch or pull request it is of."""
    return {key: {**run, "cases": await _write_cases(context, run, run["jobs"])} for key, run in rows.items()}


async def load_job_cases(context: Context, rows: Mapping[Key, Row]) -> dict[Key, Row]:
    """Add a file with all cases of each job."""
    return {
        key: {**job, "cases": await _write_cases(context, job, [cast("TestJobRow", job)])}
        for key, job in rows.items()
    }


def copy_cases(export: Export, row: Row) -> list[StoredObject]:
    """Return all cases of a run, a line each."""
    cases: CasesFile | None = row["cases"]
    return [] if cases is None else [StoredObject(key=_key(export, row), content=cases.pieces)]


class CasesFile:
    """A temporary file with the cases of a run, closed once nothing refers to it any more."""

    def __init__(self) -> None:
        self.file = cast("IO[bytes]", tempfile.TemporaryFile())  # noqa: SIM115 - closed by the next line
        weakref.finalize(self, self.file.close)

    def pieces(self) -> Iterator[bytes]:
        """Yield its content."""
        self.file.seek(0)
        while piece := self.file.read(PIECE):
            yield piece


async def _write_cases(context: Context, run: Row, jobs: Iterable[TestJobRow]) -> CasesFile:
    found = CasesFile()
    for job in jobs:
        async with context.store.read() as tx:
            content = (await blocks_of_jobs(tx, [job["generation"]])).get(job["generation"])
            failures = await exported_rows.failures_of_job(tx, job["generation"])
        if content is None:
            continue
        cases = await asyncio.to_thread(block.decode, content)
        for start in range(0, len(cases.ids), NAMES_AT_ONCE):
            part = block.Block(*(column[start : start + NAMES_AT_ONCE] for column in cases))
            async with context.store.read() as tx:
                names = await exported_rows.names_of_tests(tx, set(part.ids))
            lines = (
                json_line(
                    describe_case(run, job["job_id"], names[test_id], (code, time), failures.get(test_id, ()))
                )
                for test_id, code, time in zip(*part, strict=True)
                if test_id in names
            )
            await asyncio.to_thread(found.file.writelines, lines)
    return found


def _export(name: str, make: str, table: str, read: str, *, load: str = "", most: int) -> Export:
    def shape(made: str) -> Shape:
        store = "bot.ci.test_results.store.exported_rows"
        return Shape(make=f"bot.ci.test_results.{made}", read=f"{store}:{read}", load=load, most=most)

    return Export(
        name=name,
        group="tests",
        table=test_job,
        key=RUN_KEY,
        day="at",
        repositories=("repository_id", "backend", "upstream_repo"),
        shapes={
            "upstream": shape(f"exports:{make}"),
            "clickhouse.ootbot": shape(f"exported_tables:copy_{table}"),
            "clickhouse.upstream": shape(f"exported_tables:copy_upstream_{table}"),
        },
    )


EXPORTS = (
    _export("test_run_summary", "copy_lines", "suites", "read_summaries", most=5),
    _export("failed_test_runs", "copy_failures", "failures", "read_failures", most=5),
    _export(
        "test_run", "copy_cases", "cases", "read_runs", load="bot.ci.test_results.exports:load_cases", most=2
    ),
    Export(
        name="test_jobs",
        group="tests",
        table=test_job,
        day="at",
        repositories=("repository_id", "backend", "upstream_repo"),
        shapes={
            "clickhouse.ootbot": Shape(
                make="bot.ci.test_results.exported_tables:copy_jobs",
                read="bot.ci.test_results.store.exported_rows:read_jobs",
            )
        },
    ),
    Export(
        name="all_test_runs",
        table=test_job,
        key=RUN_KEY,
        day="at",
        repositories=("repository_id", "backend", "upstream_repo"),
        shapes={
            "clickhouse.upstream": Shape(
                make="bot.ci.test_results.exported_tables:copy_upstream_test_runs",
                read="bot.ci.test_results.store.exported_rows:read_runs",
                load="bot.ci.test_results.exports:load_all_cases",
                most=2,
            )
        },
    ),
    *exported_states.EXPORTS,
    *exported_hub.EXPORTS,
)
