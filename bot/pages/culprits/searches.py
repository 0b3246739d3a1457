"""GET /{owner}/{repo}/bisects, /{owner}/{repo}/bisects/{id} and their JSON: searches for culprits."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from markupsafe import Markup
from msgspec import Struct

from bot.core import text
from bot.core.errors import Rejected
from bot.core.escaping import web_url
from bot.jobs import branch_reads
from bot.jobs.tables import CommitRow
from bot.oot.allowlist import versions as allowlists
from bot.oot.culprits import advance, finish, rows, scan
from bot.oot.culprits.advance import read_situation
from bot.oot.culprits.search import most_runs_left, next_steps
from bot.oot.culprits.tables import BisectRow, StepRow
from bot.oot.results.visibility import read_private_names
from bot.web import access, openapi, parameters
from bot.web.answers import Answer, RowAnswer, fill_struct
from bot.web.openapi import NOT_FOUND, UNKNOWN_REPOSITORY
from bot.web.parameters import REPO, REPOSITORY
from bot.web.view import Json, Page, View

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from bot.oot.allowlist.allowlist import Allowlist
    from bot.oot.culprits.advance import Situation
    from bot.oot.culprits.scan import SearchCounts
    from bot.oot.culprits.search import NextStep, SeenCommit
    from bot.oot.statistics.stats import BackendStats
    from bot.web.parameters import Query

PointState = Literal["good", "bad", "running", "skipped", "not_asked"]
POINTS_A_ROW, POINT_STEP, HEIGHT, MIDDLE, RADIUS = 8, 45, 56, 20, 13
EACH_MOST = 32  # commits that are all drawn; of more, what was not asked is counted
POINTS_MOST = 120
MARKS: dict[PointState, tuple[str, str]] = {  # sign and tone
    "good": ("✓", "good"),
    "bad": ("✗", "bad"),
    "running": ("…", "wait"),
    "skipped": ("-", "warn"),
    "not_asked": ("", "idle"),
}
POINT_WORDS: dict[PointState, str] = {
    "good": "good", "bad": "bad", "running": "running", "skipped": "skipped", "not_asked": "not asked",
}  # fmt: skip
SearchState = Literal["running", "waiting", "found", "not_found", "gave_up", "cancelled"]
Purpose = Literal["split", "confirm_good", "confirm_bad"]
Outcome = Literal["good", "bad", "unbuildable", "no_result", "silent", "refused"]
SHOWN = 100
RUNNING = 30  # seconds until the page of a search under way is reloaded
IDENTIFIER = "[0-9a-f]{10}"
STATE = parameters.choice("state", ("", *rows.STATES), "only in this state")
ID = parameters.in_path("id", str, "the id of the search", parse=str, default="")
TONES = {
    "running": "wait", "waiting": "idle", "found": "bad", "not_found": "good", "gave_up": "warn", "cancelled": "idle",
}  # fmt: skip
OUTCOMES = {
    "good": ("good", "good"), "bad": ("bad", "bad"), "unbuildable": ("warn", "says nothing"),
    "no_result": ("warn", "no result"), "silent": ("warn", "no answer"), "refused": ("bad", "refused"),
    None: ("wait", "running"),
}  # fmt: skip
PURPOSES = {
    "split": "to halve what is left", "confirm_good": "to confirm that it is good",
    "confirm_bad": "to confirm that it is bad",
}  # fmt: skip


class Point(NamedTuple):
    """One commit on the line, or several that were not asked."""

    sha: str
    state: PointState
    commits: int = 1
    culprit: bool = False


class Search(
    RowAnswer, row=BisectRow, without=("repository_id", "comment_on", "bad_kind"), frozen=True, kw_only=True
):
    """A search for the commit that broke something; `why` is a sentence: the verdict, or what it waits for"""

    state: SearchState
    confidence: Literal["commit", "range"] | None
    page_url: str


class SearchStep(RowAnswer, row=StepRow, without=("bisect_id", "dispatch_id"), frozen=True, kw_only=True):
    """A commit that a search had run"""

    purpose: Purpose
    outcome: Outcome | None


class SearchCommit(RowAnswer, row=CommitRow, only=("sha", "title", "pr_number"), frozen=True, kw_only=True):
    """A commit of a search; `good` and `bad` count runs, whoever asked for them"""

    state: PointState
    good: int
    bad: int


class SearchMeasures(Struct, frozen=True, kw_only=True):
    """Searches of the last year: of `found` culprits `mended` were reverted or fixed by a commit that says so"""

    found: int
    mended: int
    median_hours: float | None


class Searches(Answer, frozen=True, kw_only=True):
    """Searches of a repository, the newest first"""

    searches: list[Search]
    measures: SearchMeasures


class SearchAnswer(Answer, frozen=True, kw_only=True):
    """A search with its steps and its commits, oldest first; `runs_left` is at most, null where it is over"""

    search: Search
    steps: list[SearchStep]
    commits: list[SearchCommit]
    runs_left: int | None
    seconds_left: float | None


@dataclass(frozen=True, kw_only=True)
class SearchList:
    """The newest searches of a repository."""

    repo: str
    state: str
    searches: Sequence[BisectRow]
    called: dict[str, str]  # what backends are called
    measures: SearchCounts
    url: str


def state_of(commit: SeenCommit) -> PointState:
    """Return the state that is shown of a commit."""
    if commit.is_good:
        return "good"
    if commit.is_bad:
        return "bad"
    if commit.asked or commit.pending:
        return "running"
    return "skipped" if commit.is_left_alone or commit.vain else "not_asked"


def points_of(seen: Sequence[SeenCommit], culprits: Collection[str]) -> list[Point]:
    """Return the points of a line, oldest first."""
    fold = len(seen) > EACH_MOST
    points: list[Point] = []
    for commit in seen:
        # a culprit is bad also where its runs are not kept any more
        state: PointState = "bad" if commit.sha in culprits else state_of(commit)
        if fold and state == "not_asked" and points and points[-1].state == "not_asked":
            points[-1] = points[-1]._replace(commits=points[-1].commits + 1)
        else:
            points.append(Point(commit.sha, state, culprit=commit.sha in culprits))
    return points[:POINTS_MOST]


def draw_line(points: Sequence[Point]) -> Markup:
    """Draw the line as inline pictures, one per row."""
    rows = [points[start : start + POINTS_A_ROW] for start in range(0, len(points), POINTS_A_ROW)]
    return Markup("").join(_row(row, last=at == len(rows) - 1) for at, row in enumerate(rows))


def legend() -> Iterator[tuple[str, str, str]]:
    """Yield sign, tone and word of each state."""
    for state, (sign, tone) in MARKS.items():
        yield sign or "○", tone, POINT_WORDS[state]


@dataclass(frozen=True, kw_only=True)
class SearchPage:
    """One search, and what is known of its commits now; None where these are no longer on the branch."""

    search: BisectRow
    label: str
    steps: Sequence[StepRow]
    situation: Situation | None
    times: BackendStats | None
    run_urls: dict[str, str]
    github: str
    url: str

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.search["ended_at"] is not None

    @property
    def next(self) -> tuple[NextStep, ...]:
        """What is run next, by what is known now."""
        situation = self.situation
        return () if situation is None or self.over else next_steps(situation.seen, situation.terms).steps

    @property
    def left(self) -> tuple[int, float | None] | None:
        """How many runs are left at most, and how many seconds they take by the median; None where it is over."""
        situation = self.situation
        if situation is None or self.over:
            return None
        runs, rounds = most_runs_left(situation.seen, situation.terms)
        median = self.median
        return runs, None if median is None else rounds * median

    @property
    def median(self) -> float | None:
        """How long one run takes, with its wait; seconds."""
        if self.times is None or self.times.median_execution_time is None:
            return None
        return self.times.median_execution_time + (self.times.median_queue_time or 0)

    @property
    def points(self) -> list[Point]:
        """The line of its commits."""
        culprits = {self.search["culprit_sha"] or ""} if self.search["confidence"] == "commit" else set()
        return points_of(self.situation.seen, culprits) if self.situation else []


async def has_searches(query: Query, repo: str) -> bool:
    """Whether a culprit was ever searched for in a repository."""
    with contextlib.suppress(Rejected):
        branch = await branch_reads.find_branch(query.tx, query.hidden, repo, "")
        return bool(await rows.read_searches_of(query.tx, branch.repository["repository_id"], limit=1))
    return False


async def read_searches(query: Query) -> SearchList:
    """Read the newest searches of a repository that may be shown."""
    tx = query.tx
    branch = await branch_reads.find_branch(tx, query.hidden, query[REPO], "")
    identifier = branch.repository["repository_id"]
    searches = await rows.read_searches_of(tx, identifier, limit=SHOWN, state=query[STATE])
    hidden = await hidden_backends(query, {row["backend"] for row in searches if row["backend"]})
    return SearchList(
        repo=branch.repository["full_name"],
        state=query[STATE],
        searches=[row for row in searches if row["backend"].casefold() not in hidden],
        called=labels_of(await allowlists.read_in_force(tx)),
        measures=await scan.read_measures(tx, identifier),
        url=query.settings.url,
    )


async def read_search(query: Query) -> SearchPage:
    """Read one search; raises Rejected 404."""
    tx = query.tx
    branch = await branch_reads.find_branch(tx, query.hidden, query[REPO], "")
    search = await rows.get_search(tx, query[ID])
    if search is None or search["repository_id"] != branch.repository["repository_id"]:
        raise NOT_FOUND.because(f"{query[REPO]} has no search {query[ID]}")
    backend = search["backend"]
    if backend and await hidden_backends(query, {backend}):
        raise NOT_FOUND.because(f"{query[REPO]} has no search {query[ID]}")
    listed = await allowlists.read_in_force(tx)
    entry = listed.find(backend) if listed and backend else None
    situation = await read_situation(tx, query.settings, search, entry)
    runs = situation.runs if situation else ()
    return SearchPage(
        search=search,
        label=labels_of(listed).get(backend.casefold(), backend or "upstream"),
        steps=await rows.steps_of(tx, search["id"]),
        situation=situation,
        times=await advance.read_times(tx, backend) if backend else None,
        run_urls={run.dispatch_id: run.url for run in runs if run.dispatch_id and run.url},
        github=web_url(query.settings.github_api_url),
        url=query.settings.url,
    )


async def hidden_backends(query: Query, backends: set[str]) -> set[str]:
    """Return which of these backends' searches may not be shown to the caller, case folded."""
    if access.reads_private(query.request):
        return set()
    private = await read_private_names(query.tx, query.settings, backends)
    return {name.casefold() for name in backends if private.hides(name) or query.hidden.has(name)}


