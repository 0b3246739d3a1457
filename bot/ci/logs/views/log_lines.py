"""GET /api/ci/logs/{owner}/{repo}/{id}: some lines of a job's log, as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from bot.ci.collect.blob_store import BlobMissing
from bot.ci.logs.parse.cleaning import clean, time_of
from bot.ci.logs.views import log_reads
from bot.core.errors import Rejected
from bot.web import answers, parameters
from bot.web.answers import Answer, Time, send
from bot.web.app_keys import CONTEXT

if TYPE_CHECKING:
    from aiohttp import web

LINES = 100  # unless ?to= says otherwise
LINES_MOST = 1_000
NUMBER_MOST = 10**9
SHOWN = 10_000  # characters of a line


class LogLine(Struct, frozen=True, kw_only=True):
    """A line, without timestamp and escape sequences."""

    number: int
    at: Time | None
    text: str


class LogLines(Answer, frozen=True, kw_only=True):
    """Lines of a job's log"""

    total: Annotated[int, Meta(description="lines of the whole log")]
    lines: list[LogLine]


async def lines(request: web.Request) -> web.Response:
    """Answer with the lines asked for."""
    context = request.app[CONTEXT]
    first = parameters.whole(request, "from", default=1, most=NUMBER_MOST)
    last = parameters.whole(request, "to", default=min(first + LINES - 1, NUMBER_MOST), most=NUMBER_MOST)
    _, row = await log_reads.requested_log(request)
    last = min(last, first + LINES_MOST - 1, row["lines"])
    try:
        raw = await log_reads.raw_lines(context, row, first, last)
    except BlobMissing:
        raise Rejected(404, "not_found", "the log has been deleted") from None
    found = [
        LogLine(
            number=number, at=answers.time(time_of(line)), text=clean(line).decode("utf-8", "replace")[:SHOWN]
        )
        for number, line in enumerate(raw, first)
    ]
    return send(LogLines(total=row["lines"], lines=found))
