"""Test results as exported rows: read by run, described as upstream does, flattened into tables."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec
import sqlalchemy as sa

from bot.db.exports import ColumnTable, TableCopy, column_types, copy_of, read_rows
from bot.evidence.tests.parse.block import FAILING, FLAKY, NO_TIME, Code, outcome_of
from bot.evidence.tests.rows import JOBS, environments_by_id
from bot.evidence.tests.tables import (
    TestJobRow,
    test,
    test_class,
    test_env,
    test_failure,
    test_job,
    test_loss,
    test_summary,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from bot.db.exports import Export, ExportedRow, RowKey
    from bot.db.transaction import Transaction
    from bot.evidence.tests.exports import CasesFile

JOB, CLASS, SUMMARY, FAILURE, TEST = test_job.c, test_class.c, test_summary.c, test_failure.c, test.c
LOSS = test_loss.c
RUN_KEY = ("repository_id", "run_id", "run_attempt")
NAMES_AT_ONCE = 500  # tests
TRUNK = re.compile("trunk/[0-9a-f]{40}")
RESULTS = {
    Code.PASSED: "success", Code.XPASSED: "success", Code.XFAILED: "skipped", Code.SKIPPED: "skipped",
    Code.FAILED: "failure", Code.TIMED_OUT: "failure", Code.ERROR: "error", Code.CRASHED: "error",
}  # fmt: skip
SAYS = {
    "failure": "failure",
    "error": "error",
    "skipped": "skipped",
}  # the member with what was said, by result
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
CASE_ORDER = ("workflow_id", "job_id", "file", "classname", "name")


async def read_runs(tx: Transaction, _export: Export, keys: Sequence[RowKey]) -> dict[RowKey, ExportedRow]:
    """Return runs by key, with their jobs."""
    runs: dict[RowKey, ExportedRow] = {}
    query = JOBS.where(tx.among([JOB[name] for name in RUN_KEY], keys)).order_by(JOB.job_id)
    for job in await tx.fetch(query):
        key = (job["repository_id"], job["run_id"], job["run_attempt"])
        of_run = {name: job[name] for name in ("backend", "upstream_repo")} | dict(
            zip(RUN_KEY, key, strict=True)
        )
        runs.setdefault(key, of_run | {"jobs": []})["jobs"].append(job)
    return runs


async def read_jobs(tx: Transaction, export: Export, keys: Sequence[RowKey]) -> dict[RowKey, ExportedRow]:
    """Read jobs with their environments."""
    jobs = await read_rows(tx, export, keys)
    machines = await environments_by_id(tx, {row["env_id"] for row in jobs.values()})
    return {key: {**machines.get(row["env_id"], {}), **row} for key, row in jobs.items()}


async def read_summaries(
    tx: Transaction, export: Export, keys: Sequence[RowKey]
) -> dict[RowKey, ExportedRow]:
    """Read runs with the suite summaries of their jobs."""
    runs = await read_runs(tx, export, keys)
    columns = (column for column in SUMMARY if column.name not in {"class_id", "at"})
    query = sa.select(*columns, CLASS.file, CLASS.suite).join_from(
        test_summary, test_class, CLASS.id == SUMMARY.class_id
    )
    return await _with_rows(tx, runs, query, SUMMARY.generation, (SUMMARY.class_id, SUMMARY.invoking_file))


async def read_failures(tx: Transaction, export: Export, keys: Sequence[RowKey]) -> dict[RowKey, ExportedRow]:
    """Read runs with the cases that failed in at least one attempt."""
    runs = await read_runs(tx, export, keys)
    failed = FAILURE.outcome.in_(sorted(FAILING)) | (FAILURE.failed_attempts > 0)
    return await _with_rows(tx, runs, _failures().where(failed), FAILURE.generation, (FAILURE.test_id,))


async def failures_of_job(tx: Transaction, generation: int) -> dict[int, list[dict[str, Any]]]:
    """Return the stored failures of a job, by test."""
    by_test: dict[int, list[dict[str, Any]]] = {}
    for row in await tx.rows(_failures().where(FAILURE.generation == generation)):
        by_test.setdefault(row["test_id"], []).append(row)
    return by_test


async def names_of_tests(tx: Transaction, ids: Collection[int]) -> dict[int, tuple[str, str, str]]:
    """Return the file, suite and name of tests, in batches of one statement each."""
    query = sa.select(TEST.id, CLASS.file, CLASS.suite, TEST.name).join_from(
        test, test_class, CLASS.id == TEST.class_id
    )
    return {row[0]: (row[1], row[2], row[3]) for row in await tx.run(query.where(TEST.id.in_(sorted(ids))))}


async def read_states(tx: Transaction, export: Export, keys: Sequence[RowKey]) -> dict[RowKey, ExportedRow]:
    """Read the states of tests, with the tests' names."""
    rows = await read_rows(tx, export, keys)
    ids = sorted({int(row["test_id"]) for row in rows.values()})
    names: dict[int, tuple[str, str, str]] = {}
    for start in range(0, len(ids), NAMES_AT_ONCE):
        names |= await names_of_tests(tx, ids[start : start + NAMES_AT_ONCE])
    unknown = ("", "", "")
    return {
        key: {**row, **dict(zip(("file", "suite", "name"), names.get(row["test_id"], unknown), strict=True))}
        for key, row in rows.items()
    }


