"""The log of a job: its page, its plain text and some of its lines as JSON.

GET /{owner}/{repo}/job/{id}/log, .../log.txt and /api/ci/logs/{owner}/{repo}/{id}; of an upload and of a job
of another CI alike.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import structlog
from aiohttp import web
from msgspec import Meta, Struct

from bot.core.errors import Rejected
from bot.core.escaping import clean
from bot.evidence.collect.blobs import BLOBS
from bot.evidence.collect.remote_blobs import BlobMissing, BlobsUnavailable
from bot.evidence.logs import rows
from bot.evidence.logs.failure_lines import job_page, log_page
from bot.evidence.logs.parse import stored_log
from bot.evidence.logs.parse.lines import (
    BOM,
    SEQUENCE,
    clean_line,
    kept_spans,
    time_of,
    timestamp_length,
    valid_utf8,
)
from bot.jobs import job_cells
from bot.pages import job_reads
from bot.web import addresses, answers, openapi, parameters
from bot.web.access import CONTEXT
from bot.web.answers import Answer, Time, send_json
from bot.web.html import page, render
from bot.web.openapi import DeclaredRefusal
from bot.web.parameters import describe_parameters
from bot.web.view import Endpoint

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bot.context import Context
    from bot.evidence.logs.parse.stored_log import LogIndex
    from bot.evidence.logs.tables import LogRow

AROUND, AROUND_MOST = 30, 500
BLOCKS = 16  # inflated at a time for a download
logger = structlog.get_logger("bot.pages.logs.log")

NO_LOG = DeclaredRefusal(404, "not_found", "no such log may be shown")
TAIL = 64 * 1024  # bytes read at once from the end of a blob
LINES = 100  # unless ?to= says otherwise
LINES_MOST = 1_000
NUMBER_MOST = 10**9
JSON_LINE_MOST = 10_000  # characters of a line

JOB = parameters.identifier("id", "GitHub's id of the job")
FROM = parameters.whole("from", NUMBER_MOST, "the first line", default=1)
TO = parameters.optional_whole("to", NUMBER_MOST, f"the last line, at most {LINES_MOST:,} later")
LINE_SHOWN = 2_000  # characters of a line
PIECES = 200  # of different colours in a line
MARKERS = {
    "##[error]": "bad",
    "##[warning]": "warn",
    "##[notice]": "wait",
    "##[command]": "command",
    "##[debug]": "idle",
    "##[group]": "group",
    "##[endgroup]": "endgroup",
}


class LogLine(Struct, frozen=True, kw_only=True):
    """A line, without timestamp and escape sequences."""

    number: int
    at: Time | None
    text: str


class LogLines(Answer, frozen=True, kw_only=True):
    """Lines of a job's log"""

    total: Annotated[int, Meta(description="lines of the whole log")]
    lines: list[LogLine]


@dataclass(frozen=True, kw_only=True)
class ShownLine:
    """A line as pieces of (classes, text); classes are ours, text comes from outside."""

    number: int
    at: int | None  # epoch milliseconds
    marker: str  # a value of MARKERS, or nothing
    pieces: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Fold:
    """Lines that belong together; `title` begins a group."""

    title: ShownLine | None
    lines: tuple[ShownLine, ...]


