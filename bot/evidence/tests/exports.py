"""Copies of test results for sinks: upstream's documents, the test hub's tables, states and losses."""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
import weakref
from typing import IO, TYPE_CHECKING, Any, cast

from bot.db.exports import (
    ColumnTable,
    Export,
    Shape,
    StoredObject,
    TableCopy,
    column_types,
    copy_of,
    json_line,
    object_key,
    repo_key,
)
from bot.evidence.tests import exported_tables
from bot.evidence.tests.exported_tables import (
    NAMES_AT_ONCE,
    RUN_KEY,
    case_lines,
    describe_case,
    describe_failure,
    describe_suite,
    is_exported_whole,
)
from bot.evidence.tests.parse import block
from bot.evidence.tests.rows import blocks_of_jobs
from bot.evidence.tests.tables import test_job, test_loss, test_state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from bot.context import Context
    from bot.db.exports import ExportedRow, RowKey
    from bot.evidence.tests.tables import TestJobRow

NAMES = {"file": "LowCardinality(String)", "suite": "LowCardinality(String)"}
MODULE = "bot.evidence.tests.exports"
WHOLE, TEXT, FEW, NUMBER = "Int64", "String", "LowCardinality(String)", "UInt64"
TIME = "DateTime64(3, 'UTC')"
LANGUAGE = "Enum8('unknown' = 0, 'python' = 1, 'cpp' = 2)"
OUTCOMES = ("unknown", "passed", "failed", "error", "skipped", "xfailed", "xpassed", "crashed", "timed_out")
_NUMBERED = ", ".join(f"'{name}' = {number}" for number, name in enumerate(OUTCOMES))
OUTCOME = f"Enum8({_NUMBERED})"
SUMMARY = 256  # characters of what an attempt said
DEVICES_MOST = 255
FLAKY = "flaky"  # the status of a case that passed after it had failed
# upstream's names of what we know of machines
ENVIRONMENT = {
    "os": "os", "cpu_architecture": "arch", "python_version": "python", "accelerator": "accelerator",
    "accelerator_version": "accelerator_version", "device_name": "device_name", "device_count": "device_count",
}  # fmt: skip
PIECE = 256 * 1024


def copy_state_rows(export: Export) -> TableCopy:
    """Copy the states of tests."""
    return copy_of(export, {**column_types(export.table), **NAMES, "name": "String"})


def copy_losses(export: Export, row: ExportedRow) -> list[StoredObject]:
    """Copy what a run lost, one line per loss."""
    key = "/".join((export.name, repo_key(row["repo"]), object_key(row["run_id"])))
    return [StoredObject(key=key, content=lambda: map(json_line, row["rows"]))]


def copy_loss_rows(export: Export) -> TableCopy:
    """Copy what runs lost."""
    return copy_of(
        export,
        {**column_types(export.table), **NAMES},
        order=("family", "class_id", "kind"),
        rows=lambda row: ({**loss, "repo": row["repo"]} for loss in row["rows"]),
        several=True,
    )


def _shape(make: str, read: str) -> Shape:
    return Shape(make=make, read=f"bot.evidence.tests.exported_tables:{read}", most=500)


STATE_EXPORTS = (
    Export(
        name="test_states",
        group="tests",
        table=test_state,
        day="at",
        shapes={
            "upstream": _shape("bot.db.exports:copy_row", "read_states"),
            "clickhouse.ootbot": _shape(f"{MODULE}:copy_state_rows", "read_states"),
        },
    ),
    Export(
        name="test_losses",
        group="tests",
        table=test_loss,
        key=("repository_id", "run_id"),
        day="at",
        repositories=("repository_id", "backend"),
        shapes={
            "upstream": _shape(f"{MODULE}:copy_losses", "read_losses"),
            "clickhouse.ootbot": _shape(f"{MODULE}:copy_loss_rows", "read_losses"),
        },
    ),
)


def copy_tests(_export: Export) -> TableCopy:
    """Copy the tests that jobs ran."""
    columns = {"id": NUMBER, "repo": FEW, "file": FEW, "suite": TEXT, "case_name": TEXT, "language": LANGUAGE}

    def rows(job: ExportedRow) -> Iterator[Mapping[str, Any]]:
        for line in case_lines(job["cases"]):
            yield {
                "id": _test_id(job, line),
                "repo": job["repo"],
                "file": line["file"],
                "suite": line["classname"],
                "case_name": line["name"],
                "language": _language(line["file"]),
            }

    return _table("tests", columns, ("id",), rows, key=("repo",), key_values=_repo_of, shared=True)


def copy_environments(_export: Export) -> TableCopy:
    """Copy the environments that jobs ran in."""
    columns = {"id": NUMBER, **dict.fromkeys(ENVIRONMENT, FEW), "device_count": "UInt8"}

    def rows(job: ExportedRow) -> Iterable[Mapping[str, Any]]:
        known = {name: job.get(ours) for name, ours in ENVIRONMENT.items()}
        count = min(job.get("device_count") or 0, DEVICES_MOST)
        return ({**known, "id": _environment_id(job), "device_count": count},)

    return _catalog("environments", columns, rows, _environment_id)