def labels_of(listed: Allowlist | None) -> dict[str, str]:
    """Return what backends are called, by their case folded names."""
    return {entry.key: entry.label for entry in (listed.entries if listed else ())}


def show_searches(page: SearchList) -> dict[str, Any]:
    """Return what the page of all searches shows."""
    return {
        "repo": page.repo,
        "state": page.state,
        "states": rows.STATES,
        "searches": [
            (
                row,
                finish.what_broke(
                    row, page.called.get(row["backend"].casefold(), row["backend"] or "upstream")
                ),
            )
            for row in page.searches
        ],
        "tones": TONES,
        "measures": page.measures,
    }


def show_search(page: SearchPage) -> dict[str, Any]:
    """Return what the page of a search shows."""
    search, left = page.search, page.left
    words = ""
    if left is not None and page.situation is not None:
        runs, rounds = most_runs_left(page.situation.seen, page.situation.terms)
        words = finish.describe_remaining(runs, rounds, page.median)
    titles = {row["sha"]: row for row in page.situation.commits} if page.situation else {}
    return {
        "repo": search["upstream_repo"],
        "search": search,
        "heading": finish.what_broke(search, page.label),
        "tone": TONES[search["state"]],
        "over": page.over,
        "remaining": words,
        "next": page.next,
        "purposes": PURPOSES,
        "line": draw_line(page.points),
        "legend": list(legend()),
        "commits": titles,
        "steps": [(step, *OUTCOMES[step["outcome"]]) for step in page.steps],
        "run_urls": page.run_urls,
        "github": page.github,
    }


