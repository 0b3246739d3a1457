"""GET /{owner}/{repo}/pulls and its JSON: the pull requests of a repository, each with the state of its gate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from bot.ingest.record_rows import PullRow
from bot.oot.publish import gates
from bot.oot.verdict.pull_state import read_pull
from bot.oot.verdict.view import Role, anchor_of
from bot.pages.backends.interface import NOTHING_TO_SHOW, RESULTS
from bot.pages.pulls import pull_rows
from bot.web import addresses
from bot.web import parameters as declare
from bot.web.answers import Answer, RowAnswer, fill_struct
from bot.web.parameters import REPO, REPOSITORY
from bot.web.view import Json, Page, View

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.oot.verdict.gate import Gate, GateState
    from bot.oot.verdict.view import Backend
    from bot.web.parameters import Query

PULLS_PER_PAGE = 25  # pull requests of a page: each is judged
STATES = ("open", "merged", "closed", "all")
AUTHOR_MOST = 100  # characters
SHOWN = (
    "number", "title", "state", "draft", "merged", "user_login", "base_ref", "head_ref", "head_sha", "created_at",
    "updated_at",
)  # fmt: skip
STATE = declare.choice("state", STATES, "which of them; closed: without being merged")
AUTHOR = declare.text("author", "only those of this login", most=AUTHOR_MOST)
BEFORE = declare.optional_whole("before", 10**18 - 1, "`next` of the page before")
LIMIT = declare.limit(PULLS_PER_PAGE, most=100)


@dataclass(frozen=True, kw_only=True)
class FailingBackends:
    """A backend that fails on the newest commit of a pull request."""

    label: str
    anchor: str  # of its section on the page
    blocks: bool


@dataclass(frozen=True, kw_only=True)
class PullLine:
    """A pull request in a list."""

    pull: PullRow
    gate: Gate | None = None  # of the newest commit; None: nothing blocks there
    failing: tuple[FailingBackends, ...] = ()  # backends, those that block first
    unfinished: int = 0  # backends

    @property
    def state(self) -> GateState | None:
        """The state of its gate."""
        return self.gate.state if self.gate else None

    @property
    def word(self) -> str:
        """What became of it, or that it is a draft."""
        if self.pull["merged"]:
            return "merged"
        return "draft" if self.pull["draft"] and self.pull["state"] == "open" else self.pull["state"] or ""


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
class SelectedPulls:
    """A page of the list."""

    repo: str
    state: str
    author: str
    lines: list[PullLine]
    following: int | None

    @property
    def chosen(self) -> dict[str, object]:
        """The parameters that narrow the list."""
        return {"state": self.state if self.state != STATES[0] else "", "author": self.author}


async def read_lines(query: Query, pulls: Sequence[PullRow]) -> list[PullLine]:
    """Return pull requests; open ones with the state of their newest commit."""
    return [
        await _pull_line(query, pull) if pull["state"] == "open" else PullLine(pull=pull) for pull in pulls
    ]


async def read_pulls(query: Query) -> SelectedPulls:
    """Read a page of pull requests; raises Rejected 404."""
    repo, limit = query[REPO], query[LIMIT]
    if query.hidden.has(repo) or not await pull_rows.has_pulls(query.tx, repo):
        raise NOTHING_TO_SHOW.because(f"no pull request of {repo[:200]} is known here")
    pulls = await pull_rows.page_of_pulls(
        query.tx, repo, state=query[STATE], author=query[AUTHOR], before=query[BEFORE], limit=limit + 1
    )
    return SelectedPulls(
        repo=pulls[0]["repo"] if pulls else repo,
        state=query[STATE],
        author=query[AUTHOR],
        lines=await read_lines(query, pulls[:limit]),
        following=pulls[limit - 1]["id"] if len(pulls) > limit else None,
    )


def show_pulls(selected: SelectedPulls) -> dict[str, Any]:
    """Return what the page shows."""
    following = addresses.query({**selected.chosen, "before": selected.following or ""})
    return {
        "repo": selected.repo,
        "states": STATES,
        "state": selected.state,
        "author": selected.author,
        "lines": selected.lines,
        "following": following if selected.following else "",
    }


def answer_pulls(selected: SelectedPulls) -> PullList:
    """Return the JSON of the list."""
    return PullList(
        pulls=[_listed_pull(line) for line in selected.lines],
        next=str(selected.following) if selected.following else None,
    )


VIEW = View(
    read=read_pulls,
    parameters=(REPO, STATE, AUTHOR, BEFORE, LIMIT),
    page=Page(path=f"{REPOSITORY}/pulls", template="pulls.html", values=show_pulls),
    json=Json(
        path="/api/oot/pulls/{owner}/{repo}",
        answer=answer_pulls,
        content=PullList,
        name="pullRequests",
        summary="A repository's pull requests",
        topic=RESULTS,
        refusals=(NOTHING_TO_SHOW,),
        link=lambda selected: {"repo": selected.repo, **selected.chosen},
    ),
)


async def _pull_line(query: Query, pull: PullRow) -> PullLine:
    tx, settings = query.tx, query.settings
    state = await read_pull(tx, settings, pull["repo"], pull["number"] or 0, newest=1)
    head = state.current
    if head is None:
        return PullLine(pull=pull)
    shown = await gates.read_shown_gates(tx, settings, state, [head])
    gate = shown.get(head.view.head_sha)
    backends = head.view.backends
    return PullLine(
        pull=pull,
        gate=gate.gate if gate else None,
        failing=tuple(
            _failing(backend) for backend in sorted(backends, key=_failing_order) if backend.state.red
        ),
        unfinished=sum(not backend.state.finished for backend in backends),
    )


def _failing_order(backend: Backend) -> tuple[bool, str]:
    return backend.role is not Role.BLOCKING, backend.label.casefold()


def _failing(backend: Backend) -> FailingBackends:
    return FailingBackends(
        label=backend.label, anchor=anchor_of(backend.repo), blocks=backend.role is Role.BLOCKING
    )


def _listed_pull(line: PullLine) -> ListedPull:
    return fill_struct(
        ListedPull,
        line.pull,
        gate=str(line.state) if line.state else None,
        failing=[failing.label for failing in line.failing],
        unfinished=line.unfinished,
    )
