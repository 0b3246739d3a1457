"""Searches in the logs of a commit, a run or a branch: lines that match a pattern, as pages and JSON.

GET /{owner}/{repo}/commit/{sha}/logs?q= and /{owner}/{repo}/logs?q=.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, NamedTuple

from aiohttp import web
from msgspec import Meta, Struct

from bot.core.errors import Rejected
from bot.evidence.logs import search
from bot.evidence.logs.failure_lines import job_page, log_page
from bot.evidence.logs.rows import DAY
from bot.jobs import rows as job_rows
from bot.pages import job_reads
from bot.pages.logs import log
from bot.web import addresses, html, openapi, parameters
from bot.web.access import CONTEXT
from bot.web.answers import Answer, matching, send_json
from bot.web.limits import client_ip
from bot.web.openapi import INVALID_PARAMETER, DeclaredRefusal
from bot.web.page_cache import NOT_STORED
from bot.web.parameters import Parameter, describe_parameters, open_query
from bot.web.view import Endpoint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.db.transaction import Transaction
    from bot.evidence.logs.search import SearchableRow, SearchedLog
    from bot.web.parameters import Query

PATTERN_MOST = 500  # characters
PATTERN = openapi.needed("q", openapi.Text, f"a regular expression of RE2, at most {PATTERN_MOST} characters")
NO_LOG = DeclaredRefusal(404, "not_found", "no log of that commit or branch may be shown")
TOO_MANY: openapi.Refusal = (
    429,
    "rate_limited",
    "two searches run already, or the address has had ten in a minute",
)
RUN_MOST = 2**53  # the largest id of a run

REPO = parameters.REPO
SHA = parameters.commit("the whole SHA of the commit")
RUN = parameters.optional_whole("run", RUN_MOST, "a run; left out: all runs of the commit")
FROM = parameters.whole(
    "from", search.LOGS_OF_COMMIT_MOST, "the log to go on with, `next` of an answer", default=1
)
NOTHING_HERE = "no log of that commit may be shown here; it takes the whole SHA"
COMMITS, COMMITS_MOST = 20, 200
DAYS_MOST = 90
CURSOR = re.compile(r"([0-9a-f]{40,64})\.(\d{1,6})\.(\d{1,6})")
BRANCH = parameters.text("branch", "the branch; left out: the default one")
DAYS = parameters.optional_whole("days", DAYS_MOST, "only commits of so many days")


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


@dataclass(frozen=True, kw_only=True)
class CommitLogs:
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


class BranchLogSearch(Answer, frozen=True, kw_only=True):
    """Lines of the logs of a branch's commits that match a pattern, the newest commits first"""

    branch: str
    commits: Annotated[int, Meta(description="of the branch that are looked at, from the newest one back")]
    searched_commits: Annotated[int, Meta(description="of these: all their logs were searched")]
    searched: Annotated[int, Meta(description="logs, in this answer")]
    next: Annotated[str | None, Meta(description="the `before` that goes on; null: all were searched")]
    jobs: list[LogHits]


class SearchCursor(NamedTuple):
    """Where a search goes on."""

    sha: str | None  # the commit; None: the newest
    logs: int = 0  # of that commit, searched before
    commits: int = 0  # before it, done

    def __str__(self) -> str:
        """The cursor as it stands in answers and addresses."""
        return f"{self.sha}.{self.logs}.{self.commits}"


class CommitRange(NamedTuple):
    """Which commits of which branch are looked at."""

    repo: str
    branch: str
    commits: int
    days: int | None
    cursor: SearchCursor


class BranchLogs(NamedTuple):
    """Logs that one search may look at, and the commits that they are of."""

    of: CommitRange
    shas: list[str]  # from the cursor's commit back
    rows: list[SearchableRow]
    whole: int  # of these commits: how many have all their logs among the rows

    @property
    def unknown(self) -> bool:
        """Whether no commit of the branch is known in the time that is asked for."""
        return not self.shas and self.of.cursor.sha is None