async def read_losses(tx: Transaction, _export: Export, keys: Sequence[RowKey]) -> dict[RowKey, ExportedRow]:
    """Read what runs lost as `rows`, with the suites' names, which are empty for a loss of the jobs as a whole."""
    joined = test_loss.outerjoin(test_class, CLASS.id == LOSS.class_id)
    columns = (
        *LOSS,
        sa.func.coalesce(CLASS.file, "").label("file"),
        sa.func.coalesce(CLASS.suite, "").label("suite"),
    )
    query = sa.select(*columns).select_from(joined).where(tx.among([LOSS.repository_id, LOSS.run_id], keys))
    losses: dict[RowKey, ExportedRow] = {}
    for row in await tx.rows(
        query.order_by(LOSS.repository_id, LOSS.run_id, LOSS.family, LOSS.class_id, LOSS.kind)
    ):
        key = (row["repository_id"], row["run_id"])
        of_run = {name: row[name] for name in ("repository_id", "run_id", "backend")}
        losses.setdefault(key, of_run | {"rows": []})["rows"].append(row)
    return losses


def is_exported_whole(job: TestJobRow) -> bool:
    """Whether all cases of a job are exported: those of a trusted branch, or of a commit on it tested alone."""
    of_commit = TRUNK.fullmatch(job["head_branch"] or "") is not None and job["event"] == "push"
    return job["backend"] is None and (job["trusted"] or of_commit)


def describe_suite(run: ExportedRow, suite: Mapping[str, Any]) -> dict[str, Any]:
    """Describe a suite of a job."""
    return {
        "classname": suite["suite"],
        "file": suite["file"],
        "invoking_file": suite["invoking_file"] or suite["file"],
        **{name: suite[name] for name in ("tests", "failures", "errors", "skipped", "successes")},
        "time": suite["time_ms"] / 1000,
        **_of_run(run, suite["job_id"]),
    }


def describe_failure(run: ExportedRow, failure: Mapping[str, Any]) -> dict[str, Any]:
    """Describe a case that failed in at least one attempt."""
    names = (failure["file"], failure["suite"], failure["name"])
    return _case(run, failure["job_id"], names, Code(failure["outcome"]), failure["time_ms"]) | _said(failure)