def copy_flags(_export: Export) -> TableCopy:
    """Copy the flags that jobs set."""
    columns = {"id": NUMBER, "flags": f"Map({FEW}, {TEXT})"}

    def rows(job: ExportedRow) -> Iterable[Mapping[str, Any]]:
        return ({"id": _flags_id(job), "flags": job["flags"] or {}},)

    return _catalog("flags", columns, rows, _flags_id)


def copy_runs(_export: Export) -> TableCopy:
    """Copy attempts; a test's start is only known as its job's."""
    columns = {
        **dict.fromkeys(("test_id", "env_id", "flags_id"), NUMBER), "github_workflow_job_id": WHOLE,
        "rerun_number": "UInt16", "outcome": OUTCOME, "outcome_summary": TEXT, "started_at": TIME, "ended_at": TIME,
    }  # fmt: skip

    def rows(job: ExportedRow) -> Iterator[Mapping[str, Any]]:
        common = {
            "env_id": _environment_id(job),
            "flags_id": _flags_id(job),
            "github_workflow_job_id": job["job_id"],
            "started_at": job["at"],
        }
        for line in case_lines(job["cases"]):
            of_test = {
                "test_id": _test_id(job, line),
                "ended_at": job["at"] + round(1000 * (line["time"] or 0)),
            }
            for number, (outcome, said) in enumerate(_attempts(line)):
                yield {
                    **common,
                    **of_test,
                    "rerun_number": number,
                    "outcome": outcome,
                    "outcome_summary": said[:SUMMARY],
                }

    return _table(
        "runs",
        columns,
        ("test_id", "env_id", "flags_id", "started_at", "github_workflow_job_id", "rerun_number"),
        rows,
        key=("github_workflow_job_id",),
        key_values=lambda key, _row: key[-1:],
        shared=True,  # nothing is deleted first: upstream's table has a projection, which refuses that
    )


def _hub_export(name: str, make: str, *, cases: bool) -> Export:
    shape = Shape(
        make=f"bot.evidence.tests.exports:{make}",
        read="bot.evidence.tests.exported_tables:read_jobs",
        load="bot.evidence.tests.exports:load_job_cases" if cases else "",
        most=2 if cases else 500,
    )
    return Export(
        name=name,
        group="test_hub",
        table=test_job,
        day="at",
        repositories=("repository_id", "backend", "upstream_repo"),
        shapes={"clickhouse.upstream": shape},
    )


HUB_EXPORTS = (
    _hub_export("hub_runs", "copy_runs", cases=True),
    _hub_export("hub_tests", "copy_tests", cases=True),
    _hub_export("hub_environments", "copy_environments", cases=False),
    _hub_export("hub_flags", "copy_flags", cases=False),
)


def copy_lines(export: Export, row: ExportedRow) -> list[StoredObject]:
    """Copy the suites of a run, one line per suite."""
    return _object(export, row, [describe_suite(row, suite) for suite in row["rows"]])


def copy_failures(export: Export, row: ExportedRow) -> list[StoredObject]:
    """Copy the failed cases of a run, one line per case."""
    return _object(export, row, [describe_failure(row, failure) for failure in row["rows"]])


async def load_cases(context: Context, rows: Mapping[RowKey, ExportedRow]) -> dict[RowKey, ExportedRow]:
    """Add a file with all cases of each run, possibly millions; only runs on branches have one."""
    runs: dict[RowKey, ExportedRow] = {}
    for key, run in rows.items():
        jobs = [job for job in run["jobs"] if is_exported_whole(job)]
        runs[key] = {**run, "cases": await _write_cases(context, run, jobs) if jobs else None}
    return runs


async def load_all_cases(context: Context, rows: Mapping[RowKey, ExportedRow]) -> dict[RowKey, ExportedRow]:
    """Add a file with all cases of each run, whatever its branch or pull request."""
    return {key: {**run, "cases": await _write_cases(context, run, run["jobs"])} for key, run in rows.items()}


async def load_job_cases(context: Context, rows: Mapping[RowKey, ExportedRow]) -> dict[RowKey, ExportedRow]:
    """Add a file with all cases of each job."""
    return {
        key: {**job, "cases": await _write_cases(context, job, [cast("TestJobRow", job)])}
        for key, job in rows.items()
    }


def copy_cases(export: Export, row: ExportedRow) -> list[StoredObject]:
    """Copy all cases of a run, one line per case."""
    cases: CasesFile | None = row["cases"]
    return [] if cases is None else [StoredObject(key=_key(export, row), content=cases.pieces)]


class CasesFile:
    """A temporary file with the cases of a run, closed once nothing refers to it."""

    def __init__(self) -> None:
        self.file = cast("IO[bytes]", tempfile.TemporaryFile())  # noqa: SIM115 - closed by the next line
        weakref.finalize(self, self.file.close)

    def pieces(self) -> Iterator[bytes]:
        """Yield its content."""
        self.file.seek(0)
        while piece := self.file.read(PIECE):
            yield piece


