"""What does a backend's page show of its jobs? Narrow rows for the grid, failed tests, the machine it ran on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.store.tables import oot_workflow_job, records

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from bot.store.transaction import Transaction

Row = dict[str, Any]
JOB = oot_workflow_job.c
GRID = (
    JOB.job_key, JOB.upstream_repo, JOB.pr_number, JOB.head_sha, JOB.workflow_name, JOB.job_name, JOB.run_id,
    JOB.run_attempt, JOB.status, JOB.conclusion, JOB.execution_time, JOB.failed_tests, JOB.delivery_id,
    JOB.received_at,
)  # fmt: skip
TESTS = (
    JOB.failed_tests_json, JOB.received_at, JOB.head_sha, JOB.run_id, JOB.workflow_run_url, JOB.pr_number,
    JOB.upstream_repo,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Which jobs of a backend are wanted."""

    backend: str
    since: int  # epoch milliseconds
    events: Collection[str]
    hidden: Collection[str]  # case folded names of upstreams that may not be shown


async def grid(tx: Transaction, asked: Asked, *, limit: int) -> list[Row]:
    """Return the newest jobs, newest first; `run_received_at` says which of several runs is the newest."""
    names = [column.name for column in GRID]
    found = await tx.run(_of(GRID, asked).order_by(JOB.received_at.desc()).limit(limit))
    rows = [dict(zip(names, row, strict=True)) for row in found]
    began: dict[tuple[str, str], int] = {}
    for row in reversed(rows):
        began.setdefault((row["delivery_id"], row["run_id"]), row["received_at"])
    for row in rows:
        row["run_received_at"] = began[row["delivery_id"], row["run_id"]]
    return rows


async def failed_tests(tx: Transaction, asked: Asked, *, limit: int) -> list[Row]:
    """Return the failed tests of the newest jobs that have any, newest first."""
    query = _of(TESTS, asked).where(JOB.failed_tests_json.is_not(None), JOB.failed_tests > 0)
    return await tx.rows(query.order_by(JOB.received_at.desc()).limit(limit))


async def titles(tx: Transaction, repo: str, numbers: Collection[int]) -> dict[int, Row]:
    """Return title and author of pull requests, by number."""
    pull = records["pull_request"].c
    query = sa.select(pull.number, pull.title, pull.user_login).where(
        sa.func.lower(pull.repo) == repo.lower(), pull.number.in_(sorted(numbers))
    )
    return {row["number"]: row for row in await tx.rows(query)}


def _of(columns: Iterable[Any], asked: Asked) -> Any:
    query = sa.select(*columns).where(
        sa.func.lower(JOB.downstream_repo) == asked.backend.lower(),
        JOB.received_at >= asked.since,
        JOB.event_type.in_(sorted(asked.events)),
    )
    if asked.hidden:
        query = query.where(sa.func.lower(JOB.upstream_repo).not_in(sorted(asked.hidden)))
    return query
