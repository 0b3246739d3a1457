"""GET /{owner}/{repo}/stable and /api/ci/stable/{owner}/{repo}: where the last good commit moved to, and when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from bot.job_reports import stable_branch
from bot.job_reports.tables import StablePushRow
from bot.pages.job_reports.day_window import read_window, repository_view
from bot.queue.sums import DAY
from bot.web.answers import Answer, RowAnswer, fill_struct

if TYPE_CHECKING:
    from bot.pages.job_reports.day_window import DayWindow
    from bot.web.parameters import Query

MOVES_MOST = 500


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
class StableMoves:
    """The moves of a repository's last good commit."""

    window: DayWindow
    moves: list[StablePushRow]


async def read_stable(query: Query) -> StableMoves:
    """Read where the last good commit moved to."""
    window = await read_window(query)
    since = query.tx.now - window.size * DAY
    moves = await stable_branch.newest_moves(query.tx, window.owners, since=since, limit=MOVES_MOST)
    return StableMoves(window=window, moves=moves)


def json_answer(result: StableMoves) -> StableCommits:
    """Return the JSON of the moves."""
    repo = result.window.repo
    return StableCommits(
        stable_pushes=[fill_struct(StableCommit, move, repository=repo) for move in result.moves]
    )


VIEW = repository_view(
    "stable",
    read=read_stable,
    template="stable.html",
    values=lambda result: result.window.page | {"result": result},
    answer=json_answer,
    content=StableCommits,
    name="stableCommits",
    summary="Where the last good commit moved to, and when",
    link=lambda result: {"repo": result.window.repo, "days": result.window.size},
)
