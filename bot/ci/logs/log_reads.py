"""Reading a stored log for a request: its row, its index, some of its lines."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from bot.ci.collect import job_reads
from bot.ci.collect.blob_store import BlobsUnavailable
from bot.ci.collect.blobs import BLOBS
from bot.ci.logs import rows, stored
from bot.core.errors import Rejected
from bot.web import parameters
from bot.web.app_keys import CONTEXT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiohttp import web

    from bot.ci.logs.rows import LogRow
    from bot.ci.logs.stored import Index
    from bot.context import Context
    from bot.db.transaction import Transaction

warnings = structlog.get_logger("bot.ci.logs")

TAIL = 64 * 1024  # bytes read at once from the end of a blob


@dataclass(frozen=True, kw_only=True)
class LogOf:
    """The job that a log is of: GitHub's, or a backend's that uploaded it."""

    repo: str
    repository_id: int
    job_id: int  # below 0: of an upload
    name: str


async def found(request: web.Request) -> tuple[LogOf, LogRow]:
    """Return the job in the path and its log; raises Rejected 404 where there is none, or none to be shown."""
    async with request.app[CONTEXT].store.read() as tx:
        job = await _job(request, tx)
        row = await rows.log(tx, job.repository_id, job.job_id)
    if row is None or row["blob"] is None:
        raise Rejected(404, "not_found", "there is no log of this job; its page says why")
    return job, row


async def _job(request: web.Request, tx: Transaction) -> LogOf:
    repo, identifier = parameters.repo(request), parameters.number(request.match_info["id"])
    owners = await job_reads.visible(request, tx, repo)
    if "/upload/" in request.path:
        upload = await job_reads.shown_upload(request, tx, owners, repo, identifier)
        repo, repository_id = upload["backend"], upload["repository_id"]
        return LogOf(repo=repo, repository_id=repository_id, job_id=-upload["id"], name=upload["job"])
    job = await job_reads.shown_job(tx, owners, identifier)
    repository_id = job["repository_id"]
    return LogOf(repo=job["repo"], repository_id=repository_id, job_id=job["id"], name=job["name"] or "job")


@contextlib.contextmanager
def readable() -> Iterator[None]:
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
    with readable():
        part = await context.resource(BLOBS).get(row["blob"] or "", *index.part(blocks))
    text = b"".join(index.inflate(blocks, part))
    skipped = first - index.entries[blocks[0]].first_line
    return text.split(b"\n")[skipped : skipped + last - first + 1]


async def read_index(context: Context, row: LogRow) -> Index:
    """Read the index of a stored log; raises BlobMissing."""
    blobs, key = context.resource(BLOBS), row["blob"] or ""
    with readable():
        size = await blobs.size(key)
        tail = await blobs.get(key, max(size - TAIL, 0), TAIL)
        start = stored.index_start(tail, size)
        length = size - stored.END.size - start
        begin = len(tail) - stored.END.size - length
        content = tail[begin : begin + length] if begin >= 0 else await blobs.get(key, start, length)
    return stored.parse_index(content)
