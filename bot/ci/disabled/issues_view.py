"""GET /{owner}/{repo}/disabled and its JSON: what issues disable, and which of them change nothing, and why."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, Struct

from bot.ci.disabled import list_rows, rows
from bot.ci.disabled.lists import LISTS
from bot.ci.disabled.tables import DisablingRow
from bot.ci.trunk import reading
from bot.core.errors import Rejected
from bot.web import operations as op
from bot.web.answers import Answer, Time, fill, time
from bot.web.refusals import NOT_FOUND, UNKNOWN_REPOSITORY
from bot.web.row_answers import RowAnswer
from bot.web.view import Json, Page, View
from bot.web.view_parameters import REPO, REPOSITORY

if TYPE_CHECKING:
    from bot.web.asked import Asked

ENTRIES_SHOWN = 50  # of one issue; the JSON has all
SHOWN = ("number", "title", "url", "author", "kind", "effect", "entries", "problems", "updated_at")


class DisabledEntry(Struct, frozen=True, kw_only=True):
    """A test or job, and the platforms on which the issue disables it; none: on all"""

    name: str
    platforms: list[str]


class DisablingIssue(RowAnswer, row=DisablingRow, only=SHOWN, frozen=True):
    """An open issue that names tests or a job"""

    kind: Literal["test", "job"]
    effect: Annotated[Literal["disabled", "unstable", "none"], Meta(description="none: `problems` says why")]
    entries: list[DisabledEntry]
    problems: Annotated[list[str], Meta(description="what was not understood, or why it has no effect")]


class Disabled(Answer, frozen=True, kw_only=True):
    """What the issues of a repository disable"""

    made_at: Annotated[Time | None, Meta(description="when the lists were made last")]
    issues: list[DisablingIssue]


@dataclass(frozen=True, kw_only=True)
class FoundIssues:
    """The issues of a repository that are about disabling."""

    repo: str
    made_at: int | None  # None: no lists are made of them
    issues: list[DisablingRow]


async def read_issues(asked: Asked) -> FoundIssues:
    """Read the issues of the repository; raises Rejected 404."""
    repository = (await reading.find_branch(asked.tx, asked.hidden, asked[REPO], "")).repository
    mark = await list_rows.find_mark(asked.tx, repository["repository_id"], next(iter(LISTS)))
    return FoundIssues(
        repo=repository["full_name"],
        made_at=mark and mark["made_at"],
        issues=await rows.disabling(asked.tx, repository["repository_id"]),
    )


async def has_lists(asked: Asked, repo: str) -> bool:
    """Whether issues of a repository disable anything, or lists are made of them."""
    with contextlib.suppress(Rejected):
        repository = (await reading.find_branch(asked.tx, asked.hidden, repo, "")).repository
        identifier = repository["repository_id"]
        mark = await list_rows.find_mark(asked.tx, identifier, next(iter(LISTS)))
        return mark is not None or bool(await rows.disabling(asked.tx, identifier))
    return False


def show(found: FoundIssues) -> dict[str, Any]:
    """Return what the page shows."""
    effective = [one for one in found.issues if one["listed"]]
    return {
        "repo": found.repo,
        "made_at": found.made_at,
        "tests": [one for one in effective if one["kind"] == "test"],
        "jobs": [one for one in effective if one["kind"] == "job"],
        "refused": [one for one in found.issues if not one["listed"]],
        "most": ENTRIES_SHOWN,
        "lists": [(name, f"/api/ci/{found.repo}/{name}.json") for name in LISTS],
    }


def answer(found: FoundIssues) -> Disabled:
    """Return the issues as they are sent."""
    return Disabled(made_at=time(found.made_at), issues=[_issue_answer(one) for one in found.issues])


def _issue_answer(one: DisablingRow) -> DisablingIssue:
    effect = "none" if not one["listed"] else "unstable" if one["unstable"] else "disabled"
    entries = [DisabledEntry(name=name, platforms=platforms) for name, platforms in one["entries"]]
    return fill(DisablingIssue, one, effect=effect, entries=entries)


VIEW = View(
    read=read_issues,
    parameters=(REPO,),
    page=Page(path=f"{REPOSITORY}/disabled", template="disabled.html", values=show),
    json=Json(
        path="/api/ci/disabled/{owner}/{repo}",
        answer=answer,
        content=Disabled,
        name="disabled",
        summary="The issues that disable something, or do not, and why",
        topic=op.CI,
        refusals=(NOT_FOUND, UNKNOWN_REPOSITORY),
        link=lambda found: {"repo": found.repo},
    ),
)
