"""GET /{owner}/{repo}/job/{id}/log and .../log.txt: some lines of a job's log, and all of it.

Of an upload and of a job of another CI alike.
"""

from __future__ import annotations

from aiohttp import web

from bot.ci.collect.blob_store import BlobMissing
from bot.ci.collect.blobs import BLOBS
from bot.ci.logs.sections import job_page, log_page
from bot.ci.logs.store import log_rows
from bot.ci.logs.views import log_reads
from bot.ci.logs.views.coloured import Line, coloured, folds
from bot.core.errors import Rejected
from bot.web.app_keys import CONTEXT
from bot.web.html import page, render
from bot.web.view import Endpoint

AROUND, AROUND_MOST = 30, 500
BLOCKS = 16  # inflated at a time for a download


@page
async def show_log(request: web.Request) -> web.Response:
    """Show the lines around one: that of the query, else that of the verdict, else the end of the log."""
    context = request.app[CONTEXT]
    job, row = await log_reads.requested_log(request)
    async with context.store.read() as tx:
        verdicts = await log_rows.verdicts_of_jobs(tx, row["repository_id"], [job.job_id])
    marked = {one["line_num"]: one["kind"] for one in verdicts if one["line_num"]}
    likeliest = next(iter(marked), row["lines"])
    if error := row["first_error"]:
        marked.setdefault(int(error["line_num"]), "first build error")
    line = _number(request, "line", default=likeliest, most=max(row["lines"], 1))
    around = _number(request, "around", default=AROUND, most=AROUND_MOST)
    first, last = max(line - around, 1), min(line + around, row["lines"])
    lines: list[Line] = []
    gone = ""
    try:
        lines = coloured(await log_reads.raw_lines(context, row, first, last), first=first)
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
        previous=max((number for number in marked if number < first), default=None),
        following=min((number for number in marked if number > last), default=None),
        gone=gone,
        line=line,
        around=around,
        job_page=job_page(job.repo, job.job_id),
        page=log_page(job.repo, job.job_id),
        json_url=f"/api/ci/jobs/{job.repo}/{job.job_id}" if job.job_id > 0 else "",
        first=first,
        last=last,
    )


async def send_plain(request: web.Request) -> web.StreamResponse:
    """Send the log as it is kept, or the bytes asked for."""
    context = request.app[CONTEXT]
    _, row = await log_reads.requested_log(request)
    try:
        index = await log_reads.read_index(context, row)
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


ENDPOINTS = tuple(
    Endpoint(web.get(rf"/{{owner}}/{{repo}}/{kind}/{{id:\d+}}/{name}", handler))
    for kind in ("job", "other-job", "upload")
    for name, handler in (("log", show_log), (r"log.txt", send_plain))
)