async def search_for_request(
    request: web.Request, logs: Sequence[SearchableRow], pattern: str
) -> list[SearchedLog]:
    """Search logs in order, as many as the limits allow; raise Rejected if the request is not admitted.

    The pattern comes from a stranger: it is compiled in the child only, once the request is admitted.
    """
    if len(pattern) > PATTERN_MOST:
        raise Rejected(400, "invalid_parameter", f"q may have at most {PATTERN_MOST} characters")
    context = request.app[CONTEXT]
    address = client_ip(request, context.settings.trusted_proxies)
    with context.resource(search.SEARCHES).admitted(address), log.blobs_answering():
        return await search.search_logs(context, logs, pattern)


def logs_with_hits(searched: Sequence[SearchedLog]) -> list[LogHits]:
    """Return the logs with hits, and those that could not be searched."""
    return [hits for hits in map(_log_hits, searched) if hits.hits or hits.problem]


def _log_hits(log: SearchedLog) -> LogHits:
    seen = log.searched
    problem = log.problem or ("only its beginning was searched" if seen and not seen.whole else "")
    return LogHits(
        repo=log.log["repo"],
        job_id=log.log["job_id"],
        name=log.log["name"],
        sha=log.log["sha"],
        hits=[LogHit(line_num=hit.line_num, line=hit.line) for hit in seen.hits] if seen else [],
        more=seen is not None and seen.more,
        problem=problem or None,
    )


async def show_commit_page(request: web.Request) -> web.Response:
    """Show the lines that match."""
    made = await html.refused(request, _commit_page)
    made.headers["Cache-Control"] = NOT_STORED
    return made


async def _commit_page(request: web.Request) -> web.Response:
    pattern, wanted = addresses.given(request, "q"), await _commit_logs(request)
    answer = await _search_commit(request, wanted, pattern) if pattern else None
    chosen = {
        "q": pattern,
        "run": addresses.given(request, "run"),
        "from": addresses.given(request, "from"),
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
        json_url=f"/api/ci/logs/{wanted.repo}/commit/{wanted.sha}?{addresses.query(chosen)}"
        if pattern
        else "",
    )


async def send_commit_json(request: web.Request) -> web.Response:
    """Answer with the lines that match."""
    pattern = addresses.needed(request, "q")
    return send_json(await _search_commit(request, await _commit_logs(request), pattern))


async def _search_commit(request: web.Request, wanted: CommitLogs, pattern: str) -> LogSearch:
    logs, first = wanted.logs, wanted.first - 1
    searched = await search_for_request(request, logs[first:], pattern)
    done = min(first, len(logs)) + len(searched)
    return LogSearch(
        searched=done,
        total=len(logs),
        next=done + 1 if done < len(logs) else None,
        jobs=logs_with_hits(searched),
    )


async def _commit_logs(request: web.Request) -> CommitLogs:
    """Return the logs of the commit in the path that this request may see; raise Rejected 404 without any."""
    async with open_query(request, (REPO, SHA, RUN, FROM)) as query:
        tx, repo, sha = query.tx, query[REPO], query[SHA]
        own = await job_reads.visible_ids_of(query, repo)
        if not own:
            raise NO_LOG.because(NOTHING_HERE)
        theirs: set[int] = set()
        for name in sorted(await search.reporting_backends(tx, repo, sha)):
            theirs |= await job_reads.visible_ids(request, tx, name)
        logs = await search.searchable_logs(tx, repo, sha, own=own, of_backends=theirs, run_id=query[RUN])
    if not logs:
        raise NO_LOG.because(NOTHING_HERE)
    return CommitLogs(repo=repo, sha=sha, run=query[RUN], first=query[FROM], logs=logs)


