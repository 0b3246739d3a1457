"""Rows of test results as they leave for sinks: of a whole run at once, as upstream's documents have them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.ci.test_results.job_tables import TestJobRow, test_job
from bot.ci.test_results.parse.block import FAILING
from bot.ci.test_results.store.rows import JOBS, environments_by_id
from bot.ci.test_results.tables import test, test_class, test_failure, test_summary
from bot.db.exports import read_rows

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from bot.db.exports import Export, Key, Row
    from bot.db.transaction import Transaction

JOB, CLASS, SUMMARY, FAILURE, TEST = test_job.c, test_class.c, test_summary.c, test_failure.c, test.c
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


def _failures() -> sa.Select[Any]:
    columns = (column for column in FAILURE if column.name not in {"evidence", "head_sha", "at"})
    joined = test_failure.join(test, TEST.id == FAILURE.test_id).join(test_class, CLASS.id == TEST.class_id)
    return sa.select(*columns, CLASS.file, CLASS.suite, TEST.name).select_from(joined)