@page
async def show_log(request: web.Request) -> web.Response:
    """Show the lines around one: the one asked for, else the verdict's, else the end of the log."""
    context = request.app[CONTEXT]
    job, row = await requested_log(request)
    async with context.store.read() as tx:
        verdicts = await rows.verdicts_of_jobs(tx, row["repository_id"], [job.job_id])
    marked = {verdict["line_num"]: verdict["kind"] for verdict in verdicts if verdict["line_num"]}
    likeliest = next(iter(marked), row["lines"])
    if error := row["first_error"]:
        marked.setdefault(int(error["line_num"]), "first build error")
    line = _requested_number(request, "line", default=likeliest, most=max(row["lines"], 1))
    around = _requested_number(request, "around", default=AROUND, most=AROUND_MOST)
    first, last = max(line - around, 1), min(line + around, row["lines"])
    lines: list[ShownLine] = []
    gone = ""
    try:
        lines = colour_lines(await raw_lines(context, row, first, last), first=first)
    except BlobMissing:
        gone = "The log itself has been deleted; the lines around the verdict were kept."
        if kept := next((verdict for verdict in verdicts if verdict["excerpt_from"]), None):
            lines = colour_lines([text.encode() for text in kept["excerpt"]], first=kept["excerpt_from"] or 1)
    return render(
        request,
        "log.html",
        job=job,
        log=row,
        folds=fold_groups(lines),
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
    _, row = await requested_log(request)
    try:
        index = await read_index(context, row)
    except BlobMissing:
        raise Rejected(404, "not_found", "the log has been deleted") from None
    size = row["bytes"]
    start, end = _byte_range(request, size)
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


def _requested_number(request: web.Request, name: str, *, default: int, most: int) -> int:
    text = request.query.get(name, "")
    return min(max(int(text), 1), most) if text.isdecimal() and len(text) < 16 else max(default, 1)


def _byte_range(request: web.Request, size: int) -> tuple[int, int]:
    """Return the range of bytes asked for, its end excluded; several ranges are answered with everything."""
    try:
        requested = request.http_range
    except ValueError:
        return 0, size
    start, stop = requested.start, requested.stop
    if start is None and stop is None:
        return 0, size
    begin = max(size + start, 0) if start is not None and start < 0 else start or 0
    end = size if stop is None else min(stop, size)
    if begin >= end:
        raise Rejected(
            416, "range", f"the log has {size} bytes", headers={"Content-Range": f"bytes */{size}"}
        )
    return begin, end


LOG_ENDPOINTS = tuple(
    Endpoint(web.get(rf"/{{owner}}/{{repo}}/{kind}/{{id:\d+}}/{name}", handler))
    for kind in ("job", "other-job", "upload")
    for name, handler in (("log", show_log), (r"log.txt", send_plain))
)


@dataclass(frozen=True, kw_only=True)
class LoggedJob:
    """The job that a log is of: on GitHub, on another CI, or of a backend that uploaded it."""

    repo: str
    job_id: int  # below 0: of an upload or of another CI
    name: str


async def requested_log(request: web.Request) -> tuple[LoggedJob, LogRow]:
    """Return the job in the path and its log; raise Rejected 404 if there is none that may be shown."""
    repo, identifier = addresses.repo(request), addresses.number(request.match_info["id"])
    async with request.app[CONTEXT].store.read() as tx:
        owners = await job_reads.visible_ids(request, tx, repo)
        if "/upload/" in request.path:
            upload = await job_reads.shown_upload(request, tx, owners, repo, identifier)
            repository_id = upload["repository_id"]
            job = LoggedJob(repo=upload["backend"], job_id=-upload["id"], name=upload["job"])
        elif "/other-job/" in request.path:
            other = await job_cells.find_other_job(tx, owners, -identifier)
            if other is None:
                raise job_reads.not_known("job")
            repository_id = other["repository_id"]
            job = LoggedJob(repo=repo, job_id=other["job_id"], name=other["job"])
        else:
            record = await job_reads.shown_job(tx, owners, identifier)
            repository_id = record["repository_id"]
            job = LoggedJob(repo=record["repo"], job_id=record["id"], name=record["name"] or "job")
        row = await rows.find_log(tx, repository_id, job.job_id)
    if row is None or row["blob"] is None:
        raise NO_LOG.because("there is no log of this job; its page says why")
    return job, row


@contextlib.contextmanager
def blobs_answering() -> Iterator[None]:
    """Raise Rejected 503 if the store of logs does not answer."""
    try:
        yield
    except BlobsUnavailable as error:
        logger.warning("logs cannot be read", error=str(error))
        detail = (
            "logs cannot be read right now: the store that keeps them does not answer; try again in a moment"
        )
        raise Rejected(503, "unavailable", detail, headers={"Retry-After": "10"}) from None


async def raw_lines(context: Context, row: LogRow, first: int, last: int) -> list[bytes]:
    """Read lines as they are kept; raise BlobMissing if the log is gone."""
    index = await read_index(context, row)
    blocks = index.around(first, last)
    if not blocks or last < first:
        return []
    with blobs_answering():
        part = await context.resource(BLOBS).get(row["blob"] or "", *index.part(blocks))
    text = b"".join(index.inflate(blocks, part))
    skipped = first - index.entries[blocks[0]].first_line
    return text.split(b"\n")[skipped : skipped + last - first + 1]


async def read_index(context: Context, row: LogRow) -> LogIndex:
    """Read the index of a stored log; raise BlobMissing if the log is gone."""
    blobs, key = context.resource(BLOBS), row["blob"] or ""
    with blobs_answering():
        size = await blobs.size(key)
        tail = await blobs.get(key, max(size - TAIL, 0), TAIL)
        start = stored_log.index_start(tail, size)
        length = size - stored_log.TRAILER.size - start
        begin = len(tail) - stored_log.TRAILER.size - length
        content = tail[begin : begin + length] if begin >= 0 else await blobs.get(key, start, length)
    return stored_log.parse_index(content)


async def send_lines(request: web.Request) -> web.Response:
    """Answer with the lines asked for."""
    context = request.app[CONTEXT]
    first = FROM.read(request)
    last = TO.read(request) or min(first + LINES - 1, NUMBER_MOST)
    _, row = await requested_log(request)
    last = min(last, first + LINES_MOST - 1, row["lines"])
    try:
        raw = await raw_lines(context, row, first, last)
    except BlobMissing:
        raise NO_LOG.because("the log has been deleted") from None
    lines = [
        LogLine(
            number=number,
            at=answers.time(time_of(line)),
            text=clean_line(line).decode("utf-8", "replace")[:JSON_LINE_MOST],
        )
        for number, line in enumerate(raw, first)
    ]
    return send_json(LogLines(total=row["lines"], lines=lines))


LINES_ENDPOINTS = (
    Endpoint(
        web.get(r"/api/ci/logs/{owner}/{repo}/{id:\d+}", send_lines),
        openapi.Operation(
            "GET /api/ci/logs/{owner}/{repo}/{id}",
            "ciLogLines",
            "Lines of a job's log",
            LogLines,
            topic=openapi.CI,
            callers=openapi.READER,
            parameters=describe_parameters((parameters.REPO, JOB, FROM, TO)),
            refusals=[openapi.WRONG_PARAMETER, NO_LOG, *openapi.READING],
        ),
    ),
)


def colour_lines(lines: Sequence[bytes], *, first: int) -> list[ShownLine]:
    """Turn raw lines into lines of a page; `first` is the number of the first."""
    return [_shown_line(number, raw) for number, raw in enumerate(lines, first)]


def fold_groups(lines: Sequence[ShownLine]) -> list[Fold]:
    """Fold the lines of each group together, and drop the lines that end groups."""
    folds: list[Fold] = []
    title: ShownLine | None = None
    inside: list[ShownLine] = []
    for line in lines:
        if line.marker in {"group", "endgroup"}:
            folds.append(Fold(title=title, lines=tuple(inside)))
            title, inside = (line if line.marker == "group" else None), []
        else:
            inside.append(line)
    folds.append(Fold(title=title, lines=tuple(inside)))
    return [fold for fold in folds if fold.title or fold.lines]


def _shown_line(number: int, raw: bytes) -> ShownLine:
    text = valid_utf8(raw.removeprefix(BOM) if number == 1 else raw).removesuffix(b"\r")
    body = text[timestamp_length(text) :]
    marker = next((mark for mark in MARKERS if body.startswith(mark.encode())), "")
    pieces = tuple(_pieces(body[len(marker) :]))
    return ShownLine(number=number, at=time_of(text), marker=MARKERS.get(marker, ""), pieces=pieces)


def _pieces(body: bytes) -> Iterator[tuple[str, str]]:
    colour, bold, left, end = "", "", LINE_SHOWN, 0
    for count, (start, stop) in enumerate(kept_spans(body)):
        for code in _codes(body[end:start]):
            colour, bold = _classes_after(code, colour, bold)
        end = stop
        shown = clean(body[start:stop].decode("utf-8", "replace"))[:left]
        left -= len(shown)
        if shown:
            yield " ".join(filter(None, (colour, bold))), shown
        if left <= 0 or count >= PIECES:
            yield "idle", "… cut"
            return


def _codes(sequence: bytes) -> list[int]:
    """Return the codes of a colour sequence, or nothing for any other sequence."""
    if not (sequence.startswith(b"\x1b[") and sequence.endswith(b"m") and SEQUENCE.fullmatch(sequence)):
        return []
    parts = sequence[2:-1].split(b";")
    return [int(part) if part.isdigit() and len(part) < 4 else 0 for part in parts]


def _classes_after(code: int, colour: str, bold: str) -> tuple[str, str]:
    """Return the classes after a code: sixteen colours and bold, nothing else."""
    if code == 0:
        return "", ""
    if code in {1, 22}:
        return colour, "bold" if code == 1 else ""
    if 30 <= code <= 37 or 90 <= code <= 97:
        return f"ansi{code - 30 if code < 40 else code - 82}", bold
    return ("" if code == 39 else colour), bold
