"""GET /{owner}/{repo}/reliability and its JSON: how often the jobs of a branch fail, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.ci.trunk.trunk_numbers import JobReliability
from bot.ci.trunk.views.branch_days import PARAMETERS, BranchDays, read_days
from bot.web import operations as op
from bot.web.answers import Answer
from bot.web.refusals import NOT_FOUND, UNKNOWN_REPOSITORY
from bot.web.view import Json, Page, View
from bot.web.view_parameters import REPOSITORY

if TYPE_CHECKING:
    from bot.web.asked import Asked

JOBS_MOST = 500


class Reliability(Answer, frozen=True, kw_only=True):
    """The jobs of a branch, the least reliable first"""

    branch: str
    jobs: list[JobReliability]


async def read_reliability(asked: Asked) -> BranchDays:
    """Read the days of a branch with its jobs."""
    return await read_days(asked, columns=True)


def show(found: BranchDays) -> dict[str, Any]:
    """Return what the page shows."""
    jobs = found.jobs()
    return found.names() | {"jobs": jobs[:JOBS_MOST], "more": max(0, len(jobs) - JOBS_MOST)}


def answer(found: BranchDays) -> Reliability:
    """Return the reliability of a branch's jobs."""
    return Reliability(branch=found.branch.name, jobs=found.jobs()[:JOBS_MOST])


VIEW = View(
    read=read_reliability,
    parameters=PARAMETERS,
    page=Page(path=f"{REPOSITORY}/reliability", template="trunk_reliability.html", values=show),
    json=Json(
        path="/api/ci/reliability/{owner}/{repo}",
        answer=answer,
        content=Reliability,
        name="reliability",
        summary="How often the jobs of a branch fail",
        topic=op.CI,
        refusals=(NOT_FOUND, UNKNOWN_REPOSITORY),
        link=BranchDays.link,
    ),
)
