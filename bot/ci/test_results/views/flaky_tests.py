"""GET /{owner}/{repo}/flaky: flaky tests, and what they cost: jobs of pull requests that they failed, minutes lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.ci.test_results.store import evaluate_states, list_rows
from bot.ci.test_results.store.list_rows import Choice
from bot.ci.test_results.views import heads
from bot.ci.test_results.views.failing import Named
from bot.web import parameters
from bot.web.app_keys import CONTEXT
from bot.web.html import page, render

if TYPE_CHECKING:
    from aiohttp import web

    from bot.ci.test_results.store.list_rows import FlakyTest
    from bot.ci.test_results.tables import StateRow

ROWS = 200
DAYS = 7
DAY = 86_400_000  # milliseconds


@dataclass(frozen=True, kw_only=True)
class Flaky:
    """A flaky test, and what it cost."""

    test: Named
    cost: FlakyTest
    states: list[StateRow]


@page
async def flaky(request: web.Request) -> web.Response:
    """Show the flaky tests of a repository."""
    repo = parameters.repo(request)
    days = parameters.whole(request, "days", default=DAYS, most=parameters.MOST_DAYS)
    async with request.app[CONTEXT].store.read() as tx:
        choice = Choice(repository_ids=await heads.owners(request, tx), since=tx.now - days * DAY)
        found = await list_rows.flaky_tests(tx, choice, limit=ROWS + 1)
        states = await evaluate_states.states_of_tests(tx, [row["id"] for row in found])
    return render(
        request,
        "flaky.html",
        fresh=parameters.of(request),
        repo=repo,
        days=days,
        windows=parameters.windows(days),
        flaky=[
            Flaky(
                test=Named.of(row),
                cost=row,
                states=[one for one in states if one["test_id"] == row["id"] and one["state"] != "healthy"],
            )
            for row in found[:ROWS]
        ],
        more=len(found) > ROWS,
        blocked=sum(row["blocked"] for row in found),
        lost=sum(row["lost_ms"] for row in found) / 1000,
        json_url=f"/api/ci/tests/{repo}?sort=flaky&days={days}",
    )
