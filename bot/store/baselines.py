"""How did a job fare elsewhere? The same backend, workflow and name, on the base and on other pull requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.domain.view import RED_CONCLUSIONS
from bot.domain.wire import SELF_TRIGGERED
from bot.store.pull_tables import oot_compared
from bot.store.record_tables import records
from bot.store.tables import oot_dispatch, oot_workflow_job

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.store.transaction import Transaction

Row = dict[str, Any]
JOB = oot_workflow_job.c
SEEN = (
    JOB.pr_number, JOB.head_sha, JOB.conclusion, JOB.failed_tests, JOB.failed_tests_json, JOB.workflow_run_url,
    JOB.completed_at, JOB.flags,
)  # fmt: skip
# what was cancelled or skipped says nothing, and there may be much of it
VERDICTS = sorted({"success", *RED_CONCLUSIONS})
KEYS_PER_QUERY = 500


@dataclass(frozen=True, kw_only=True)
class Failed:
    """A failed job whose like is looked for, and what the commit it ran on is based on."""

    job: Row
    base_ref: str | None
    base_shas: frozenset[str]


async def on_base(tx: Transaction, failed: Failed, *, within: int, limit: int) -> list[Row]:
    """Return the newest runs of a job on the base branch or merge base that ended before it did."""
    push = records["push"].c
    ref = push.ref == f"refs/heads/{failed.base_ref}"
    told = sa.exists().where(
        oot_dispatch.c.id == JOB.dispatch_id, push.guid == oot_dispatch.c.source_guid, ref
    )
    tip = sa.exists().where(
        push.after == JOB.head_sha, ref, sa.func.lower(push.repo) == sa.func.lower(JOB.upstream_repo)
    )
    by_itself = sa.and_(JOB.event_type.in_(SELF_TRIGGERED), tip)
    based = JOB.head_sha.in_(sorted(failed.base_shas))
    query = sa.select(*SEEN).where(
        *_same(failed.job, within), JOB.pr_number.is_(None), sa.or_(based, told, by_itself)
    )
    return await tx.rows(query.order_by(JOB.completed_at.desc(), JOB.job_key).limit(limit))


async def on_other_pulls(tx: Transaction, failed: Failed, *, within: int, limit: int) -> list[Row]:
    """Return the newest runs of a job on other pull requests that ended before it did, newest first."""
    query = sa.select(*SEEN).where(
        *_same(failed.job, within),
        JOB.pr_number.is_not(None),
        JOB.pr_number != failed.job["pr_number"],
        JOB.head_sha != failed.job["head_sha"],
    )
    return await tx.rows(query.order_by(JOB.completed_at.desc(), JOB.job_key).limit(limit))


async def kept(tx: Transaction, keys: Sequence[str]) -> dict[str, Row]:
    """Return by job key what was found out before; comparing costs two questions a job, and the answer stays."""
    found: dict[str, Row] = {}
    for start in range(0, len(keys), KEYS_PER_QUERY):
        query = sa.select(oot_compared).where(
            oot_compared.c.job_key.in_(keys[start : start + KEYS_PER_QUERY])
        )
        found |= {row["job_key"]: row for row in await tx.rows(query)}
    return found


async def keep(tx: Transaction, rows: Sequence[Row]) -> None:
    """Keep what comparing has found out: job_key, completed_at, history, url, elsewhere."""
    if rows:
        insert = tx.insert(oot_compared)
        told = {name: insert.excluded[name] for name in ("completed_at", "history", "url", "elsewhere")}
        await tx.run(insert.on_conflict_do_update(index_elements=["job_key"], set_=told), list(rows))


def _same(job: Row, within: int) -> tuple[sa.ColumnElement[bool], ...]:
    """Same backend, workflow and name, told by the backend itself.

    Only what had ended before counts: the comparison stays what it was when the job failed, so that no old check run
    is written again because of what others did later.
    """
    return (
        JOB.job_name == job["job_name"],
        JOB.workflow_name == job["workflow_name"],
        JOB.completed_at.between(job["completed_at"] - within, job["completed_at"]),
        sa.func.lower(JOB.downstream_repo) == job["downstream_repo"].lower(),
        sa.func.lower(JOB.upstream_repo) == job["upstream_repo"].lower(),
        JOB.status == "completed",
        JOB.conclusion.in_(VERDICTS),
        JOB.source == "callback",
        JOB.job_key != job["job_key"],
    )
