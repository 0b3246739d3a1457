"""What does a backend's page show? Narrow rows of jobs for the grid, failed tests, dispatches nobody answered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.store.counted import HEARD, flagged
from bot.store.job_reads import SIZE, fit
from bot.store.tables import BACKEND_OF_HEAD, ENDED_UNANSWERED, oot_dispatch, oot_workflow_job, records

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from bot.store.transaction import Transaction

Row = dict[str, Any]
JOB, TOLD = oot_workflow_job.c, oot_dispatch.c
BACKEND = sa.func.lower(JOB.downstream_repo)
GRID = (
    JOB.job_key, JOB.upstream_repo, JOB.pr_number, JOB.head_sha, JOB.workflow_name, JOB.job_name, JOB.run_id,
    JOB.run_attempt, JOB.status, JOB.conclusion, JOB.execution_time, JOB.failed_tests, JOB.delivery_id,
    JOB.received_at,
)  # fmt: skip
TESTS = (
    JOB.failed_tests_json, JOB.received_at, JOB.head_sha, JOB.run_id, JOB.workflow_run_url, JOB.pr_number,
    JOB.upstream_repo,
)  # fmt: skip
SILENT = (
    TOLD.delivery_id, TOLD.upstream_repo, TOLD.event_type, TOLD.pr_number, TOLD.head_sha, TOLD.state, TOLD.error,
    TOLD.created_at, TOLD.dispatched_at,
)  # fmt: skip
LOOKED_AT = (300, 2_000, 6_000)  # newest jobs among which the newest commits are looked for


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Which jobs of a backend are wanted."""

    backend: str
    since: int  # epoch milliseconds
    events: Collection[str]
    hidden: Collection[str]  # case folded names of upstreams that may not be shown


async def grid(tx: Transaction, asked: Asked, *, commits: int, limit: int) -> list[Row]:
    """Return the jobs of the newest commits and one more, newest first; at most `limit`.

    `run_received_at` says which of several runs is the newest.
    """
    names = [column.name for column in GRID]
    query = _of(GRID, asked, backend=BACKEND_OF_HEAD).where(await _newest(tx, asked, commits + 1))
    found = (await tx.run(query.order_by(JOB.received_at.desc()).limit(limit))).all()
    rows = [dict(zip(names, row, strict=True)) for row in found]
    began: dict[tuple[str, str], int] = {}
    for row in reversed(rows):
        began.setdefault((row["delivery_id"], row["run_id"]), row["received_at"])
    for row in rows:
        row["run_received_at"] = began[row["delivery_id"], row["run_id"]]
    return rows


async def _newest(tx: Transaction, asked: Asked, most: int) -> sa.ColumnElement[bool]:
    """Return what the jobs of the newest commits have in common; of few jobs, where these are enough."""
    shas: list[str | None] = []
    for looked_at in LOOKED_AT:
        part = _of((JOB.head_sha, JOB.received_at), asked).order_by(JOB.received_at.desc())
        newest = part.limit(looked_at).subquery().c
        query = sa.select(newest.head_sha).group_by(newest.head_sha)
        query = query.order_by(sa.func.max(newest.received_at).desc()).limit(most)
        shas = list((await tx.run(query)).scalars())
        if len(shas) == most:
            break
    known = JOB.head_sha.in_([sha for sha in shas if sha is not None])
    return known | JOB.head_sha.is_(None) if None in shas else known


async def failed_tests(tx: Transaction, asked: Asked, *, limit: int) -> list[Row]:
    """Return the failed tests of the newest jobs that have any, newest first, as far as there is room for them."""
    failing = (JOB.failed_tests_json.is_not(None), JOB.failed_tests > 0)
    sizes = _of((JOB.job_key, SIZE), asked).where(*failing)
    fitting = fit(await tx.rows(sizes.order_by(JOB.received_at.desc()).limit(limit)))
    query = sa.select(*TESTS).where(JOB.job_key.in_(fitting))
    return await tx.rows(query.order_by(JOB.received_at.desc()))


async def unanswered(
    tx: Transaction, backend: str, *, since: int, hidden: Collection[str], limit: int
) -> list[Row]:
    """Return the newest dispatches to a backend that ended without a report, without those of `hidden` upstreams."""
    query = sa.select(*SILENT).where(
        TOLD.backend_key == backend.casefold(),
        TOLD.created_at >= since,
        ENDED_UNANSWERED,
        ~HEARD,
        sa.func.lower(TOLD.upstream_repo).not_in(sorted(hidden)),
    )
    return await tx.rows(query.order_by(TOLD.created_at.desc(), TOLD.id.desc()).limit(limit))


async def titles(tx: Transaction, repo: str, numbers: Collection[int]) -> dict[int, Row]:
    """Return title and author of pull requests, by number."""
    pull = records["pull_request"].c
    query = sa.select(pull.number, pull.title, pull.user_login).where(
        sa.func.lower(pull.repo) == repo.lower(), pull.number.in_(sorted(numbers))
    )
    return {row["number"]: row for row in await tx.rows(query)}


def _of(columns: Iterable[Any], asked: Asked, *, backend: sa.ColumnElement[str] = BACKEND) -> Any:
    query = sa.select(*columns).where(
        backend == asked.backend.lower(),
        JOB.received_at >= asked.since,
        JOB.event_type.in_(sorted(asked.events)),
        ~flagged("refused"),
    )
    if asked.hidden:
        query = query.where(sa.func.lower(JOB.upstream_repo).not_in(sorted(asked.hidden)))
    return query
