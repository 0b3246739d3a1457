"""GET /{owner}/{repo}/logs?q= and its JSON: lines of the logs of a branch's newest commits that match a pattern."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, NamedTuple

from aiohttp import web
from msgspec import Meta

from bot.ci.collect import job_reads
from bot.ci.logs import search
from bot.ci.logs.sections import job_page, log_page
from bot.ci.logs.store import search_rows
from bot.ci.logs.store.log_rows import DAY
from bot.ci.logs.views import search_answers
from bot.ci.logs.views.search_answers import NO_LOG, LogHits
from bot.ci.trunk.store import rows as trunk_rows
from bot.web import html, parameters
from bot.web import operations as op
from bot.web import view_parameters as declare
from bot.web.answers import Answer, matching, send
from bot.web.asked import Parameter, asking, describe
from bot.web.page_cache import PRIVATE
from bot.web.refusals import INVALID_PARAMETER
from bot.web.view import Endpoint

if TYPE_CHECKING:
    from bot.ci.logs.store.search_rows import SearchableRow
    from bot.db.transaction import Transaction
    from bot.web.asked import Asked

COMMITS, COMMITS_MOST = 20, 200
DAYS_MOST = 90
CURSOR = re.compile(r"([0-9a-f]{40,64})\.(\d{1,6})\.(\d{1,6})")


class BranchLogSearch(Answer, frozen=True, kw_only=True):
    """Lines of the logs of a branch's commits that match a pattern, the newest commits first"""

    branch: str
    commits: Annotated[int, Meta(description="of the branch that are looked at, from the newest one back")]
    searched_commits: Annotated[int, Meta(description="of these: all their logs were searched")]
    searched: Annotated[int, Meta(description="logs, in this answer")]
    next: Annotated[str | None, Meta(description="the `before` that goes on; null: all were searched")]
    jobs: list[LogHits]


class Cursor(NamedTuple):
    """Where a search goes on."""

    sha: str | None  # the commit; None: the newest
    logs: int = 0  # of that commit, searched before
    commits: int = 0  # before it, done

    def __str__(self) -> str:
        """The cursor as answers and addresses have it."""
        return f"{self.sha}.{self.logs}.{self.commits}"


def parse_cursor(text: str) -> Cursor:
    """Return where to go on; raises Rejected."""
    found = CURSOR.fullmatch(text)
    if not found:
        raise INVALID_PARAMETER.because("before must be `next` of an answer")
    return Cursor(found[1], int(found[2]), int(found[3]))


def _commits(request: web.Request) -> int | None:
    return parameters.whole(request, "commits", default=0, most=COMMITS_MOST) or None


BRANCH = declare.text("branch", "the branch; left out: the default one")
COMMITS_LOOKED_AT = Parameter(
    "commits",
    _commits,
    None,
    (
        op.whole(
            "commits",
            COMMITS_MOST,
            f"how many commits are looked at; with `days` all of them, up to {COMMITS_MOST}",
            default=COMMITS,
        ),
    ),
)
DAYS = declare.optional_whole("days", DAYS_MOST, "only commits of so many days")
BEFORE = declare.parsed(
    "before",
    Annotated[str, matching(CURSOR)],
    "where to go on, `next` of an answer",
    parse=parse_cursor,
    default=Cursor(None),
)
PARAMETERS = (declare.REPO, BRANCH, COMMITS_LOOKED_AT, DAYS, BEFORE)


class Range(NamedTuple):
    """Which commits of which branch are looked at."""

    repo: str
    branch: str
    commits: int
    days: int | None
    cursor: Cursor


class Logs(NamedTuple):
    """Logs that one search may look at, and the commits that they are of."""

    of: Range
    shas: list[str]  # from the cursor's commit back
    rows: list[SearchableRow]
    whole: int  # of these commits: how many have all their logs among the rows

    @property
    def unknown(self) -> bool:
        """Whether no commit of the branch is known in the time that is asked for."""
        return not self.shas and self.of.cursor.sha is None


async def show_page(request: web.Request) -> web.Response:
    """Show the lines that match."""
    made = await html.refused(request, _page)
    made.headers["Cache-Control"] = PRIVATE
    return made


async def _page(request: web.Request) -> web.Response:
    pattern = parameters.given(request, "q")
    logs = await _logs(request)
    answer = await _search(request, logs, pattern) if pattern and not logs.unknown else None
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
        after=parameters.query({**chosen, "before": answer.next}) if answer and answer.next else "",
        job_page=job_page,
        log_page=log_page,
        json_url=f"/api/ci/logs/{logs.of.repo}?{parameters.query(chosen)}" if pattern else "",
    )


