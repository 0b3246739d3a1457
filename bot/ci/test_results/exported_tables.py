"""Test results as rows of tables: our own, with the job and the machine of each, and upstream's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from bot.ci.test_results.exported_cases import describe_failure, describe_suite
from bot.ci.test_results.job_tables import test_job
from bot.ci.test_results.parse.block import Code
from bot.ci.test_results.tables import test_env
from bot.core.column_tables import ColumnTable, TableCopy
from bot.db.table_copies import column_types, copy_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from bot.ci.test_results.exports import CasesFile
    from bot.db.exports import Export, Row

WITHOUT = ("block", "counted", "counted_day", "counted_group", "counted_block", "unreadable", "notes", "generation",
           "env_id", "flags", "properties", "digest", "id")  # fmt: skip
OF_JOB = ("job_id", "repo", "backend", "upstream_repo", "workflow", "base_name", "config", "head_sha", "head_branch",
          "trusted", "at")  # fmt: skip
WHOLE, TEXT = "Int64", "String"
NAMES = {"file": "LowCardinality(String)", "suite": "LowCardinality(String)"}
COUNTS = ("tests", "failures", "errors", "skipped", "successes", "flaky", "time_ms")
SAID = f"Array(Tuple(type {TEXT}, message {TEXT}, text {TEXT}))"
INSERTED = {"time_inserted": "DateTime64(9)"}  # when the job's newest part was received
SUITES = {
    **INSERTED, **dict.fromkeys(("classname", "file", "invoking_file"), TEXT), "time": "Float32",
    **dict.fromkeys(("errors", "failures", "job_id", "skipped", "successes", "tests", "workflow_id",
                     "workflow_run_attempt"), WHOLE),
}  # fmt: skip
CASES = {
    **INSERTED,
    **dict.fromkeys(
        ("classname", "file", "invoking_file", "name", "result", "status", "type_param", "value_param"), TEXT),
    **dict.fromkeys(("job_id", "line", "workflow_id"), WHOLE), "workflow_run_attempt": "Int32",
    "duration": "Float32", "time": "Float32",
    **dict.fromkeys(("error", "failure", "skipped"), SAID), "rerun": f"Array(Tuple(message {TEXT}, text {TEXT}))",
    "system-out": f"Array({TEXT})", "system-err": f"Array({TEXT})",
    "properties": f"Tuple(property Tuple(name {TEXT}, value {TEXT}))",
}  # fmt: skip
LISTS = ("error", "failure", "skipped", "rerun")
COUNTED = {f"{name}_count": f"UInt32 MATERIALIZED length({name})" for name in LISTS}
_LINE = msgspec.json.Decoder(dict[str, Any])


def copy_jobs(export: Export) -> TableCopy:
    """Return the copy of jobs, with the machines they ran on."""
    return copy_of(export, column_types(test_job, test_env, without=WITHOUT))


def copy_suites(export: Export) -> TableCopy:
    """Return the copy of what jobs said of suites."""
    columns = NAMES | {"invoking_file": TEXT} | dict.fromkeys(COUNTS, WHOLE)
    return _ours(export, "test_summary", columns, ("file", "suite", "invoking_file"), _rows)


def copy_failures(export: Export) -> TableCopy:
    """Return the copy of cases that failed in some attempt."""
    said = ("type", "message", "signature", "verdict")
    columns = {
        **NAMES, "name": TEXT, "invoking_file": TEXT, "outcome": "LowCardinality(String)", "flaky": "Bool",
        "attempts": WHOLE, "failed_attempts": WHOLE, "time_ms": f"Nullable({WHOLE})", **dict.fromkeys(said, TEXT),
    }  # fmt: skip

    def rows(row: Row) -> Iterator[Mapping[str, Any]]:
        return ({**one, "outcome": Code(one["outcome"]).name.lower()} for one in _rows(row))

    return _ours(export, "test_failure", columns, ("file", "suite", "name", "invoking_file"), rows)


def copy_cases(export: Export) -> TableCopy:
    """Return the copy of all cases of runs of trusted branches."""
    columns = {**NAMES, "name": TEXT, "outcome": "LowCardinality(String)", "time_ms": f"Nullable({WHOLE})"}

    def rows(row: Row) -> Iterator[Mapping[str, Any]]:
        jobs = _jobs(row)
        for line in case_lines(row["cases"]):
            seconds = line["time"]
            yield {
                **jobs[line["job_id"]],
                "file": line["file"],
                "suite": line["classname"],
                "name": line["name"],
                "outcome": line["status"],
                "time_ms": None if seconds is None else round(seconds * 1000),
            }

    return _ours(export, "test_case", columns, ("file", "suite", "name"), rows)


def _ours(
    export: Export,
    name: str,
    columns: Mapping[str, str],
    order: tuple[str, ...],
    rows: Callable[[Row], Iterable[Mapping[str, Any]]],
) -> TableCopy:
    of_job = column_types(test_job)
    key = {column.name: WHOLE for column in export.key_columns}
    found = {**key, **{one: of_job.get(one, TEXT) for one in OF_JOB}, **columns}
    return copy_of(export, found, name=name, order=("job_id", *order), rows=rows, several=True)


def _jobs(row: Row) -> dict[int, dict[str, Any]]:
    """Return what all rows of a job have, by its id."""
    run = {name: row[name] for name in ("repository_id", "run_id", "run_attempt")}
    return {
        job["job_id"]: {name: job.get(name) for name in OF_JOB} | {"repo": row.get("repo")} | run
        for job in row["jobs"]
    }


def _rows(row: Row) -> Iterator[dict[str, Any]]:
    jobs = _jobs(row)
    return ({**one, **jobs[one["job_id"]]} for one in row["rows"])


def case_lines(cases: CasesFile | None) -> Iterator[dict[str, Any]]:
    """Yield the lines of a file with cases, where there is one."""
    if cases is None:
        return
    left = b""
    for piece in cases.pieces():
        *whole, left = (left + piece).split(b"\n")
        yield from map(_LINE.decode, whole)
    if left:
        yield _LINE.decode(left)


def copy_upstream_suites(_export: Export) -> TableCopy:
    """Return the copy of what jobs said of suites, as upstream has it."""
    order = ("workflow_id", "job_id", "file", "classname", "invoking_file")
    return _upstream("default.test_run_summary", SUITES, order, lambda row: _each(row, describe_suite))


def copy_upstream_failures(_export: Export) -> TableCopy:
    """Return the copy of cases that failed in some attempt, as upstream has it."""
    return _upstream(
        "default.failed_test_runs",
        CASES,
        CASE_ORDER,
        lambda row: map(_as_lists, _each(row, describe_failure)),
    )


def copy_upstream_cases(_export: Export) -> TableCopy:
    """Return the copy of all cases, as upstream has it."""
    return _upstream(
        "default.test_run_s3", CASES, CASE_ORDER, lambda row: map(_as_lists, case_lines(row["cases"]))
    )


def copy_upstream_test_runs(_export: Export) -> TableCopy:
    """Return the copy of all cases of all jobs, as upstream's newer table has it."""
    return _upstream(
        "tests.all_test_runs",
        CASES,
        ("job_id", "file", "classname", "name", "workflow_id"),
        lambda row: map(_as_lists, case_lines(row["cases"])),
        computed=COUNTED,
    )


