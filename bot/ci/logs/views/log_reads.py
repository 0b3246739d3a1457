"""Reading a stored log for a request: its row, its index, some of its lines."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from bot.ci.collect import job_reads
from bot.ci.collect.blob_store import BlobsUnavailable
from bot.ci.collect.blobs import BLOBS
from bot.ci.logs.parse import stored
from bot.ci.logs.store import log_rows
from bot.ci.trunk.store import other_jobs
from bot.core.errors import Rejected
from bot.web import parameters
from bot.web.app_keys import CONTEXT
from bot.web.refusals import Refused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiohttp import web

    from bot.ci.logs.parse.stored import Index
    from bot.ci.logs.tables import LogRow
    from bot.context import Context

warnings = structlog.get_logger("bot.ci.logs")

NO_LOG = Refused(404, "not_found", "no such log may be shown")
TAIL = 64 * 1024  # bytes read at once from the end of a blob


@dataclass(frozen=True, kw_only=True)
class LogOf:
    """The job that a log is of: GitHub's, another CI's, or a backend's that uploaded it."""

    repo: str
    job_id: int  # below 0: of an upload or of another CI
    name: str


async def requested_log(request: web.Request) -> tuple[LogOf, LogRow]:
    """Return the job in the path and its log; raises Rejected 404 where there is none, or none to be shown."""
    repo, identifier = parameters.repo(request), parameters.number(request.match_info["id"])
    async with request.app[CONTEXT].store.read() as tx:
        owners = await job_reads.visible(request, tx, repo)
        if "/upload/" in request.path:
            upload = await job_reads.shown_upload(request, tx, owners, repo, identifier)
            repository_id = upload["repository_id"]
            job = LogOf(repo=upload["backend"], job_id=-upload["id"], name=upload["job"])
        elif "/other-job/" in request.path:
            other = await other_jobs.find_job(tx, owners, -identifier)
            if other is None:
                raise job_reads.not_known("job")
            repository_id = other["repository_id"]
            job = LogOf(repo=repo, job_id=other["job_id"], name=other["job"])
        else:
            record = await job_reads.shown_job(tx, owners, identifier)
            repository_id = record["repository_id"]
            job = LogOf(repo=record["repo"], job_id=record["id"], name=record["name"] or "job")
        row = await log_rows.find_log(tx, repository_id, job.job_id)
    if row is None or row["blob"] is None:
        raise NO_LOG.because("there is no log of this job; its page says why")
    return job, row


@contextlib.contextmanager
def blobs_answering() -> Iterator[None]:
    """Raise Rejected 503 where the store of logs does not answer."""
    try:
        yield
    except BlobsUnavailable as error:
        warnings.warning("logs cannot be read", error=str(error))
        detail = (
            "logs cannot be read right now: the store that keeps them does not answer; try again in a moment"
        )
        raise Rejected(503, "unavailable", detail, headers={"Retry-After": "10"}) from None


async def raw_lines(context: Context, row: LogRow, first: int, last: int) -> list[bytes]:
    """Return some lines as they are kept; raises BlobMissing."""
    index = await read_index(context, row)
    blocks = index.around(first, last)
    if not blocks or last < first:
        return []
    with blobs_answering():
        part = await context.resource(BLOBS).get(row["blob"] or "", *index.part(blocks))
    text = b"".join(index.inflate(blocks, part))
    skipped = first - index.entries[blocks[0]].first_line
    return text.split(b"\n")[skipped : skipped + last - first + 1]


async def read_index(context: Context, row: LogRow) -> Index:
    """Read the index of a stored log; raises BlobMissing."""
    blobs, key = context.resource(BLOBS), row["blob"] or ""
    with blobs_answering():
        size = await blobs.size(key)
        tail = await blobs.get(key, max(size - TAIL, 0), TAIL)
        start = stored.index_start(tail, size)
        length = size - stored.END.size - start
        begin = len(tail) - stored.END.size - length
        content = tail[begin : begin + length] if begin >= 0 else await blobs.get(key, start, length)
    return stored.parse_index(content)
