"""GET /{owner}/{repo}/commit/{sha}/logs?q= and its JSON: lines of a commit's or a run's stored logs that match."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from aiohttp import web
from msgspec import Meta

from bot.ci.collect import job_reads
from bot.ci.logs.sections import job_page, log_page
from bot.ci.logs.store import search_rows
from bot.ci.logs.views import search_answers
from bot.ci.logs.views.search_answers import LogHits
from bot.core.errors import Rejected
from bot.web import html, parameters
from bot.web.answers import Answer, send
from bot.web.app_keys import CONTEXT
from bot.web.page_cache import PRIVATE

if TYPE_CHECKING:
    from bot.ci.logs.store.search_rows import SearchableRow


RUN_MOST = 2**53  # the largest id of a run


class LogSearch(Answer, frozen=True, kw_only=True):
    """Lines of a commit's logs, or of a run's, that match a pattern"""

    searched: Annotated[int, Meta(description="logs, those before `from` included")]
    total: Annotated[int, Meta(description="stored logs of the commit, or of the run")]
    next: Annotated[int | None, Meta(description="the `from` that goes on; null: all were searched")]
    jobs: list[LogHits]


async def page(request: web.Request) -> web.Response:
    """Show the lines that match."""
    made = await html.refused(request, _page)
    made.headers["Cache-Control"] = PRIVATE
    return made


async def _page(request: web.Request) -> web.Response:
    pattern, first = parameters.given(request, "q"), _first(request)
    logs = await _logs(request)
    answer = await _search(request, logs, pattern, first) if pattern else None
    return html.render(
        request,
        "log_search.html",
        repo=parameters.repo(request),
        sha=_sha(request),
        run=_run(request),
        total=len(logs),
        pattern=pattern,
        answer=answer,
        job_page=job_page,
        log_page=log_page,
        json_url=_json_url(request, pattern) if pattern else "",
    )


async def as_json(request: web.Request) -> web.Response:
    """Answer with the lines that match."""
    pattern, first = parameters.needed(request, "q"), _first(request)
    return send(await _search(request, await _logs(request), pattern, first))


async def _search(request: web.Request, logs: list[SearchableRow], pattern: str, first: int) -> LogSearch:
    found = await search_answers.search_for_request(request, logs[first:], pattern)
    done = min(first, len(logs)) + len(found)
    return LogSearch(
        searched=done,
        total=len(logs),
        next=done + 1 if done < len(logs) else None,
        jobs=search_answers.logs_with_hits(found),
    )


def _first(request: web.Request) -> int:
    """Return how many logs were searched before."""
    return parameters.whole(request, "from", default=1, most=search_rows.LOGS_MOST) - 1


async def _logs(request: web.Request) -> list[SearchableRow]:
    """Return the logs of the commit in the path that this request may see; raises Rejected 404 without any."""
    repo, sha = parameters.repo(request), _sha(request)
    async with request.app[CONTEXT].store.read() as tx:
        own = await job_reads.visible(request, tx, repo)
        theirs: set[int] = set()
        for name in sorted(await search_rows.reporting_backends(tx, repo, sha)) if own else ():
            theirs |= await job_reads.visible(request, tx, name)
        found = (
            await search_rows.searchable_logs(
                tx, repo, sha, own=own, of_backends=theirs, run_id=_run(request)
            )
            if own
            else []
        )
    if not found:
        raise Rejected(404, "not_found", "no log of that commit may be shown here; it takes the whole SHA")
    return found


def _run(request: web.Request) -> int | None:
    """Return the run whose logs are searched, None for all of the commit."""
    return parameters.whole(request, "run", default=0, most=RUN_MOST) or None


def _sha(request: web.Request) -> str:
    return parameters.commit(request.match_info["sha"])


def _json_url(request: web.Request, pattern: str) -> str:
    query = parameters.query(
        {"q": pattern, "run": parameters.given(request, "run"), "from": parameters.given(request, "from")}
    )
    return f"/api/ci/logs/{parameters.repo(request)}/commit/{_sha(request)}?{query}"


routes = [
    web.get("/{owner}/{repo}/commit/{sha}/logs", page),
    web.get("/api/ci/logs/{owner}/{repo}/commit/{sha}", as_json),
]
