"""Reading a job's utilization for a request: its row, its series, and why there is none."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

import sqlalchemy as sa

from bot.ci.collect import job_reads
from bot.ci.collect.blob_store import BlobMissing
from bot.ci.collect.blobs import BLOBS
from bot.ci.collect.states import State, reason
from bot.ci.collect.store import runs as collected
from bot.ci.collect.tables import ci_artifact, ci_fetch, ci_listing
from bot.ci.utilization import blob, rows
from bot.web import view_parameters as declare
from bot.web.view_parameters import REPO

if TYPE_CHECKING:
    from bot.ci.utilization.rows import JobRow
    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.ingest.rows import WorkflowJobRow
    from bot.web.asked import Asked

A, F, L = ci_artifact.c, ci_fetch.c, ci_listing.c
ATTEMPT = declare.optional_whole("attempt", 1_000_000, "the attempt of the run; without it the newest")
NONE = "the job left no usage log"


class Found(NamedTuple):
    """A job that may be shown: GitHub's record of it, and its utilization; at least one of them."""

    job: WorkflowJobRow | None
    row: JobRow | None
    absence: str  # why there is no utilization


async def found(asked: Asked, identifier: int, attempt: int | None) -> Found:
    """Return a job of the repository in the path; raises Rejected 404 where it may not be shown."""
    tx, owners = asked.tx, await job_reads.visible_to(asked, asked[REPO])
    row = await rows.job(tx, owners, identifier, attempt)
    job = await collected.find_job(tx, owners, identifier)
    if row is None and job is None:
        raise job_reads.not_known("job")
    return Found(job, row, await absence(tx, job) if row is None and job is not None else "")


async def absence(tx: Transaction, job: WorkflowJobRow) -> str:
    """Return why a job has no utilization."""
    run_id = job["run_id"] or 0
    query = (
        sa.select(A.name, A.expired, F.state, F.error, F.tries)
        .join_from(
            ci_artifact,
            ci_fetch,
            (F.repository_id == A.repository_id) & (F.kind == "artifact") & (F.object_id == A.id),
            isouter=True,
        )
        .where(
            A.repository_id == job["repository_id"],
            A.run_id == run_id,
            A.kind == "usage",
            A.job_id == job["id"],
        )
        .order_by(A.id.desc())
        .limit(1)
    )
    artifact = await tx.row(query)
    if artifact is not None:
        if artifact["state"] == State.PARSED:
            return f"{artifact['name']} holds no usage log"
        state = artifact["state"] or State.SKIPPED
        return f"{artifact['name']}: {reason(state, artifact['error'], tries=artifact['tries'] or 0)}"
    if job["status"] != "completed":
        return "the job is not over"
    listed = sa.select(L.state, L.error).where(L.repository_id == job["repository_id"], L.run_id == run_id)
    listing = await tx.row(listed.order_by(L.at.desc()).limit(1))
    if listing is None:
        return "the run's artifacts have not been listed yet"
    return NONE if listing["state"] == "listed" else f"{NONE} that is known: {listing['error']}"


async def stored(context: Context, row: JobRow) -> blob.Stored | None:
    """Return a job's series; None once they have been deleted."""
    if row["blob"] is None:
        return None
    try:
        content = await context.resource(BLOBS).get(row["blob"])
        return await asyncio.to_thread(blob.decode, content)
    except (BlobMissing, blob.DamagedBlob):
        return None
