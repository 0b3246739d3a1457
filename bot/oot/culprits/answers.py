"""JSON of searches for culprits."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from bot.ci.trunk.tables import CommitRow
from bot.oot.culprits.axis import State
from bot.oot.culprits.tables import BisectRow, StepRow
from bot.web.answers import Answer
from bot.web.row_answers import RowAnswer

SearchState = Literal["running", "waiting", "found", "not_found", "gave_up", "cancelled"]
Purpose = Literal["split", "confirm_good", "confirm_bad"]
Outcome = Literal["good", "bad", "unbuildable", "no_result", "silent", "refused"]


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

    state: State
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
