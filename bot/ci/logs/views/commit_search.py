"""GET /{owner}/{repo}/commit/{sha}/logs?q= and its JSON: lines of a commit's or a run's stored logs that match."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from aiohttp import web
from msgspec import Meta

from bot.ci.collect import job_reads
from bot.ci.logs.sections import job_page, log_page
from bot.ci.logs.store import search_rows
from bot.ci.logs.views import search_answers
from bot.ci.logs.views.search_answers import NO_LOG, LogHits
from bot.web import html, parameters
from bot.web import operations as op
from bot.web import view_parameters as declare
from bot.web.answers import Answer, send
from bot.web.asked import asking, describe
from bot.web.page_cache import PRIVATE
from bot.web.view import Endpoint

if TYPE_CHECKING:
    from bot.ci.logs.store.search_rows import SearchableRow


RUN_MOST = 2**53  # the largest id of a run


REPO = declare.REPO
SHA = declare.commit("the whole SHA of the commit")
RUN = declare.optional_whole("run", RUN_MOST, "a run; left out: all runs of the commit")
FROM = declare.whole("from", search_rows.LOGS_MOST, "the log to go on with, `next` of an answer", default=1)
NOTHING_HERE = "no log of that commit may be shown here; it takes the whole SHA"


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The logs that a request may search."""

    repo: str
    sha: str
    run: int | None
    first: int  # the log to begin with, counted from 1
    logs: list[SearchableRow]


class LogSearch(Answer, frozen=True, kw_only=True):
    """Lines of a commit's logs, or of a run's, that match a pattern"""

    searched: Annotated[int, Meta(description="logs, those before `from` included")]
    total: Annotated[int, Meta(description="stored logs of the commit, or of the run")]
    next: Annotated[int | None, Meta(description="the `from` that goes on; null: all were searched")]
    jobs: list[LogHits]


async def show_page(request: web.Request) -> web.Response:
    """Show the lines that match."""
    made = await html.refused(request, _page)
    made.headers["Cache-Control"] = PRIVATE
    return made


async def _page(request: web.Request) -> web.Response:
    pattern, wanted = parameters.given(request, "q"), await _wanted(request)
    answer = await _search(request, wanted, pattern) if pattern else None
    chosen = {
        "q": pattern,
        "run": parameters.given(request, "run"),
        "from": parameters.given(request, "from"),
    }
    return html.render(
        request,
        "log_search.html",
        repo=wanted.repo,
        sha=wanted.sha,
        run=wanted.run,
        total=len(wanted.logs),
        pattern=pattern,
        answer=answer,
        job_page=job_page,
        log_page=log_page,
        json_url=f"/api/ci/logs/{wanted.repo}/commit/{wanted.sha}?{parameters.query(chosen)}"
        if pattern
        else "",
    )


async def send_json(request: web.Request) -> web.Response:
    """Answer with the lines that match."""
    pattern = parameters.needed(request, "q")
    return send(await _search(request, await _wanted(request), pattern))


async def _search(request: web.Request, wanted: Wanted, pattern: str) -> LogSearch:
    logs, first = wanted.logs, wanted.first - 1
    found = await search_answers.search_for_request(request, logs[first:], pattern)
    done = min(first, len(logs)) + len(found)
    return LogSearch(
        searched=done,
        total=len(logs),
        next=done + 1 if done < len(logs) else None,
        jobs=search_answers.logs_with_hits(found),
    )


async def _wanted(request: web.Request) -> Wanted:
    """Return the logs of the commit in the path that this request may see; raises Rejected 404 without any."""
    async with asking(request, (REPO, SHA, RUN, FROM)) as asked:
        tx, repo, sha = asked.tx, asked[REPO], asked[SHA]
        own = await job_reads.visible_to(asked, repo)
        if not own:
            raise NO_LOG.because(NOTHING_HERE)
        theirs: set[int] = set()
        for name in sorted(await search_rows.reporting_backends(tx, repo, sha)):
            theirs |= await job_reads.visible(request, tx, name)
        logs = await search_rows.searchable_logs(
            tx, repo, sha, own=own, of_backends=theirs, run_id=asked[RUN]
        )
    if not logs:
        raise NO_LOG.because(NOTHING_HERE)
    return Wanted(repo=repo, sha=sha, run=asked[RUN], first=asked[FROM], logs=logs)


ENDPOINTS = (
    Endpoint(web.get("/{owner}/{repo}/commit/{sha}/logs", show_page)),
    Endpoint(
        web.get("/api/ci/logs/{owner}/{repo}/commit/{sha}", send_json),
        op.Operation(
            "GET /api/ci/logs/{owner}/{repo}/commit/{sha}",
            "ciLogSearch",
            "Lines of a commit's logs that match a pattern",
            LogSearch,
            topic=op.CI,
            callers=op.READER,
            parameters=[*describe((REPO, SHA)), search_answers.PATTERN, *describe((RUN, FROM))],
            refusals=[op.WRONG_PARAMETER, NO_LOG, search_answers.TOO_MANY, *op.READING],
        ),
    ),
)
