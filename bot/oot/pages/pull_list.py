"""GET /{owner}/{repo}/pulls and its JSON: a repository's pull requests, each with its gate and what fails."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from bot.ingest.rows import PullRow
from bot.oot.pages import pull_lines, pull_rows
from bot.oot.pages.backend_parameters import NOTHING, RESULTS
from bot.web import parameters
from bot.web import view_parameters as declare
from bot.web.answers import Answer, fill
from bot.web.row_answers import RowAnswer
from bot.web.view import Json, Page, View
from bot.web.view_parameters import REPO, REPOSITORY

if TYPE_CHECKING:
    from bot.oot.pages.pull_lines import PullLine
    from bot.web.asked import Asked

EACH = 25  # pull requests of a page: each is judged
STATES = ("open", "merged", "closed", "all")
AUTHOR_MOST = 100  # characters
SHOWN = (
    "number", "title", "state", "draft", "merged", "user_login", "base_ref", "head_ref", "head_sha", "created_at",
    "updated_at",
)  # fmt: skip
STATE = declare.choice("state", STATES, "which of them; closed: without being merged")
AUTHOR = declare.text("author", "only those of this login", most=AUTHOR_MOST)
BEFORE = declare.optional_whole("before", 10**18 - 1, "`next` of the page before")
LIMIT = declare.limit(EACH, most=100)


class ListedPull(
    RowAnswer, row=PullRow, only=SHOWN, rename={"user_login": "author"}, frozen=True, kw_only=True
):
    """A pull request and how its newest commit stands"""

    gate: Annotated[str | None, Meta(description="null: nothing blocks on it, or it is not open")]
    failing: Annotated[list[str], Meta(description="backends, those that block first")]
    unfinished: Annotated[int, Meta(description="backends that have not finished")]


class PullList(Answer, frozen=True, kw_only=True):
    """A repository's pull requests, the newest first"""

    pulls: list[ListedPull]
    next: Annotated[str | None, Meta(description="the `before` of the following page")]


@dataclass(frozen=True, kw_only=True)
class FoundPulls:
    """A page of the list."""

    repo: str
    state: str
    author: str
    lines: list[PullLine]
    following: int | None

    @property
    def chosen(self) -> dict[str, object]:
        """What narrows the list."""
        return {"state": self.state if self.state != STATES[0] else "", "author": self.author}


async def read_pulls(asked: Asked) -> FoundPulls:
    """Read a page of pull requests; raises Rejected 404."""
    repo, limit = asked[REPO], asked[LIMIT]
    if asked.hidden.has(repo) or not await pull_rows.has_pulls(asked.tx, repo):
        raise NOTHING.because(f"no pull request of {repo[:200]} is known here")
    found = await pull_rows.page_of_pulls(
        asked.tx, repo, state=asked[STATE], author=asked[AUTHOR], before=asked[BEFORE], limit=limit + 1
    )
    return FoundPulls(
        repo=found[0]["repo"] if found else repo,
        state=asked[STATE],
        author=asked[AUTHOR],
        lines=await pull_lines.read_lines(asked, found[:limit]),
        following=found[limit - 1]["id"] if len(found) > limit else None,
    )


def show(found: FoundPulls) -> dict[str, Any]:
    """Return what the page shows."""
    following = parameters.query({**found.chosen, "before": found.following or ""})
    return {
        "repo": found.repo,
        "states": STATES,
        "state": found.state,
        "author": found.author,
        "lines": found.lines,
        "following": following if found.following else "",
    }


def answer(found: FoundPulls) -> PullList:
    """Return the JSON of the list."""
    return PullList(
        pulls=[_listed(one) for one in found.lines],
        next=str(found.following) if found.following else None,
    )


def _listed(one: PullLine) -> ListedPull:
    return fill(
        ListedPull,
        one.pull,
        gate=str(one.state) if one.state else None,
        failing=[failing.label for failing in one.failing],
        unfinished=one.unfinished,
    )


VIEW = View(
    read=read_pulls,
    parameters=(REPO, STATE, AUTHOR, BEFORE, LIMIT),
    page=Page(path=f"{REPOSITORY}/pulls", template="pulls.html", values=show),
    json=Json(
        path="/api/oot/pulls/{owner}/{repo}",
        answer=answer,
        content=PullList,
        name="pullRequests",
        summary="A repository's pull requests",
        topic=RESULTS,
        refusals=(NOTHING,),
        link=lambda found: {"repo": found.repo, **found.chosen},
    ),
)
