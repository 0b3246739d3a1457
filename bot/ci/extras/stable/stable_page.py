"""GET /{owner}/{repo}/stable and /api/ci/stable/{owner}/{repo}: where the last good commit moved to, and when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from bot.ci.extras import shown_repositories
from bot.ci.extras.source_rows import DAY
from bot.ci.extras.stable import stable_rows
from bot.ci.extras.stable.tables import StablePushRow
from bot.web import operations as op
from bot.web import parameters
from bot.web import view_parameters as declare
from bot.web.answers import Answer, fill
from bot.web.refusals import NOT_FOUND, UNKNOWN_REPOSITORY
from bot.web.row_answers import RowAnswer
from bot.web.view import Json, Page, View
from bot.web.view_parameters import REPO, REPOSITORY

if TYPE_CHECKING:
    from bot.web.asked import Asked

MOST = 500
DAYS = declare.days()


class StableCommit(
    RowAnswer,
    row=StablePushRow,
    only=("branch", "sha", "repository", "committed_at", "title", "jobs_passed", "at"),
    rename={"at": "timestamp"},
    frozen=True,
    kw_only=True,
):
    """A commit that became the last good one."""

    repository: str


class StableCommits(Answer, frozen=True, kw_only=True):
    """The moves of a branch's last good commit"""

    stable_pushes: Annotated[list[StableCommit], Meta(description="newest first")]


@dataclass(frozen=True, kw_only=True)
class Found:
    """The moves of a repository's last good commit."""

    repo: str
    window: int
    moves: list[StablePushRow]


async def read_stable(asked: Asked) -> Found:
    """Read where the last good commit moved to."""
    owners = await shown_repositories.owners(asked)
    since = asked.tx.now - asked[DAYS] * DAY
    moves = await stable_rows.newest_moves(asked.tx, owners, since=since, limit=MOST)
    return Found(repo=asked[REPO], window=asked[DAYS], moves=moves)


def show(found: Found) -> dict[str, Any]:
    """Return what the page shows."""
    return {"repo": found.repo, "found": found, "windows": parameters.windows(found.window)}


def answer(found: Found) -> StableCommits:
    """Return the JSON of the moves."""
    return StableCommits(
        stable_pushes=[fill(StableCommit, one, repository=found.repo) for one in found.moves]
    )


VIEW = View(
    read=read_stable,
    parameters=(REPO, DAYS),
    page=Page(path=f"{REPOSITORY}/stable", template="stable.html", values=show),
    json=Json(
        path="/api/ci/stable/{owner}/{repo}",
        answer=answer,
        content=StableCommits,
        name="stableCommits",
        summary="Where the last good commit moved to, and when",
        topic=op.CI,
        refusals=(NOT_FOUND, UNKNOWN_REPOSITORY),
        link=lambda found: {"repo": found.repo, "days": found.window},
    ),
)
VIEWS = (VIEW,)
