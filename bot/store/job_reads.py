"""How are whole rows of jobs read where there may be many? With their failed tests only as far as these fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.store.tables import oot_workflow_job

if TYPE_CHECKING:
    from bot.store.transaction import Transaction

Row = dict[str, Any]
JOB = oot_workflow_job.c
MOST_TESTS = 8_000_000  # characters of failed tests that are read for one page: a job may have 2,000,000
SIZE = sa.func.coalesce(sa.func.length(sa.cast(JOB.failed_tests_json, sa.Text)), 0).label("size")
WITHOUT_TESTS = sa.select(*(one for one in JOB if one.name != "failed_tests_json"), SIZE)


async def whole(tx: Transaction, query: sa.Select[Any]) -> list[Row]:
    """Return the rows of a query of `WITHOUT_TESTS`; the first ones that fit have their failed tests, others null."""
    rows = await tx.rows(query)
    fitting = fit(rows)
    wanted = sa.select(JOB.job_key, JOB.failed_tests_json).where(JOB.job_key.in_(fitting))
    tests = {row["job_key"]: row["failed_tests_json"] for row in await tx.rows(wanted)} if fitting else {}
    return [row | {"failed_tests_json": tests.get(row["job_key"])} for row in rows]


def fit(rows: list[Row]) -> list[str]:
    """Return the keys of those of the first rows that have failed tests, as far as there is room for these."""
    room, found = MOST_TESTS, []
    for row in rows:
        size = row.pop("size")
        room -= size
        if size and room >= 0:
            found.append(row["job_key"])
    return found
