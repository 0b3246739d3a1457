"""GET /{owner}/{repo}/bisects, /{owner}/{repo}/bisects/{id} and their JSON: searches for culprits."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bot.ci.trunk import reading
from bot.core.errors import Rejected
from bot.core.links import web_url
from bot.oot.allowlist import rows as allowlists
from bot.oot.culprits import axis, limits, mended, rows, verdict
from bot.oot.culprits.advance import read_situation
from bot.oot.culprits.answers import (
    Search,
    SearchAnswer,
    SearchCommit,
    Searches,
    SearchMeasures,
    SearchStep,
)
from bot.oot.culprits.search import most_runs_left, next_steps
from bot.oot.results.private_names import read_private_names
from bot.web import access
from bot.web import operations as op
from bot.web import view_parameters as declare
from bot.web.answers import fill
from bot.web.refusals import NOT_FOUND, UNKNOWN_REPOSITORY
from bot.web.view import Json, Page, View
from bot.web.view_parameters import REPO, REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.ci.trunk.reading import Branch
    from bot.oot.allowlist.allowlist import Allowlist
    from bot.oot.culprits.axis import Point
    from bot.oot.culprits.mended import Measures
    from bot.oot.culprits.search import Step
    from bot.oot.culprits.situation import Situation
    from bot.oot.culprits.tables import BisectRow, StepRow
    from bot.oot.statistics.stats import BackendStats
    from bot.web.asked import Asked

SHOWN = 100
RUNNING = 30  # seconds until the page of a search under way is reloaded
IDENTIFIER = "[0-9a-f]{10}"
STATE = declare.choice("state", ("", *rows.STATES), "only in this state")
ID = declare.in_path("id", str, "the id of the search", parse=str, default="")
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


@dataclass(frozen=True, kw_only=True)
class FoundSearches:
    """The newest searches of a repository."""

    repo: str
    state: str
    searches: Sequence[BisectRow]
    called: dict[str, str]  # what backends are called
    measures: Measures
    url: str


@dataclass(frozen=True, kw_only=True)
class FoundSearch:
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
    def next(self) -> tuple[Step, ...]:
        """What is run next, by what is known now."""
        found = self.situation
        return () if found is None or self.over else next_steps(found.seen, found.terms).steps

    @property
    def left(self) -> tuple[int, float | None] | None:
        """How many runs are left at most, and how many seconds they take by the median; None where it is over."""
        found = self.situation
        if found is None or self.over:
            return None
        runs, rounds = most_runs_left(found.seen, found.terms)
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
        return axis.points(self.situation.seen, culprits) if self.situation else []


async def has_searches(asked: Asked, repo: str) -> bool:
    """Whether a culprit was ever searched for in a repository."""
    with contextlib.suppress(Rejected):
        branch = await reading.find_branch(asked.tx, asked.hidden, repo, "")
        return bool(await rows.searches_of(asked.tx, branch.repository["repository_id"], limit=1))
    return False


async def read_searches(asked: Asked) -> FoundSearches:
    """Read the newest searches of a repository that may be shown."""
    tx = asked.tx
    branch = await reading.find_branch(tx, asked.hidden, asked[REPO], "")
    identifier = branch.repository["repository_id"]
    found = await rows.searches_of(tx, identifier, limit=SHOWN, state=asked[STATE])
    hidden = await hidden_backends(asked, {row["backend"] for row in found if row["backend"]})
    return FoundSearches(
        repo=branch.repository["full_name"],
        state=asked[STATE],
        searches=[row for row in found if row["backend"].casefold() not in hidden],
        called=labels_of(await allowlists.in_force(tx)),
        measures=await mended.read_measures(tx, identifier),
        url=asked.settings.url,
    )


async def read_search(asked: Asked) -> FoundSearch:
    """Read one search; raises Rejected 404."""
    tx = asked.tx
    branch = await reading.find_branch(tx, asked.hidden, asked[REPO], "")
    search = await rows.get_search(tx, asked[ID])
    if search is None or not _is_of(search, branch):
        raise NOT_FOUND.because(f"{asked[REPO]} has no search {asked[ID]}")
    backend = search["backend"]
    if backend and await hidden_backends(asked, {backend}):
        raise NOT_FOUND.because(f"{asked[REPO]} has no search {asked[ID]}")
    listed = await allowlists.in_force(tx)
    entry = listed.find(backend) if listed and backend else None
    situation = await read_situation(tx, asked.settings, search, entry)
    runs = situation.runs if situation else ()
    return FoundSearch(
        search=search,
        label=labels_of(listed).get(backend.casefold(), backend or "upstream"),
        steps=await rows.steps_of(tx, search["id"]),
        situation=situation,
        times=await limits.read_times(tx, backend) if backend else None,
        run_urls={run.dispatch_id: run.url for run in runs if run.dispatch_id and run.url},
        github=web_url(asked.settings.github_api_url),
        url=asked.settings.url,
    )


async def hidden_backends(asked: Asked, backends: set[str]) -> set[str]:
    """Return which of these backends' searches may not be shown to the caller, case folded."""
    if access.reads_private(asked.request):
        return set()
    private = await read_private_names(asked.tx, asked.settings, backends)
    return {name.casefold() for name in backends if private.hides(name) or asked.hidden.has(name)}


