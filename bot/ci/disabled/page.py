"""GET /{owner}/{repo}/disabled: what the issues of a repository disable, and which of them change nothing, and why."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bot.ci.disabled import rows, sent_lists
from bot.ci.disabled.lists import LISTS
from bot.ci.trunk import reading
from bot.web import access, parameters
from bot.web.app_keys import CONTEXT
from bot.web.html import page, render
from bot.web.view_parameters import REPOSITORY

if TYPE_CHECKING:
    from aiohttp import web

    from bot.ci.disabled.tables import DisablingRow

TEMPLATES = Path(__file__).parent / "templates"
ADDRESS = f"{REPOSITORY}/disabled"
ENTRIES_SHOWN = 50  # of one issue; the JSON has all


@dataclass(frozen=True, kw_only=True)
class Found:
    """The issues of a repository that are about disabling."""

    repo: str
    made_at: int | None  # None: no lists are made of them
    issues: list[DisablingRow]


async def find(request: web.Request) -> Found:
    """Return the issues of the repository in the path; raises Rejected 404."""
    async with request.app[CONTEXT].store.read() as tx:
        hidden = await access.hidden_from(request, tx)
        repository = (await reading.find_branch(tx, hidden, parameters.repo(request), "")).repository
        return Found(
            repo=repository["full_name"],
            made_at=await sent_lists.made_at(tx, repository["repository_id"], next(iter(LISTS))),
            issues=await rows.disabling(tx, repository["repository_id"]),
        )


@page
async def disabled(request: web.Request) -> web.Response:
    """Show the tests and jobs that CI may skip."""
    found = await find(request)
    effective = [one for one in found.issues if one["listed"]]
    return render(
        request,
        "disabled.html",
        fresh=parameters.of(request),
        repo=found.repo,
        made_at=found.made_at,
        tests=[one for one in effective if one["kind"] == "test"],
        jobs=[one for one in effective if one["kind"] == "job"],
        refused=[one for one in found.issues if not one["listed"]],
        most=ENTRIES_SHOWN,
        lists=[(name, f"/api/ci/{found.repo}/{name}.json") for name in LISTS],
        json_url=f"/api/ci/disabled/{found.repo}",
    )