COMMIT_ENDPOINTS = (
    Endpoint(web.get("/{owner}/{repo}/commit/{sha}/logs", show_commit_page)),
    Endpoint(
        web.get("/api/ci/logs/{owner}/{repo}/commit/{sha}", send_commit_json),
        openapi.Operation(
            "GET /api/ci/logs/{owner}/{repo}/commit/{sha}",
            "ciLogSearch",
            "Lines of a commit's logs that match a pattern",
            LogSearch,
            topic=openapi.CI,
            callers=openapi.READER,
            parameters=[*describe_parameters((REPO, SHA)), PATTERN, *describe_parameters((RUN, FROM))],
            refusals=[openapi.WRONG_PARAMETER, NO_LOG, TOO_MANY, *openapi.READING],
        ),
    ),
)


def parse_cursor(text: str) -> SearchCursor:
    """Parse where to go on; raise Rejected if it is no cursor."""
    match = CURSOR.fullmatch(text)
    if not match:
        raise INVALID_PARAMETER.because("before must be `next` of an answer")
    return SearchCursor(match[1], int(match[2]), int(match[3]))


def _read_commits(request: web.Request) -> int | None:
    return addresses.whole(request, "commits", default=0, most=COMMITS_MOST) or None


COMMITS_LOOKED_AT = Parameter(
    "commits",
    _read_commits,
    None,
    (
        openapi.whole(
            "commits",
            COMMITS_MOST,
            f"how many commits are looked at; with `days` all of them, up to {COMMITS_MOST}",
            default=COMMITS,
        ),
    ),
)
BEFORE = parameters.parsed(
    "before",
    Annotated[str, matching(CURSOR)],
    "where to go on, `next` of an answer",
    parse=parse_cursor,
    default=SearchCursor(None),
)
BRANCH_PARAMETERS = (parameters.REPO, BRANCH, COMMITS_LOOKED_AT, DAYS, BEFORE)


async def show_branch_page(request: web.Request) -> web.Response:
    """Show the lines that match."""
    made = await html.refused(request, _branch_page)
    made.headers["Cache-Control"] = NOT_STORED
    return made


async def _branch_page(request: web.Request) -> web.Response:
    pattern = addresses.given(request, "q")
    logs = await _branch_logs(request)
    answer = await _search_branch(request, logs, pattern) if pattern and not logs.unknown else None
    chosen = {"q": pattern, "branch": logs.of.branch, "commits": logs.of.commits, "days": logs.of.days or ""}
    return html.render(
        request,
        "branch_search.html",
        repo=logs.of.repo,
        of=logs.of,
        unknown=logs.unknown,
        most=COMMITS_MOST,
        days_most=DAYS_MOST,
        pattern=pattern,
        answer=answer,
        after=addresses.query({**chosen, "before": answer.next}) if answer and answer.next else "",
        job_page=job_page,
        log_page=log_page,
        json_url=f"/api/ci/logs/{logs.of.repo}?{addresses.query(chosen)}" if pattern else "",
    )


async def send_branch_json(request: web.Request) -> web.Response:
    """Answer with the lines that match."""
    pattern, logs = addresses.needed(request, "q"), await _branch_logs(request)
    if logs.unknown:
        raise NO_LOG.because(f"no commit of {logs.of.branch} is known here in that time")
    return send_json(await _search_branch(request, logs, pattern))


async def _search_branch(request: web.Request, logs: BranchLogs, pattern: str) -> BranchLogSearch:
    cursor = logs.of.cursor
    searched = await search_for_request(request, logs.rows, pattern)
    after = _next_cursor(logs, len(searched))
    return BranchLogSearch(
        branch=logs.of.branch,
        commits=cursor.commits + len(logs.shas),
        searched_commits=after.commits if after else cursor.commits + len(logs.shas),
        searched=len(searched),
        next=str(after) if after else None,
        jobs=logs_with_hits(searched),
    )