async def send_json(request: web.Request) -> web.Response:
    """Answer with the lines that match."""
    pattern, logs = parameters.needed(request, "q"), await _logs(request)
    if logs.unknown:
        raise NO_LOG.because(f"no commit of {logs.of.branch} is known here in that time")
    return send(await _search(request, logs, pattern))


async def _search(request: web.Request, logs: Logs, pattern: str) -> BranchLogSearch:
    cursor = logs.of.cursor
    found = await search_answers.search_for_request(request, logs.rows, pattern)
    after = _after(logs, len(found))
    return BranchLogSearch(
        branch=logs.of.branch,
        commits=cursor.commits + len(logs.shas),
        searched_commits=after.commits if after else cursor.commits + len(logs.shas),
        searched=len(found),
        next=str(after) if after else None,
        jobs=search_answers.logs_with_hits(found),
    )


def _after(logs: Logs, searched: int) -> Cursor | None:
    """Return where to go on after some of the logs, None where all were searched."""
    cursor = logs.of.cursor
    if searched < len(logs.rows):
        sha = logs.rows[searched]["sha"]
        same = sum(row["sha"] == sha for row in logs.rows[:searched])
        return Cursor(
            sha, same + (cursor.logs if sha == cursor.sha else 0), cursor.commits + logs.shas.index(sha)
        )
    if logs.whole < len(logs.shas):
        sha = logs.shas[logs.whole]
        same = sum(row["sha"] == sha for row in logs.rows)
        return Cursor(sha, same + (cursor.logs if sha == cursor.sha else 0), cursor.commits + logs.whole)
    return None


async def _logs(request: web.Request) -> Logs:
    """Return the logs that this request may see, as many as one search looks at; raises Rejected."""
    async with asking(request, PARAMETERS) as asked:
        tx = asked.tx
        own = await job_reads.visible_to(asked, asked[declare.REPO])
        if not own:
            raise NO_LOG.because("no log of that repository may be shown here")
        of = await _range(asked, own)
        since = tx.now - of.days * DAY if of.days else 0
        left = max(of.commits - of.cursor.commits, 0)
        shas = await search_rows.commits_of_branch(
            tx, own, of.branch, since=since, limit=left, start=of.cursor.sha
        )
        if not shas:
            return Logs(of, [], [], 0)
        return await _gathered(request, tx, of, own, shas)


async def _gathered(request: web.Request, tx: Transaction, of: Range, own: set[int], shas: list[str]) -> Logs:
    """Gather the logs of commit after commit until there are enough for one search."""
    wanted = await search_rows.commits_with_logs(tx, of.repo, own, shas)
    seen: dict[str, set[int]] = {}
    rows: list[SearchableRow] = []
    for place, sha in enumerate(shas):
        if sha not in wanted:
            continue
        if len(rows) >= search.LOGS:
            return Logs(of, shas, rows, place)
        theirs: set[int] = set()
        for name in await search_rows.reporting_backends(tx, of.repo, sha):
            if name not in seen:
                seen[name] = await job_reads.visible(request, tx, name)
            theirs |= seen[name]
        found = await search_rows.searchable_logs(tx, of.repo, sha, own=own, of_backends=theirs)
        rows += found[of.cursor.logs if sha == of.cursor.sha else 0 :]
    return Logs(of, shas, rows, len(shas))


async def _range(asked: Asked, own: set[int]) -> Range:
    branch = asked[BRANCH]
    if not branch:
        record = await trunk_rows.repository(asked.tx, own)
        branch = (record and record["default_branch"]) or ""
        if not branch:
            raise NO_LOG.because("the default branch is not known: name one with branch=")
    days = asked[DAYS]
    return Range(
        repo=asked[declare.REPO],
        branch=branch,
        commits=asked[COMMITS_LOOKED_AT] or (COMMITS_MOST if days else COMMITS),
        days=days,
        cursor=asked[BEFORE],
    )


ENDPOINTS = (
    Endpoint(web.get("/{owner}/{repo}/logs", show_page)),
    Endpoint(
        web.get("/api/ci/logs/{owner}/{repo}", send_json),
        op.Operation(
            "GET /api/ci/logs/{owner}/{repo}",
            "ciBranchLogSearch",
            "Lines of the logs of a branch's newest commits that match a pattern",
            BranchLogSearch,
            topic=op.CI,
            callers=op.READER,
            parameters=[*describe((declare.REPO,)), search_answers.PATTERN, *describe(PARAMETERS[1:])],
            refusals=[op.WRONG_PARAMETER, NO_LOG, search_answers.TOO_MANY, *op.READING],
        ),
    ),
)
