"""GET /{owner}/{repo}/job/{id}/log and .../log.txt: some lines of a job's log, and all of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp import web

from bot.ci.collect import job_reads
from bot.ci.collect.blobs import BLOBS, BlobMissing
from bot.ci.logs import rows, stored
from bot.ci.logs.coloured import Line, coloured, folds
from bot.ci.logs.sections import log_page
from bot.core.errors import Rejected
from bot.web import html
from bot.web.app_keys import CONTEXT
from bot.web.html import page, render

if TYPE_CHECKING:
    from bot.ci.logs.rows import LogRow
    from bot.ci.logs.stored import Index
    from bot.context import Context
    from bot.ingest.rows import WorkflowJobRow

TEMPLATES = Path(__file__).parent / "templates"
AROUND, AROUND_MOST = 30, 500
TAIL = 64 * 1024  # bytes read at once from the end of a blob
BLOCKS = 16  # inflated at a time for a download


@page
async def log(request: web.Request) -> web.Response:
    """Show the lines around one: that of the query, else that of the verdict, else the end of the log."""
    context = request.app[CONTEXT]
    job, row = await _found(request)
    async with context.store.read() as tx:
        verdicts = await rows.verdicts(tx, job["repository_id"], [job["id"]])
    marked = {one["line_num"]: one["kind"] for one in verdicts if one["line_num"]}
    line = _number(request, "line", default=min(marked, default=row["lines"]), most=max(row["lines"], 1))
    around = _number(request, "around", default=AROUND, most=AROUND_MOST)
    first, last = max(line - around, 1), min(line + around, row["lines"])
    lines: list[Line] = []
    gone = ""
    try:
        lines = await _lines(context, row, first, last)
    except BlobMissing:
        gone = "The log itself has been deleted; the lines around the verdict were kept."
        if kept := next((one for one in verdicts if one["excerpt_from"]), None):
            lines = coloured([text.encode() for text in kept["excerpt"]], first=kept["excerpt_from"] or 1)
    return render(
        request,
        "log.html",
        job=job,
        log=row,
        folds=folds(lines),
        marked=marked,
        gone=gone,
        line=line,
        around=around,
        page=log_page(job["repo"], job["id"]),
        json_url=f"/api/ci/jobs/{job['repo']}/{job['id']}",
        first=first,
        last=last,
    )


async def plain(request: web.Request) -> web.StreamResponse:
    """Send the log as it is kept, or the bytes asked for."""
    context = request.app[CONTEXT]
    _, row = await _found(request)
    try:
        index = await _index(context, row)
    except BlobMissing:
        raise Rejected(404, "not_found", "the log has been deleted") from None
    size = row["bytes"]
    start, end = _range(request, size)
    headers = {
        "Content-Type": "text/plain; charset=utf-8",
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "sandbox; default-src 'none'",
        "Accept-Ranges": "bytes",
        "Content-Length": str(end - start),
        "ETag": f'"{row["sha256"]}"',
    }
    partial = (start, end) != (0, size)
    if partial:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
    response = web.StreamResponse(status=206 if partial else 200, headers=headers)
    await response.prepare(request)
    if request.method == "HEAD":
        return response
    wanted = index.within(start, end)
    for at in range(0, len(wanted), BLOCKS):
        blocks = wanted[at : at + BLOCKS]
        part = await context.resource(BLOBS).get(row["blob"] or "", *index.part(blocks))
        for number, block in zip(blocks, index.inflate(blocks, part), strict=True):
            begin = index.entries[number].plain_start
            await response.write(block[max(start - begin, 0) : max(end - begin, 0)])
    await response.write_eof()
    return response


async def _found(request: web.Request) -> tuple[WorkflowJobRow, LogRow]:
    """Return the job in the path and its log; raises Rejected 404 where there is none, or none to be shown."""
    async with request.app[CONTEXT].store.read() as tx:
        job = await job_reads.job(request, tx)
        row = await rows.log(tx, job["repository_id"], job["id"])
    if row is None or row["blob"] is None:
        raise Rejected(404, "not_found", "there is no log of this job; its page says why")
    return job, row


async def _lines(context: Context, row: LogRow, first: int, last: int) -> list[Line]:
    index = await _index(context, row)
    blocks = index.around(first, last)
    if not blocks or not row["lines"]:
        return []
    part = await context.resource(BLOBS).get(row["blob"] or "", *index.part(blocks))
    text = b"".join(index.inflate(blocks, part))
    skipped = first - index.entries[blocks[0]].first_line
    return coloured(text.split(b"\n")[skipped : skipped + last - first + 1], first=first)


async def _index(context: Context, row: LogRow) -> Index:
    """Read the index of a stored log; raises BlobMissing."""
    blobs, key = context.resource(BLOBS), row["blob"] or ""
    size = await blobs.size(key)
    tail = await blobs.get(key, max(size - TAIL, 0), TAIL)
    start = stored.index_start(tail, size)
    length = size - stored.END.size - start
    begin = len(tail) - stored.END.size - length
    content = tail[begin : begin + length] if begin >= 0 else await blobs.get(key, start, length)
    return stored.parse_index(content)


def _number(request: web.Request, name: str, *, default: int, most: int) -> int:
    text = request.query.get(name, "")
    return min(max(int(text), 1), most) if text.isdecimal() and len(text) < 16 else max(default, 1)


def _range(request: web.Request, size: int) -> tuple[int, int]:
    """Return the bytes asked for, the end excluded; more than one range is answered with everything."""
    try:
        asked = request.http_range
    except ValueError:
        return 0, size
    start, stop = asked.start, asked.stop
    if start is None and stop is None:
        return 0, size
    begin = max(size + start, 0) if start is not None and start < 0 else start or 0
    end = size if stop is None else min(stop, size)
    if begin >= end:
        raise Rejected(
            416, "range", f"the log has {size} bytes", headers={"Content-Range": f"bytes */{size}"}
        )
    return begin, end


def setup(app: web.Application) -> None:
    """Add the pages."""
    from bot.ci.logs import failures  # noqa: PLC0415 - one setup for both

    html.add_templates(app, TEMPLATES)
    app.add_routes(
        [
            *failures.routes,
            web.get(r"/{owner}/{repo}/job/{id:\d+}/log", log),
            web.get(r"/{owner}/{repo}/job/{id:\d+}/log.txt", plain),
        ]
    )
