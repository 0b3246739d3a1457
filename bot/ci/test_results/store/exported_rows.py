"""Rows of test results as they leave for sinks: of a whole run at once, as upstream's documents have them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.ci.test_results.job_tables import TestJobRow, test_job
from bot.ci.test_results.parse.block import FAILING
from bot.ci.test_results.store.rows import JOBS, environments_by_id
from bot.ci.test_results.tables import test, test_class, test_failure, test_loss, test_summary
from bot.db.exports import read_rows

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from bot.db.exports import Export, Key, Row
    from bot.db.transaction import Transaction

JOB, CLASS, SUMMARY, FAILURE, TEST = test_job.c, test_class.c, test_summary.c, test_failure.c, test.c
LOSS = test_loss.c
RUN_KEY = ("repository_id", "run_id", "run_attempt")
NAMES_AT_ONCE = 500  # tests


async def read_runs(tx: Transaction, _export: Export, keys: Sequence[Key]) -> dict[Key, Row]:
    """Return what identifies runs, with their jobs."""
    found: dict[Key, Row] = {}
    query = JOBS.where(tx.among([JOB[name] for name in RUN_KEY], keys)).order_by(JOB.job_id)
    for job in await tx.fetch(query):
        key = (job["repository_id"], job["run_id"], job["run_attempt"])
        of_run = {name: job[name] for name in ("backend", "upstream_repo")} | dict(
            zip(RUN_KEY, key, strict=True)
        )
        found.setdefault(key, of_run | {"jobs": []})["jobs"].append(job)
    return found


async def read_jobs(tx: Transaction, export: Export, keys: Sequence[Key]) -> dict[Key, Row]:
    """Return jobs with the machines they ran on."""
    jobs = await read_rows(tx, export, keys)
    machines = await environments_by_id(tx, {row["env_id"] for row in jobs.values()})
    return {key: {**machines.get(row["env_id"], {}), **row} for key, row in jobs.items()}


async def read_summaries(tx: Transaction, export: Export, keys: Sequence[Key]) -> dict[Key, Row]:
    """Return runs with what their jobs said of suites."""
    runs = await read_runs(tx, export, keys)
    columns = (column for column in SUMMARY if column.name not in {"class_id", "at"})
    query = sa.select(*columns, CLASS.file, CLASS.suite).join_from(
        test_summary, test_class, CLASS.id == SUMMARY.class_id
    )
    return await _with_rows(tx, runs, query, SUMMARY.generation, (SUMMARY.class_id, SUMMARY.invoking_file))


async def read_failures(tx: Transaction, export: Export, keys: Sequence[Key]) -> dict[Key, Row]:
    """Return runs with the cases that failed in some attempt."""
    runs = await read_runs(tx, export, keys)
    failed = FAILURE.outcome.in_(sorted(FAILING)) | (FAILURE.failed_attempts > 0)
    return await _with_rows(tx, runs, _failures().where(failed), FAILURE.generation, (FAILURE.test_id,))


async def _with_rows(
    tx: Transaction,
    runs: dict[Key, Row],
    query: sa.Select[Any],
    generation: sa.ColumnElement[Any],
    order: Iterable[sa.ColumnElement[Any]],
) -> dict[Key, Row]:
    found: dict[Key, Row] = {}
    for key, run in runs.items():
        jobs: dict[int, TestJobRow] = {job["generation"]: job for job in run["jobs"]}
        rows = await tx.rows(query.where(generation.in_(sorted(jobs))).order_by(generation, *order))
        found[key] = {**run, "rows": [row | {"job_id": jobs[row["generation"]]["job_id"]} for row in rows]}
    return found


async def failures_of_job(tx: Transaction, generation: int) -> dict[int, list[dict[str, Any]]]:
    """Return the cases of a job of which more is stored than how they ended, by test."""
    found: dict[int, list[dict[str, Any]]] = {}
    for row in await tx.rows(_failures().where(FAILURE.generation == generation)):
        found.setdefault(row["test_id"], []).append(row)
    return found


async def names_of_tests(tx: Transaction, ids: Collection[int]) -> dict[int, tuple[str, str, str]]:
    """Return file, suite and name of some tests, as many as a statement takes."""
    query = sa.select(TEST.id, CLASS.file, CLASS.suite, TEST.name).join_from(
        test, test_class, CLASS.id == TEST.class_id
    )
    return {row[0]: (row[1], row[2], row[3]) for row in await tx.run(query.where(TEST.id.in_(sorted(ids))))}


async def read_states(tx: Transaction, export: Export, keys: Sequence[Key]) -> dict[Key, Row]:
    """Return states of tests with the names of these."""
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


async def read_losses(tx: Transaction, _export: Export, keys: Sequence[Key]) -> dict[Key, Row]:
    """Return what runs lost as `rows`, with the names of suites; both are empty where it is the jobs as a whole."""
    joined = test_loss.outerjoin(test_class, CLASS.id == LOSS.class_id)
    columns = (
        *LOSS,
        sa.func.coalesce(CLASS.file, "").label("file"),
        sa.func.coalesce(CLASS.suite, "").label("suite"),
    )
    query = sa.select(*columns).select_from(joined).where(tx.among([LOSS.repository_id, LOSS.run_id], keys))
    found: dict[Key, Row] = {}
    for row in await tx.rows(
        query.order_by(LOSS.repository_id, LOSS.run_id, LOSS.family, LOSS.class_id, LOSS.kind)
    ):
        key = (row["repository_id"], row["run_id"])
        of_run = {name: row[name] for name in ("repository_id", "run_id", "backend")}
        found.setdefault(key, of_run | {"rows": []})["rows"].append(row)
    return found


def _failures() -> sa.Select[Any]:
    columns = (column for column in FAILURE if column.name not in {"evidence", "head_sha", "at"})
    joined = test_failure.join(test, TEST.id == FAILURE.test_id).join(test_class, CLASS.id == TEST.class_id)
    return sa.select(*columns, CLASS.file, CLASS.suite, TEST.name).select_from(joined)