def _next_cursor(logs: BranchLogs, searched: int) -> SearchCursor | None:
    """Return where to go on after some of the logs, or None once all were searched."""
    cursor = logs.of.cursor
    if searched < len(logs.rows):
        sha = logs.rows[searched]["sha"]
        same = sum(row["sha"] == sha for row in logs.rows[:searched])
        return SearchCursor(
            sha, same + (cursor.logs if sha == cursor.sha else 0), cursor.commits + logs.shas.index(sha)
        )
    if logs.whole < len(logs.shas):
        sha = logs.shas[logs.whole]
        same = sum(row["sha"] == sha for row in logs.rows)
        return SearchCursor(
            sha, same + (cursor.logs if sha == cursor.sha else 0), cursor.commits + logs.whole
        )
    return None


async def _branch_logs(request: web.Request) -> BranchLogs:
    """Return the logs that this request may see, as many as one search takes; raise Rejected without any."""
    async with open_query(request, BRANCH_PARAMETERS) as query:
        tx = query.tx
        own = await job_reads.visible_ids_of(query, query[parameters.REPO])
        if not own:
            raise NO_LOG.because("no log of that repository may be shown here")
        of = await _commit_range(query, own)
        since = tx.now - of.days * DAY if of.days else 0
        left = max(of.commits - of.cursor.commits, 0)
        shas = await search.commits_of_branch(
            tx, own, of.branch, since=since, limit=left, start=of.cursor.sha
        )
        if not shas:
            return BranchLogs(of, [], [], 0)
        return await _gather_logs(request, tx, of, own, shas)


async def _gather_logs(
    request: web.Request, tx: Transaction, of: CommitRange, own: set[int], shas: list[str]
) -> BranchLogs:
    """Gather the logs of commit after commit until there are enough for one search."""
    wanted = await search.commits_with_logs(tx, of.repo, own, shas)
    seen: dict[str, set[int]] = {}
    rows: list[SearchableRow] = []
    for place, sha in enumerate(shas):
        if sha not in wanted:
            continue
        if len(rows) >= search.SEARCHED_MOST:
            return BranchLogs(of, shas, rows, place)
        theirs: set[int] = set()
        for name in await search.reporting_backends(tx, of.repo, sha):
            if name not in seen:
                seen[name] = await job_reads.visible_ids(request, tx, name)
            theirs |= seen[name]
        logs = await search.searchable_logs(tx, of.repo, sha, own=own, of_backends=theirs)
        rows += logs[of.cursor.logs if sha == of.cursor.sha else 0 :]
    return BranchLogs(of, shas, rows, len(shas))


async def _commit_range(query: Query, own: set[int]) -> CommitRange:
    branch = query[BRANCH]
    if not branch:
        record = await job_rows.repository(query.tx, own)
        branch = (record and record["default_branch"]) or ""
        if not branch:
            raise NO_LOG.because("the default branch is not known: name one with branch=")
    days = query[DAYS]
    return CommitRange(
        repo=query[parameters.REPO],
        branch=branch,
        commits=query[COMMITS_LOOKED_AT] or (COMMITS_MOST if days else COMMITS),
        days=days,
        cursor=query[BEFORE],
    )


BRANCH_ENDPOINTS = (
    Endpoint(web.get("/{owner}/{repo}/logs", show_branch_page)),
    Endpoint(
        web.get("/api/ci/logs/{owner}/{repo}", send_branch_json),
        openapi.Operation(
            "GET /api/ci/logs/{owner}/{repo}",
            "ciBranchLogSearch",
            "Lines of the logs of a branch's newest commits that match a pattern",
            BranchLogSearch,
            topic=openapi.CI,
            callers=openapi.READER,
            parameters=[
                *describe_parameters((parameters.REPO,)),
                PATTERN,
                *describe_parameters(BRANCH_PARAMETERS[1:]),
            ],
            refusals=[openapi.WRONG_PARAMETER, NO_LOG, TOO_MANY, *openapi.READING],
        ),
    ),
)
