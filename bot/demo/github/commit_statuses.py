"""Commit statuses: how CIs without check runs tell of their jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bot.demo.github.api.call import Route, json_response
from bot.demo.github.faults import not_found
from bot.demo.github.models import Event
from bot.demo.github.serializers import repository
from bot.demo.github.times import iso

if TYPE_CHECKING:
    from aiohttp import web

    from bot.demo.github.api.call import ApiCall
    from bot.demo.github.models import Repo
    from bot.demo.github.state import GitHubState

ORDER = (
    "error",
    "failure",
    "pending",
    "success",
)  # the state of a commit is the first that one of its statuses has


@dataclass(frozen=True, kw_only=True)
class CommitStatus:
    """One status of a commit; the newest of a context counts."""

    id: int
    sha: str
    context: str
    state: str
    description: str | None
    target_url: str | None
    at: int


def event(state: GitHubState, repo: Repo, which: CommitStatus) -> Event:
    """Return the event of a new status."""
    body = {
        "id": which.id,
        "sha": which.sha,
        "name": repo.full_name,
        "avatar_url": None,
        "target_url": which.target_url,
        "context": which.context,
        "description": which.description,
        "state": which.state,
        "commit": repository.commit(state, repo, repo.commits[which.sha]),
        "branches": [
            {"name": name, "commit": {"sha": head, "url": ""}, "protected": False}
            for name, head in repo.branches.items()
            if head == which.sha
        ],
        "created_at": iso(which.at),
        "updated_at": iso(which.at),
    }
    return Event(name="status", action=None, repo=repo, sender=repo.owner, body=body)


async def combined(call: ApiCall) -> web.Response:
    """Show the newest status of each context of a commit."""
    sha = call.path_text("ref")
    if sha not in call.repo.commits:
        raise not_found()
    newest = {one.context: one for one in call.repo.statuses if one.sha == sha}
    states = {one.state for one in newest.values()}
    worst = next((state for state in ORDER if state in states), "pending")
    api = repository.api_of(call.state, call.repo)
    return json_response(
        {
            "state": "failure" if worst == "error" else worst,
            "statuses": [_status(api, one) for one in newest.values()],
            "sha": sha,
            "total_count": len(newest),
            "repository": repository.repository(call.state, call.repo),
            "commit_url": f"{api}/commits/{sha}",
            "url": f"{api}/commits/{sha}/status",
        }
    )


def _status(api: str, one: CommitStatus) -> dict[str, Any]:
    return {
        "url": f"{api}/statuses/{one.sha}",
        "avatar_url": None,
        "id": one.id,
        "node_id": repository.node_id("StatusContext", one.id),
        "state": one.state,
        "description": one.description,
        "target_url": one.target_url,
        "context": one.context,
        "created_at": iso(one.at),
        "updated_at": iso(one.at),
    }


ROUTES = (
    Route(
        method="GET",
        path="/repos/{owner}/{repo}/commits/{ref:.+}/status",
        handler=combined,
        needs=("statuses:read",),
    ),
)
