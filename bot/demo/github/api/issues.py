"""Endpoints of issues, all to read: one, and the search over a repository's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bot.demo.github import auth
from bot.demo.github.api.call import ApiCall, Route, json_response, paginate
from bot.demo.github.faults import not_found, validation_failed
from bot.demo.github.serializers import pull as serializers

if TYPE_CHECKING:
    from aiohttp import web

    from bot.demo.github.models import Issue, Repo

MOST_FOUND = 1_000  # results of one search that can be read


async def get(call: ApiCall) -> web.Response:
    """Show one issue; a pull request is one, too."""
    number = call.path_number("number")
    found = call.repo.issues.get(number) or call.repo.pulls.get(number)
    if found is None:
        raise not_found()
    return json_response(serializers.any_issue(call.state, found))


async def search(call: ApiCall) -> web.Response:
    """Search the issues of a repository: only the qualifiers repo, is:issue, is:open and words of the title."""
    words = call.query("q").split()
    repo = _repo(call, words)
    title = [word.strip('"').lower() for word in words if ":" not in word]
    rows = sorted(
        repo.issues.values(), key=lambda each: each.created_at, reverse=call.query("order") != "asc"
    )
    if "is:open" in words:
        rows = [each for each in rows if each.state == "open"]
    rows = [each for each in rows if set(title) <= _words(each)]
    page, headers = paginate(call, rows[:MOST_FOUND])
    items = [serializers.plain_issue(call.state, each) | {"score": 1.0} for each in page]
    body = {"total_count": len(rows), "incomplete_results": False, "search_type": "lexical", "items": items}
    return json_response(body, headers=headers)


def _words(issue: Issue) -> set[str]:
    return set(re.findall(r"\w+", issue.title.lower()))


def _repo(call: ApiCall, words: list[str]) -> Repo:
    """Return the repository searched; GitHub answers 422 where the caller may not see it."""
    named = next((word.removeprefix("repo:") for word in words if word.startswith("repo:")), "")
    repo = call.state.repos.get(named.lower())
    if repo is None or call.token is None or not auth.covers(call.token, repo):
        problem = (
            "The listed users and repositories cannot be searched either because the resources do not exist"
        )
        raise validation_failed(problem, resource="Search", field="q")
    return repo


ROUTES = (
    Route(method="GET", path="/repos/{owner}/{repo}/issues/{number}", handler=get, needs=("issues:read",)),
    Route(method="GET", path="/search/issues", handler=search, access="token"),
)
