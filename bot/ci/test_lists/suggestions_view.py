"""Tests that could be disabled, and issues that could be closed: a page with links for people, and the same as JSON.

GET /{owner}/{repo}/disabled/suggestions, GET /api/ci/disabled/{owner}/{repo}/suggestions
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct

from bot.ci.disabled import lists
from bot.ci.disabled import rows as disabled_rows
from bot.ci.disabled.settings import DisabledSettings
from bot.ci.test_lists import rerun_rows, rows, slow, suggestion_rows, suggestions
from bot.ci.test_results.job_tables import TestJobRow
from bot.ci.test_results.store.rows import DAY
from bot.ci.trunk import reading
from bot.core.links import web_url
from bot.web import operations as op
from bot.web.answers import Answer, Time, one_of, time
from bot.web.refusals import NOT_FOUND, UNKNOWN_REPOSITORY
from bot.web.row_answers import RowAnswer
from bot.web.view import Json, Page, View
from bot.web.view_parameters import REPO, REPOSITORY

if TYPE_CHECKING:
    from bot.ci.test_lists.suggestions import Close, Disable
    from bot.web.asked import Asked

WEEK = 7 * DAY
SHOWN = 100
SENT = 500  # suggestions in one answer
STEPS = ("open", "reopen", "add_platforms", "none")


class SeenIn(RowAnswer, row=TestJobRow, only=("job_id", "name", "at"), frozen=True, kw_only=True):
    """A job in which a test was flaky"""

    job_id: Annotated[int | None, Meta(description="GitHub's; null: the reports are of no job it knows")]
    name: str
    at: Time | None


class SuggestedToDisable(Struct, frozen=True, kw_only=True):
    """Tests that should be disabled, by one issue"""

    step: Annotated[
        str, one_of(STEPS), Meta(description="what to do with the issue; none: no issue can name the test")
    ]
    title: str
    tests: list[str]
    platforms: Annotated[list[str], Meta(description="where, or those to add; none: everywhere")]
    jobs: Annotated[int, Meta(description="in which one of them was flaky within six hours")]
    issue: Annotated[int | None, Meta(description="the one to open again or to add to")]
    url: Annotated[
        str | None, Meta(description="of that issue, or of GitHub's form for a new one, filled in")
    ]
    seen_in: list[SeenIn]


class SuggestedToClose(Struct, frozen=True, kw_only=True):
    """An issue whose tests pass again"""

    issue: int
    title: str
    url: str | None
    passed: Annotated[int, Meta(description="reruns of a week, none of which failed")]


class Suggestions(Answer, frozen=True, kw_only=True):
    """What the evidence of trusted jobs suggests; the bot itself opens and closes no issue"""

    disable: list[SuggestedToDisable]
    close: list[SuggestedToClose]


@dataclass(frozen=True, kw_only=True)
class FoundSuggestions:
    """The suggestions for a repository."""

    repo: str
    disable: list[tuple[Disable, str]]  # with the address of the form for a new issue
    close: list[Close]


async def read_suggestions(asked: Asked) -> FoundSuggestions:
    """Read the suggestions for a repository; raises Rejected 404, also where they are off."""
    tx, options = asked.tx, asked.settings.of(DisabledSettings)
    if options.ci_disable != "suggest":
        raise NOT_FOUND.because("suggestions are off: set CI_DISABLE=suggest to see some")
    repository = (await reading.find_branch(tx, asked.hidden, asked[REPO], "")).repository
    identifier, now = repository["repository_id"], tx.now
    issues = await disabled_rows.disabling(tx, identifier)
    devices = await disabled_rows.devices(tx)
    flaky = await suggestion_rows.flaky_samples(tx, identifier, since=now - WEEK, devices=devices)
    places = await rows.places_of_tests(tx, {one.test_id for one in flaky})
    again = await rerun_rows.reruns_since(tx, identifier, now - WEEK)
    lately = {one.test_id for one in flaky if one.at >= now - suggestions.WINDOW}
    names = [slow.test_key(one.name, one.suite) for test_id, one in places.items() if test_id in lately]
    titles = {suggestions.title_of(name) for name in names}
    closed = await suggestion_rows.closed_issues(tx, identifier, titles, options.ci_disable_authors)
    where: defaultdict[str, set[str]] = defaultdict(set)
    for one in flaky:
        if place := places.get(one.test_id):
            where[slow.test_key(place.name, place.suite)] |= {*one.platforms, ""}
    listed = lists.disabled_tests(issues)
    disable = suggestions.to_disable(flaky, places, listed, now, closed)
    repo, web_address = repository["full_name"], web_url(asked.settings.github_api_url)
    return FoundSuggestions(
        repo=repo,
        disable=[(one, suggestions.form_link(web_address, repo, one)) for one in disable[:SENT]],
        close=suggestions.to_close(issues, again, where, now),
    )


def show(found: FoundSuggestions) -> dict[str, Any]:
    """Return what the page shows."""
    return {
        "repo": found.repo,
        "disable": found.disable[:SHOWN],
        "more": max(len(found.disable) - SHOWN, 0),
        "close": found.close[:SHOWN],
        "more_to_close": max(len(found.close) - SHOWN, 0),
        "rules": suggestions,
    }


def answer(found: FoundSuggestions) -> Suggestions:
    """Return the JSON of the suggestions."""
    return Suggestions(
        disable=[_suggested(one, form) for one, form in found.disable[:SENT]],
        close=[
            SuggestedToClose(
                issue=one.issue["number"], title=one.issue["title"], url=one.issue["url"], passed=one.green
            )
            for one in found.close[:SENT]
        ],
    )


def _suggested(one: Disable, form: str) -> SuggestedToDisable:
    step, url = ("open", form) if one.nameable else ("none", None)
    if one.issue:
        step, url = ("reopen" if one.issue.closed else "add_platforms"), one.issue.url
    return SuggestedToDisable(
        step=step,
        title=one.title,
        tests=list(one.tests),
        platforms=list(one.platforms),
        jobs=one.jobs,
        issue=int(one.issue.number) if one.issue else None,
        url=url or None,
        seen_in=[
            SeenIn(job_id=each.job_id if each.job_id > 0 else None, name=each.name, at=time(each.at))
            for each in one.samples
        ],
    )


VIEW = View(
    read=read_suggestions,
    parameters=(REPO,),
    page=Page(path=f"{REPOSITORY}/disabled/suggestions", template="suggestions.html", values=show),
    json=Json(
        path="/api/ci/disabled/{owner}/{repo}/suggestions",
        answer=answer,
        content=Suggestions,
        name="disableSuggestions",
        summary="Tests to disable, and issues to close",
        topic=op.CI,
        description="404 unless `CI_DISABLE=suggest`.",
        refusals=(NOT_FOUND, UNKNOWN_REPOSITORY),
        link=lambda found: {"repo": found.repo},
    ),
)