def _document_export(name: str, make: str, table: str, read: str, *, load: str = "", most: int) -> Export:
    def shape(made: str) -> Shape:
        store = "bot.evidence.tests.exported_tables"
        return Shape(make=f"bot.evidence.tests.{made}", read=f"{store}:{read}", load=load, most=most)

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
    _document_export("test_run_summary", "copy_lines", "suites", "read_summaries", most=5),
    _document_export("failed_test_runs", "copy_failures", "failures", "read_failures", most=5),
    _document_export(
        "test_run", "copy_cases", "cases", "read_runs", load="bot.evidence.tests.exports:load_cases", most=2
    ),
    Export(
        name="test_jobs",
        group="tests",
        table=test_job,
        day="at",
        repositories=("repository_id", "backend", "upstream_repo"),
        shapes={
            "clickhouse.ootbot": Shape(
                make="bot.evidence.tests.exported_tables:copy_jobs",
                read="bot.evidence.tests.exported_tables:read_jobs",
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
                make="bot.evidence.tests.exported_tables:copy_upstream_test_runs",
                read="bot.evidence.tests.exported_tables:read_runs",
                load="bot.evidence.tests.exports:load_all_cases",
                most=2,
            )
        },
    ),
    *STATE_EXPORTS,
    *HUB_EXPORTS,
)


def _attempts(line: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the outcomes and messages of a case's attempts: an earlier failed one, if any, and the last."""
    before = line.get("rerun")
    earlier = [("failed", (before or {}).get("message") or "")] if before or line["status"] == FLAKY else []
    said = next((line[name]["message"] for name in ("failure", "error", "skipped") if name in line), "")
    status = "passed" if line["status"] == FLAKY else line["status"]
    return [*earlier, (status if status in OUTCOMES else "unknown", said or "")]


def _table(
    name: str,
    columns: Mapping[str, str],
    order: tuple[str, ...],
    rows: Callable[[ExportedRow], Iterable[Mapping[str, Any]]],
    **more: Any,
) -> TableCopy:
    return TableCopy(table=ColumnTable(name=f"tests.{name}", columns=columns, order=order), rows=rows, **more)


def _catalog(
    name: str,
    columns: Mapping[str, str],
    rows: Callable[[ExportedRow], Iterable[Mapping[str, Any]]],
    number: Callable[[ExportedRow], int],
) -> TableCopy:
    """Copy a catalog of values that jobs of a repository share."""

    def key_values(_key: RowKey, job: ExportedRow | None) -> tuple[int] | None:
        return None if job is None else (number(job),)

    return _table(name, columns, ("id",), rows, key=("id",), key_values=key_values, shared=True)


def _repo_of(_key: RowKey, job: ExportedRow | None) -> tuple[str] | None:
    return None if job is None else (job["repo"],)


def _test_id(job: ExportedRow, line: Mapping[str, Any]) -> int:
    return _number(job["repo"], line["file"], line["classname"], line["name"], _language(line["file"]))


def _environment_id(job: ExportedRow) -> int:
    return _number(job["repo"], *(str(job.get(ours) or "") for ours in ENVIRONMENT.values()))


def _flags_id(job: ExportedRow) -> int:
    return _number(job["repo"], *(f"{name}={value}" for name, value in sorted((job["flags"] or {}).items())))


def _language(file: str) -> str:
    return "python" if file.endswith(".py") else "unknown"


def _number(*parts: str) -> int:
    digest = hashlib.blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=8)
    return int.from_bytes(digest.digest(), "big")


def _object(export: Export, row: ExportedRow, lines: list[dict[str, Any]]) -> list[StoredObject]:
    return [StoredObject(key=_key(export, row), content=lambda: map(json_line, lines))]


def _key(export: Export, row: ExportedRow) -> str:
    return object_key(export.name, row["run_id"], row["run_attempt"])


async def _write_cases(context: Context, run: ExportedRow, jobs: Iterable[TestJobRow]) -> CasesFile:
    cases_file = CasesFile()
    for job in jobs:
        async with context.store.read() as tx:
            content = (await blocks_of_jobs(tx, [job["generation"]])).get(job["generation"])
            failures = await exported_tables.failures_of_job(tx, job["generation"])
        if content is None:
            continue
        cases = await asyncio.to_thread(block.decode, content)
        for start in range(0, len(cases.ids), NAMES_AT_ONCE):
            part = block.Block(*(column[start : start + NAMES_AT_ONCE] for column in cases))
            async with context.store.read() as tx:
                names = await exported_tables.names_of_tests(tx, set(part.ids))
            lines = (
                json_line(
                    describe_case(run, job["job_id"], names[test_id], (code, time), failures.get(test_id, ()))
                )
                for test_id, code, time in zip(*part, strict=True)
                if test_id in names
            )
            await asyncio.to_thread(cases_file.file.writelines, lines)
    return cases_file
