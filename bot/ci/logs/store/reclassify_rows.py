"""How far classifying stored logs again has come, by repository, and which log is next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.ci.logs.store.failure_rows import UNNAMED
from bot.ci.logs.store.job_of_log import JOB, NAME, REPO, WORKFLOW, JobName, with_jobs
from bot.ci.logs.tables import (
    FIRST,
    LogKey,
    Progress,
    VerdictAt,
    VerdictRuleset,
    ci_log,
    ci_reclassified,
    ci_verdict,
)
from bot.db.rows import Json, Text, select
from bot.ingest.tables import records

if TYPE_CHECKING:
    from bot.db.transaction import Transaction

UNEXPLAINED, EXPLAINED, DONE = 0, 1, 2  # new rules are tried on jobs first that no rule explains
LAST = 2**62  # later than any time, greater than any id
STATE, VERDICT, REPOSITORY = ci_reclassified.c, ci_verdict.c, records["repository"].c


class Candidate(LogKey, VerdictRuleset, JobName, VerdictAt):
    """A verdict that other rules may change."""

    blob: Text
    sha256: Text  # of the log
    repo: Text | None
    steps: Json[Any] | None


async def name_of(tx: Transaction, repository_id: int) -> str:
    """Return a repository's name, nothing where it has none that is known."""
    query = sa.select(REPOSITORY.full_name).where(REPOSITORY.repository_id == repository_id)
    return (await tx.run(query)).scalar() or ""


async def find_progress(tx: Transaction, repository_id: int) -> Progress | None:
    """Return how far a repository's logs have been classified again."""
    return await tx.fetch_first(select(Progress, ci_reclassified).where(STATE.repository_id == repository_id))


def first_progress(repository_id: int, ruleset: str) -> Progress:
    """Return the progress of one that begins."""
    return {
        "repository_id": repository_id,
        "ruleset": ruleset,
        "phase": UNEXPLAINED,
        "at": LAST,
        "job_id": LAST,
    }


async def store_progress(tx: Transaction, reached: Progress) -> None:
    """Store how far it is."""
    values = dict(reached)
    statement = tx.insert(ci_reclassified).values(values)
    await tx.run(statement.on_conflict_do_update(index_elements=["repository_id"], set_=values))


async def following_candidates(
    tx: Transaction, reached: Progress, *, since: int, limit: int
) -> list[Candidate]:
    """Return the verdicts behind the one that was looked at last, on logs that are kept since a time."""
    log = ci_log.c
    kind = VERDICT.kind.in_(UNNAMED)
    of_log = sa.and_(log.repository_id == VERDICT.repository_id, log.job_id == VERDICT.job_id)
    logged = with_jobs(ci_verdict.join(ci_log, of_log), VERDICT.repository_id, VERDICT.job_id)
    computed = {"repo": REPO, "name": NAME, "workflow_name": WORKFLOW, "steps": JOB.steps}
    query = (
        select(Candidate, ci_verdict, ci_log, **computed)
        .select_from(logged)
        .where(
            FIRST,
            VERDICT.repository_id == reached["repository_id"],
            kind if reached["phase"] == UNEXPLAINED else sa.not_(kind),
            VERDICT.at <= reached["at"],
            sa.or_(VERDICT.at < reached["at"], VERDICT.job_id < reached["job_id"]),
            VERDICT.at >= since,
            log.blob.is_not(None),
        )
        .order_by(VERDICT.at.desc(), VERDICT.job_id.desc())
        .limit(limit)
    )
    return await tx.fetch(query)