def describe_case(
    run: ExportedRow,
    job_id: int,
    names: tuple[str, str, str],
    cell: tuple[int, int],
    said: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Describe a case of a block, with its stored failure if there is one."""
    code, time = cell
    outcome = outcome_of(code)
    case = _case(run, job_id, names, outcome, None if time == NO_TIME else time)
    mine = next((failure for failure in said if failure["outcome"] == outcome), None)
    return case | (_said(mine) if mine else {"status": "flaky"} if code & FLAKY else {})


def copy_jobs(export: Export) -> TableCopy:
    """Copy jobs, with their environments."""
    return copy_of(export, column_types(test_job, test_env, without=WITHOUT))


def copy_suites(export: Export) -> TableCopy:
    """Copy the suite summaries of jobs."""
    columns = NAMES | {"invoking_file": TEXT} | dict.fromkeys(COUNTS, WHOLE)
    return _ours(export, "test_summary", columns, ("file", "suite", "invoking_file"), _rows)


def copy_failures(export: Export) -> TableCopy:
    """Copy the cases that failed in at least one attempt."""
    said = ("type", "message", "signature", "verdict")
    columns = {
        **NAMES, "name": TEXT, "invoking_file": TEXT, "outcome": "LowCardinality(String)", "flaky": "Bool",
        "attempts": WHOLE, "failed_attempts": WHOLE, "time_ms": f"Nullable({WHOLE})", **dict.fromkeys(said, TEXT),
    }  # fmt: skip

    def rows(row: ExportedRow) -> Iterator[Mapping[str, Any]]:
        return ({**failure, "outcome": Code(failure["outcome"]).name.lower()} for failure in _rows(row))

    return _ours(export, "test_failure", columns, ("file", "suite", "name", "invoking_file"), rows)


def copy_cases(export: Export) -> TableCopy:
    """Copy all cases of runs on trusted branches."""
    columns = {**NAMES, "name": TEXT, "outcome": "LowCardinality(String)", "time_ms": f"Nullable({WHOLE})"}

    def rows(row: ExportedRow) -> Iterator[Mapping[str, Any]]:
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


def case_lines(cases: CasesFile | None) -> Iterator[dict[str, Any]]:
    """Yield the lines of a file of cases, if there is one."""
    if cases is None:
        return
    left = b""
    for piece in cases.pieces():
        *whole, left = (left + piece).split(b"\n")
        yield from map(_LINE.decode, whole)
    if left:
        yield _LINE.decode(left)


def copy_upstream_suites(_export: Export) -> TableCopy:
    """Copy the suite summaries of jobs in upstream's form."""
    order = ("workflow_id", "job_id", "file", "classname", "invoking_file")
    return _upstream("default.test_run_summary", SUITES, order, lambda row: _each(row, describe_suite))


def copy_upstream_failures(_export: Export) -> TableCopy:
    """Copy the cases that failed in at least one attempt in upstream's form."""
    return _upstream(
        "default.failed_test_runs",
        CASES,
        CASE_ORDER,
        lambda row: map(_as_lists, _each(row, describe_failure)),
    )


def copy_upstream_cases(_export: Export) -> TableCopy:
    """Copy all cases in upstream's form."""
    return _upstream(
        "default.test_run_s3", CASES, CASE_ORDER, lambda row: map(_as_lists, case_lines(row["cases"]))
    )


def copy_upstream_test_runs(_export: Export) -> TableCopy:
    """Copy all cases of all jobs in the form of upstream's newer table."""
    return _upstream(
        "tests.all_test_runs",
        CASES,
        ("job_id", "file", "classname", "name", "workflow_id"),
        lambda row: map(_as_lists, case_lines(row["cases"])),
        computed=COUNTED,
    )


async def _with_rows(
    tx: Transaction,
    runs: dict[RowKey, ExportedRow],
    query: sa.Select[Any],
    generation: sa.ColumnElement[Any],
    order: Iterable[sa.ColumnElement[Any]],
) -> dict[RowKey, ExportedRow]:
    exported: dict[RowKey, ExportedRow] = {}
    for key, run in runs.items():
        jobs: dict[int, TestJobRow] = {job["generation"]: job for job in run["jobs"]}
        rows = await tx.rows(query.where(generation.in_(sorted(jobs))).order_by(generation, *order))
        exported[key] = {**run, "rows": [row | {"job_id": jobs[row["generation"]]["job_id"]} for row in rows]}
    return exported


def _failures() -> sa.Select[Any]:
    columns = (column for column in FAILURE if column.name not in {"evidence", "head_sha", "at"})
    joined = test_failure.join(test, TEST.id == FAILURE.test_id).join(test_class, CLASS.id == TEST.class_id)
    return sa.select(*columns, CLASS.file, CLASS.suite, TEST.name).select_from(joined)


def _case(
    run: ExportedRow, job_id: int, names: tuple[str, str, str], outcome: Code, time_ms: int | None
) -> dict[str, Any]:
    file, suite, name = names
    seconds = None if time_ms is None else time_ms / 1000
    result = RESULTS[outcome]
    return {
        "classname": suite,
        "file": file,
        "invoking_file": file,
        "name": name,
        "time": seconds,
        "duration": seconds,
        "result": result,
        "status": outcome.name.lower(),
        **_of_run(run, job_id),
    }


def _said(failure: Mapping[str, Any]) -> dict[str, Any]:
    """Return the texts of a case, under their names in the document."""
    result = RESULTS[Code(failure["outcome"])]
    words = {"type": failure["type"], "message": failure["message"], "text": failure["stack"]}
    fields: dict[str, Any] = {
        "invoking_file": failure["invoking_file"] or failure["file"],
        "line": failure["line"],
    }
    if failure["flaky"] or (failure["failed_attempts"] and result == "success"):
        fields["rerun"] = {"message": failure["message"], "text": failure["stack"]}
    if result in SAYS:
        fields[SAYS[result]] = words
    if failure["output"]:
        fields["system-out"] = {"text": failure["output"]}
    if failure["properties"]:
        listed = [{"name": name, "value": value} for name, value in failure["properties"].items()]
        fields["properties"] = {"property": listed}
    return fields


def _of_run(run: ExportedRow, job_id: int) -> dict[str, Any]:
    return {"job_id": job_id, "workflow_id": run["run_id"], "workflow_run_attempt": run["run_attempt"]}


def _ours(
    export: Export,
    name: str,
    columns: Mapping[str, str],
    order: tuple[str, ...],
    rows: Callable[[ExportedRow], Iterable[Mapping[str, Any]]],
) -> TableCopy:
    of_job = column_types(test_job)
    key = {column.name: WHOLE for column in export.key_columns}
    columns_of_table = {**key, **{column: of_job.get(column, TEXT) for column in OF_JOB}, **columns}
    return copy_of(export, columns_of_table, name=name, order=("job_id", *order), rows=rows, several=True)


def _jobs(row: ExportedRow) -> dict[int, dict[str, Any]]:
    """Return the columns that all rows of a job share, by job id."""
    run = {name: row[name] for name in ("repository_id", "run_id", "run_attempt")}
    return {
        job["job_id"]: {name: job.get(name) for name in OF_JOB} | {"repo": row.get("repo")} | run
        for job in row["jobs"]
    }


def _rows(row: ExportedRow) -> Iterator[dict[str, Any]]:
    jobs = _jobs(row)
    return ({**line, **jobs[line["job_id"]]} for line in row["rows"])


def _upstream(
    name: str,
    columns: Mapping[str, str],
    order: tuple[str, ...],
    rows: Callable[[ExportedRow], Iterable[Mapping[str, Any]]],
    computed: Mapping[str, str] | None = None,
) -> TableCopy:
    def with_times(row: ExportedRow) -> Iterator[Mapping[str, Any]]:
        received = {job["job_id"]: job["received_at"] for job in row["jobs"]}
        return ({**line, "time_inserted": received.get(line["job_id"])} for line in rows(row))

    return TableCopy(
        table=ColumnTable(name=name, columns=columns, order=order, computed=computed or {}),
        rows=with_times,
        key=("workflow_id", "workflow_run_attempt"),
        key_values=lambda key, _row: key[1:],
        several=True,
    )


def _each(
    row: ExportedRow, describe: Callable[[ExportedRow, Mapping[str, Any]], dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    return (describe(row, line) for line in row["rows"])


def _as_lists(case: dict[str, Any]) -> dict[str, Any]:
    """Return a case as upstream's replicator stores it, with texts as lists."""
    said: dict[str, Any] = {name: [case[name]] if case.get(name) else [] for name in LISTS}
    printed: dict[str, Any] = {
        name: [case[name]["text"]] for name in ("system-out", "system-err") if name in case
    }
    listed = case.get("properties", {}).get("property")
    properties: dict[str, Any] = {"properties": {"property": listed[0]}} if listed else {}
    return {**case, **said, **printed, **properties}
