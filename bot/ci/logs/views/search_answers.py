"""What searches of logs have in common: how a pattern is checked, a request admitted, and what was found shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from bot.ci.logs import search
from bot.ci.logs.views import log_reads
from bot.core.errors import Rejected
from bot.web import operations as op
from bot.web.app_keys import CONTEXT
from bot.web.client_ip import client_ip
from bot.web.refusals import Refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiohttp import web

    from bot.ci.logs.search import FoundIn
    from bot.ci.logs.store.search_rows import SearchableRow

PATTERN_MOST = 500  # characters
PATTERN = op.needed("q", op.Text, f"a regular expression of RE2, at most {PATTERN_MOST} characters")
NO_LOG = Refused(404, "not_found", "no log of that commit or branch may be shown")
TOO_MANY: op.Refusal = (
    429,
    "rate_limited",
    "two searches run already, or the address has had ten in a minute",
)


class LogHit(Struct, frozen=True, kw_only=True):
    """A line that matches, without timestamp and escape sequences."""

    line_num: int
    line: str


class LogHits(Struct, frozen=True, kw_only=True):
    """What was found in the log of one job."""

    repo: str
    job_id: int
    name: str | None
    sha: Annotated[str, Meta(description="the commit that is searched, of upstream for a backend's job")]
    hits: list[LogHit]
    more: Annotated[bool, Meta(description="there are more lines that match")]
    problem: Annotated[str | None, Meta(description="why the log was not searched, or only its beginning")]


async def search_for_request(
    request: web.Request, logs: Sequence[SearchableRow], pattern: str
) -> list[FoundIn]:
    """Search logs in order, as many as the limits allow; raises Rejected.

    The pattern comes from a stranger: it is compiled in the child only, once the request is admitted.
    """
    if len(pattern) > PATTERN_MOST:
        raise Rejected(400, "invalid_parameter", f"q may have at most {PATTERN_MOST} characters")
    context = request.app[CONTEXT]
    address = client_ip(request, context.settings.trusted_proxies)
    with context.resource(search.SEARCHES).admitted(address), log_reads.blobs_answering():
        return await search.search_logs(context, logs, pattern)


def logs_with_hits(found: Sequence[FoundIn]) -> list[LogHits]:
    """Return the logs in which something was found, or that could not be searched."""
    return [one for one in map(_shown, found) if one.hits or one.problem]


def _shown(found: FoundIn) -> LogHits:
    seen = found.searched
    problem = found.problem or ("only its beginning was searched" if seen and not seen.whole else "")
    return LogHits(
        repo=found.log["repo"],
        job_id=found.log["job_id"],
        name=found.log["name"],
        sha=found.log["sha"],
        hits=[LogHit(line_num=hit.line_num, line=hit.line) for hit in seen.hits] if seen else [],
        more=seen is not None and seen.more,
        problem=problem or None,
    )
