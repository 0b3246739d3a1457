"""Rows that failures are compared with: earlier runs of a job, merge bases, and what comparing has found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import sqlalchemy as sa

from bot.db.rows import select
from bot.db.statements import RowStatement, Statement
from bot.ingest.tables import records
from bot.oot.results.tables import (
    SELF_TRIGGERED,
    JobFlags,
    JobOutcome,
    JobPage,
    JobSpan,
    JobSubject,
    JobTests,
    oot_dispatch,
    oot_workflow_job,
)
from bot.oot.verdict.tables import ComparedRow, oot_compared, oot_merge_base
from bot.oot.verdict.verdict import RED_CONCLUSIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.db.transaction import Transaction
    from bot.oot.results.tables import JobRow

JOB = oot_workflow_job.c
# cancelled or skipped runs show nothing, and there may be many
DECISIVE = sorted({"success", *RED_CONCLUSIONS})
KEYS_PER_QUERY = 500


class PastRow(JobOutcome, JobSubject, JobPage, JobSpan, JobTests, JobFlags):
    """How a job ended: the columns that are compared."""


def _past(*conditions: sa.ColumnElement[bool]) -> RowStatement[PastRow]:
    """Return the query of runs of the same job, reported by the backend itself, newest first."""
    bound = sa.bindparam
    same = (
        JOB.job_name == bound("name"),
        JOB.workflow_name == bound("workflow"),
        JOB.completed_at.between(bound("after"), bound("until")),
        sa.func.lower(JOB.downstream_repo) == bound("downstream"),
        sa.func.lower(JOB.upstream_repo) == bound("upstream"),
        JOB.status == "completed",
        JOB.conclusion.in_(DECISIVE),
        JOB.source == "callback",
        JOB.job_key != bound("key"),
    )
    query = select(PastRow, oot_workflow_job).where(*same, *conditions)
    newest_first = query.order_by(JOB.completed_at.desc(), JOB.job_key)
    return RowStatement(newest_first.limit(bound("most")))


def _on_base() -> sa.ColumnElement[bool]:
    push = records["push"].c
    ref = push.ref == sa.bindparam("ref")
    dispatched = sa.exists().where(
        oot_dispatch.c.id == JOB.dispatch_id, push.guid == oot_dispatch.c.source_guid, ref
    )
    tip = sa.exists().where(
        push.after == JOB.head_sha, ref, sa.func.lower(push.repo) == sa.func.lower(JOB.upstream_repo)
    )
    self_triggered = sa.and_(JOB.event_type.in_(SELF_TRIGGERED), tip)
    return sa.or_(JOB.head_sha.in_(sa.bindparam("bases", expanding=True)), dispatched, self_triggered)


# built once: a pull request may have hundreds of failures
ON_BASE = _past(JOB.pr_number.is_(None), _on_base())
ON_OTHER_PULLS = _past(
    JOB.pr_number.is_not(None),
    JOB.pr_number.is_distinct_from(sa.bindparam("pull")),
    JOB.head_sha != sa.bindparam("head"),
)


@dataclass(frozen=True, kw_only=True)
class Failed:
    """A failed job to be compared, and the commits its own is based on."""

    job: JobRow
    base_ref: str | None
    base_shas: frozenset[str]


async def past_on_base(tx: Transaction, failed: Failed, *, within: int, limit: int) -> list[PastRow]:
    """Return the runs of a job on the base branch or merge base that ended before it did, newest first."""
    about = {"ref": f"refs/heads/{failed.base_ref}", "bases": sorted(failed.base_shas)}
    return await tx.fetch(ON_BASE, _about(failed.job, within, limit) | about)


async def past_on_other_pulls(tx: Transaction, failed: Failed, *, within: int, limit: int) -> list[PastRow]:
    """Return the runs of a job on other pull requests that ended before it did, newest first."""
    about = {"pull": failed.job["pr_number"], "head": failed.job["head_sha"]}
    return await tx.fetch(ON_OTHER_PULLS, _about(failed.job, within, limit) | about)


COMPARED = RowStatement(
    select(ComparedRow, oot_compared).where(oot_compared.c.job_key.in_(sa.bindparam("keys", expanding=True)))
)


async def compared(tx: Transaction, keys: Sequence[str]) -> dict[str, ComparedRow]:
    """Return by job key what earlier comparing has found: it takes two queries per job, and the answer stays."""
    found: dict[str, ComparedRow] = {}
    for start in range(0, len(keys), KEYS_PER_QUERY):
        some = {"keys": keys[start : start + KEYS_PER_QUERY]}
        found |= {row["job_key"]: row for row in await tx.fetch(COMPARED, some)}
    return found


async def store_compared(tx: Transaction, rows: Sequence[ComparedRow]) -> None:
    """Store what comparing has found."""
    if rows:
        changed = ("completed_at", "history", "url", "elsewhere")
        await tx.upsert(oot_compared, rows, replaced=changed)


MERGE_BASES = Statement(
    sa.select(oot_merge_base.c.head_sha, oot_merge_base.c.merge_base, oot_merge_base.c.committed_at).where(
        oot_merge_base.c.upstream_repo == sa.bindparam("of_repo"),
        oot_merge_base.c.head_sha.in_(sa.bindparam("heads", expanding=True)),
        oot_merge_base.c.base_ref == sa.bindparam("of_base"),
    )
)


class MergeBase(NamedTuple):
    """Where a head left its base branch."""

    sha: str | None  # None: GitHub knows none
    committed_at: int | None = None


async def merge_bases(
    tx: Transaction, repo: str, heads: Sequence[str], *, base_ref: str
) -> dict[str, MergeBase]:
    """Return by head its merge base with a base branch, as far as GitHub was asked."""
    about = {"of_repo": repo, "heads": list(heads), "of_base": base_ref}
    return {
        row.head_sha: MergeBase(row.merge_base, row.committed_at) for row in await tx.run(MERGE_BASES, about)
    }


async def store_merge_base(
    tx: Transaction, repo: str, head_sha: str, merge_base: MergeBase, *, base_ref: str
) -> None:
    """Store a head's merge base with a base branch: it never changes."""
    values = {
        "upstream_repo": repo, "head_sha": head_sha, "base_ref": base_ref, "merge_base": merge_base.sha,
        "committed_at": merge_base.committed_at, "asked_at": tx.now,
    }  # fmt: skip
    await tx.run(tx.insert(oot_merge_base).values(values).on_conflict_do_nothing())


def _about(job: JobRow, within: int, limit: int) -> dict[str, Any]:
    """Return the parameters that name the job that failed.

    Only runs that had ended before count: the comparison stays what it was when the job failed, so that no old check
    run is written again because of later runs elsewhere.
    """
    ended = job["completed_at"] or 0
    return {
        "name": job["job_name"],
        "workflow": job["workflow_name"],
        "after": ended - within,
        "until": ended,
        "downstream": job["downstream_repo"].lower(),
        "upstream": job["upstream_repo"].lower(),
        "key": job["job_key"],
        "most": limit,
    }