def answer_searches(page: SearchList) -> Searches:
    """Return the JSON of a repository's searches."""
    return Searches(
        searches=[_search(row, page.url) for row in page.searches],
        measures=SearchMeasures(**page.measures._asdict()),
    )


def answer_search(page: SearchPage) -> SearchAnswer:
    """Return the JSON of one search."""
    left, situation = page.left, page.situation
    commits = []
    for row, seen in zip(situation.commits, situation.seen, strict=True) if situation else ():
        commits.append(fill_struct(SearchCommit, row, state=state_of(seen), good=seen.good, bad=seen.bad))
    return SearchAnswer(
        search=_search(page.search, page.url),
        steps=[fill_struct(SearchStep, step) for step in page.steps],
        commits=commits,
        runs_left=left and left[0],
        seconds_left=left and left[1],
    )


VIEWS = (
    View(
        read=read_searches,
        parameters=(REPO, STATE),
        page=Page(path=f"{REPOSITORY}/bisects", template="bisects.html", values=show_searches),
        json=Json(
            path="/api/ci/bisects/{owner}/{repo}",
            answer=answer_searches,
            content=Searches,
            name="bisects",
            summary="Searches for the commits that broke something",
            topic=openapi.CI,
            refusals=(NOT_FOUND, UNKNOWN_REPOSITORY),
            link=lambda page: {"repo": page.repo, "state": page.state},
        ),
    ),
    View(
        read=read_search,
        parameters=(REPO, ID),
        page=Page(
            path=f"{REPOSITORY}/bisects/{{id:{IDENTIFIER}}}",
            template="bisect.html",
            values=show_search,
            refresh=lambda page: 0 if page.over else RUNNING,
        ),
        json=Json(
            path=f"/api/ci/bisects/{{owner}}/{{repo}}/{{id:{IDENTIFIER}}}",
            answer=answer_search,
            content=SearchAnswer,
            name="bisect",
            summary="A search, with its steps and commits",
            topic=openapi.CI,
            refusals=(NOT_FOUND, UNKNOWN_REPOSITORY),
        ),
    ),
)


