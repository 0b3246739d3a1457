"""GET /api/ci/logs/{owner}/{repo}/{id}: some lines of a job's log, as JSON."""

from __future__ import annotations

from typing import Annotated

from aiohttp import web
from msgspec import Meta, Struct

from bot.ci.collect.blob_store import BlobMissing
from bot.ci.logs.parse.cleaning import clean, time_of
from bot.ci.logs.views import log_reads
from bot.web import answers
from bot.web import operations as op
from bot.web import view_parameters as declare
from bot.web.answers import Answer, Time, send
from bot.web.app_keys import CONTEXT
from bot.web.asked import describe
from bot.web.view import Endpoint

LINES = 100  # unless ?to= says otherwise
LINES_MOST = 1_000
NUMBER_MOST = 10**9
SHOWN = 10_000  # characters of a line


JOB = declare.identifier("id", "GitHub's id of the job")
FROM = declare.whole("from", NUMBER_MOST, "the first line", default=1)
TO = declare.optional_whole("to", NUMBER_MOST, f"the last line, at most {LINES_MOST:,} later")


class LogLine(Struct, frozen=True, kw_only=True):
    """A line, without timestamp and escape sequences."""

    number: int
    at: Time | None
    text: str


class LogLines(Answer, frozen=True, kw_only=True):
    """Lines of a job's log"""

    total: Annotated[int, Meta(description="lines of the whole log")]
    lines: list[LogLine]


async def send_lines(request: web.Request) -> web.Response:
    """Answer with the lines asked for."""
    context = request.app[CONTEXT]
    first = FROM.read(request)
    last = TO.read(request) or min(first + LINES - 1, NUMBER_MOST)
    _, row = await log_reads.requested_log(request)
    last = min(last, first + LINES_MOST - 1, row["lines"])
    try:
        raw = await log_reads.raw_lines(context, row, first, last)
    except BlobMissing:
        raise log_reads.NO_LOG.because("the log has been deleted") from None
    found = [
        LogLine(
            number=number, at=answers.time(time_of(line)), text=clean(line).decode("utf-8", "replace")[:SHOWN]
        )
        for number, line in enumerate(raw, first)
    ]
    return send(LogLines(total=row["lines"], lines=found))


ENDPOINTS = (
    Endpoint(
        web.get(r"/api/ci/logs/{owner}/{repo}/{id:\d+}", send_lines),
        op.Operation(
            "GET /api/ci/logs/{owner}/{repo}/{id}",
            "ciLogLines",
            "Lines of a job's log",
            LogLines,
            topic=op.CI,
            callers=op.READER,
            parameters=describe((declare.REPO, JOB, FROM, TO)),
            refusals=[op.WRONG_PARAMETER, log_reads.NO_LOG, *op.READING],
        ),
    ),
)