def labels_of(listed: Allowlist | None) -> dict[str, str]:
    """Return what backends are called, by their case folded names."""
    return {entry.key: entry.label for entry in (listed.entries if listed else ())}


def _is_of(search: BisectRow, branch: Branch) -> bool:
    return search["repository_id"] == branch.repository["repository_id"]


def show_searches(found: FoundSearches) -> dict[str, Any]:
    """Return what the page of all searches shows."""
    return {
        "repo": found.repo,
        "state": found.state,
        "states": rows.STATES,
        "searches": [
            (
                row,
                verdict.what_broke(
                    row, found.called.get(row["backend"].casefold(), row["backend"] or "upstream")
                ),
            )
            for row in found.searches
        ],
        "tones": TONES,
        "measures": found.measures,
    }


def show_search(found: FoundSearch) -> dict[str, Any]:
    """Return what the page of a search shows."""
    search, left = found.search, found.left
    words = ""
    if left is not None and found.situation is not None:
        runs, rounds = most_runs_left(found.situation.seen, found.situation.terms)
        words = verdict.remaining(runs, rounds, found.median)
    titles = {row["sha"]: row for row in found.situation.commits} if found.situation else {}
    return {
        "repo": search["upstream_repo"],
        "search": search,
        "heading": verdict.what_broke(search, found.label),
        "tone": TONES[search["state"]],
        "over": found.over,
        "remaining": words,
        "next": found.next,
        "purposes": PURPOSES,
        "line": axis.draw(found.points),
        "legend": list(axis.legend()),
        "commits": titles,
        "steps": [(step, *OUTCOMES[step["outcome"]]) for step in found.steps],
        "run_urls": found.run_urls,
        "github": found.github,
    }


def answer_searches(found: FoundSearches) -> Searches:
    """Return the JSON of a repository's searches."""
    return Searches(
        searches=[_search(row, found.url) for row in found.searches],
        measures=SearchMeasures(**found.measures._asdict()),
    )


def answer_search(found: FoundSearch) -> SearchAnswer:
    """Return the JSON of one search."""
    left, situation = found.left, found.situation
    commits = []
    for row, seen in zip(situation.commits, situation.seen, strict=True) if situation else ():
        commits.append(fill(SearchCommit, row, state=axis.state_of(seen), good=seen.good, bad=seen.bad))
    return SearchAnswer(
        search=_search(found.search, found.url),
        steps=[fill(SearchStep, step) for step in found.steps],
        commits=commits,
        runs_left=left and left[0],
        seconds_left=left and left[1],
    )


def page_of(search: BisectRow) -> str:
    """Return the page of a search, below the address of this bot."""
    return f"/{search['upstream_repo']}/bisects/{search['id']}"


def _search(row: BisectRow, url: str) -> Search:
    return fill(Search, row, page_url=url + page_of(row))


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
            topic=op.CI,
            refusals=(NOT_FOUND, UNKNOWN_REPOSITORY),
            link=lambda found: {"repo": found.repo, "state": found.state},
        ),
    ),
    View(
        read=read_search,
        parameters=(REPO, ID),
        page=Page(
            path=f"{REPOSITORY}/bisects/{{id:{IDENTIFIER}}}",
            template="bisect.html",
            values=show_search,
            refresh=lambda found: 0 if found.over else RUNNING,
        ),
        json=Json(
            path=f"/api/ci/bisects/{{owner}}/{{repo}}/{{id:{IDENTIFIER}}}",
            answer=answer_search,
            content=SearchAnswer,
            name="bisect",
            summary="A search, with its steps and commits",
            topic=op.CI,
            refusals=(NOT_FOUND, UNKNOWN_REPOSITORY),
        ),
    ),
)