def _row(row: Sequence[Point], *, last: bool) -> Markup:
    width = POINTS_A_ROW * POINT_STEP
    end = (len(row) - 1) * POINT_STEP + POINT_STEP // 2 if last else width
    label = ", ".join(_words(point) for point in row)
    parts = "".join(_point(point, at * POINT_STEP + POINT_STEP // 2) for at, point in enumerate(row))
    return Markup(  # noqa: S704 - every text in it is escaped
        f'<svg viewBox="0 0 {width} {HEIGHT}" role="img" aria-label="{escape(label)}">'
        f'<line class="way" x1="{POINT_STEP // 2}" y1="{MIDDLE}" x2="{end}" y2="{MIDDLE}"/>{parts}</svg>'
    )


def _words(point: Point) -> str:
    if point.commits > 1:
        return f"{point.commits} not asked"
    return f"{text.short(point.sha)} {'culprit' if point.culprit else POINT_WORDS[point.state]}"


def _point(point: Point, x: int) -> str:
    sign, tone = MARKS[point.state]
    below = f"{point.commits}" if point.commits > 1 else text.short(point.sha)
    classes = f"{tone} culprit" if point.culprit else tone
    return (
        f'<g class="{classes}"><title>{escape(_words(point))}</title>'
        f'<circle cx="{x}" cy="{MIDDLE}" r="{RADIUS}"/>'
        f'<text class="mark" x="{x}" y="{MIDDLE + 5}">{"⋯" if point.commits > 1 else sign}</text>'
        f'<text x="{x}" y="{MIDDLE + RADIUS + 14}">{escape(below)}</text></g>'
    )


def _search(row: BisectRow, url: str) -> Search:
    return fill_struct(Search, row, page_url=url + rows.page_of_search(row))
