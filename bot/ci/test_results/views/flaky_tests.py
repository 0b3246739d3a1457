"""GET /{owner}/{repo}/flaky: flaky tests, and what they cost: jobs of pull requests that they failed, minutes lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bot.ci.test_results.store import evaluate_states, list_rows
from bot.ci.test_results.store.list_rows import Choice
from bot.ci.test_results.store.rows import DAY
from bot.ci.test_results.views import heads
from bot.ci.test_results.views.failing import Named
from bot.web import parameters
from bot.web import view_parameters as declare
from bot.web.view import Page, View
from bot.web.view_parameters import REPO, REPOSITORY

if TYPE_CHECKING:
    from bot.ci.test_results.store.list_rows import FlakyTest
    from bot.ci.test_results.tables import StateRow
    from bot.web.asked import Asked

ROWS = 200
DAYS = declare.days(default=7)


@dataclass(frozen=True, kw_only=True)
class Flaky:
    """A flaky test, and what it cost."""

    test: Named
    cost: FlakyTest
    states: list[StateRow]


@dataclass(frozen=True, kw_only=True)
class Found:
    """The flaky tests of a repository."""

    repo: str
    days: int
    flaky: list[Flaky]
    more: bool
    blocked: int
    lost_seconds: float


async def read_flaky_tests(asked: Asked) -> Found:
    """Read the flaky tests of a repository."""
    tx, days = asked.tx, asked[DAYS]
    choice = Choice(repository_ids=await heads.owners(asked), since=tx.now - days * DAY)
    found = await list_rows.flaky_tests(tx, choice, limit=ROWS + 1)
    states = await evaluate_states.states_of_tests(tx, [row["id"] for row in found])
    flaky = [
        Flaky(
            test=Named(row=row),
            cost=row,
            states=[one for one in states if one["test_id"] == row["id"] and one["state"] != "healthy"],
        )
        for row in found[:ROWS]
    ]
    return Found(
        repo=asked[REPO],
        days=days,
        flaky=flaky,
        more=len(found) > ROWS,
        blocked=sum(row["blocked"] for row in found),
        lost_seconds=sum(row["lost_ms"] for row in found) / 1000,
    )


def show(found: Found) -> dict[str, Any]:
    """Return what the page shows."""
    return {
        "repo": found.repo,
        "days": found.days,
        "windows": parameters.windows(found.days),
        "flaky": found.flaky,
        "more": found.more,
        "blocked": found.blocked,
        "lost": found.lost_seconds,
        "json_url": f"/api/ci/tests/{found.repo}?sort=flaky&days={found.days}",
    }


VIEW = View(
    read=read_flaky_tests,
    parameters=(REPO, DAYS),
    page=Page(path=f"{REPOSITORY}/flaky", template="flaky.html", values=show),
)