CASE_ORDER = ("workflow_id", "job_id", "file", "classname", "name")


def _upstream(
    name: str,
    columns: Mapping[str, str],
    order: tuple[str, ...],
    rows: Callable[[Row], Iterable[Mapping[str, Any]]],
    computed: Mapping[str, str] | None = None,
) -> TableCopy:
    def with_times(row: Row) -> Iterator[Mapping[str, Any]]:
        received = {job["job_id"]: job["received_at"] for job in row["jobs"]}
        return ({**one, "time_inserted": received.get(one["job_id"])} for one in rows(row))

    return TableCopy(
        table=ColumnTable(name=name, columns=columns, order=order, computed=computed or {}),
        rows=with_times,
        key=("workflow_id", "workflow_run_attempt"),
        key_values=lambda key, _row: key[1:],
        several=True,
    )


def _each(row: Row, describe: Callable[[Row, Mapping[str, Any]], dict[str, Any]]) -> Iterator[dict[str, Any]]:
    return (describe(row, one) for one in row["rows"])


def _as_lists(case: dict[str, Any]) -> dict[str, Any]:
    """Return a case as upstream's replicator stores it: what was said as lists."""
    said: dict[str, Any] = {name: [case[name]] if case.get(name) else [] for name in LISTS}
    printed: dict[str, Any] = {
        name: [case[name]["text"]] for name in ("system-out", "system-err") if name in case
    }
    listed = case.get("properties", {}).get("property")
    properties: dict[str, Any] = {"properties": {"property": listed[0]}} if listed else {}
    return {**case, **said, **printed, **properties}
