"""Why has a job no utilization?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.ci.collect.states import State, reason
from bot.ci.collect.tables import ci_artifact, ci_fetch, ci_listing

if TYPE_CHECKING:
    from bot.db.transaction import Transaction
    from bot.ingest.rows import WorkflowJobRow

A, F, L = ci_artifact.c, ci_fetch.c, ci_listing.c
NONE = "the job left no usage log"
ARTIFACTS = (
    sa.select(A.name, F.state, F.error, F.tries)
    .join_from(
        ci_artifact,
        ci_fetch,
        (F.repository_id == A.repository_id) & (F.kind == "artifact") & (F.object_id == A.id),
        isouter=True,
    )
    .order_by(A.id.desc())
    .limit(1)
)


async def explain_absence(tx: Transaction, job: WorkflowJobRow) -> str:
    """Return why a job has no utilization."""
    repository_id, run_id = job["repository_id"], job["run_id"] or 0
    of_run = (A.repository_id == repository_id, A.run_id == run_id)
    artifact = (
        await tx.run(ARTIFACTS.where(*of_run, A.kind == "usage", A.job_id == job["id"]))
    ).one_or_none()
    if artifact is not None:
        name, state, error, tries = artifact
        if state == State.PARSED:
            return f"{name} holds no usage log"
        return f"{name}: {reason(state or State.SKIPPED, error, tries=tries or 0)}"
    if job["status"] != "completed":
        return "the job is not over"
    listed = sa.select(L.state, L.error).where(L.repository_id == repository_id, L.run_id == run_id)
    listing = (await tx.run(listed.order_by(L.at.desc()).limit(1))).one_or_none()
    if listing is None:
        return "the run's artifacts have not been listed yet"
    state, error = listing
    return NONE if state == "listed" else f"{NONE} that is known: {error}"
