"""Reading a job's utilization for a request: its row, its series, and why there is none."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from bot.ci.collect import job_reads
from bot.ci.collect.blob_store import BlobMissing
from bot.ci.collect.blobs import BLOBS
from bot.ci.collect.store import runs as collected
from bot.ci.utilization.parse import blob
from bot.ci.utilization.store import job_rows
from bot.ci.utilization.store.absence import explain_absence
from bot.web import view_parameters as declare
from bot.web.view_parameters import REPO

if TYPE_CHECKING:
    from bot.ci.utilization.tables import JobRow
    from bot.context import Context
    from bot.ingest.rows import WorkflowJobRow
    from bot.web.asked import Asked

ATTEMPT = declare.optional_whole("attempt", 1_000_000, "the attempt of the run; without it the newest")


class Found(NamedTuple):
    """A job that may be shown: GitHub's record of it, and its utilization; at least one of them."""

    job: WorkflowJobRow | None
    row: JobRow | None
    absence: str  # why there is no utilization


async def find_job(asked: Asked, identifier: int, attempt: int | None) -> Found:
    """Return a job of the repository in the path; raises Rejected 404 where it may not be shown."""
    tx, owners = asked.tx, await job_reads.visible_to(asked, asked[REPO])
    row = await job_rows.job_of(tx, owners, identifier, attempt)
    job = await collected.find_job(tx, owners, identifier)
    if row is None and job is None:
        raise job_reads.not_known("job")
    return Found(job, row, await explain_absence(tx, job) if row is None and job is not None else "")


async def load_series(context: Context, row: JobRow) -> blob.Stored | None:
    """Return a job's series; None once they have been deleted."""
    if row["blob"] is None:
        return None
    try:
        content = await context.resource(BLOBS).get(row["blob"])
        return await asyncio.to_thread(blob.decode, content)
    except (BlobMissing, blob.DamagedBlob):
        return None
