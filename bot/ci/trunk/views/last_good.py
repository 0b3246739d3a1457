"""GET /api/ci/{owner}/{repo}/last-good: the newest commit on which all selected jobs passed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from bot.ci.trunk import last_good, name_patterns, reading
from bot.ci.trunk.views.grid import BRANCH_MOST
from bot.web import operations as op
from bot.web import view_parameters as declare
from bot.web.answers import Answer, Time, time
from bot.web.refusals import INVALID_PARAMETER, NOT_FOUND, UNKNOWN_REPOSITORY, Refused
from bot.web.view import Json, View
from bot.web.view_parameters import REPO

if TYPE_CHECKING:
    from bot.web.asked import Asked, Parameter


class LastGood(Answer, frozen=True, kw_only=True):
    """The newest commit on which every selected job passed"""

    sha: str
    at: Time
    columns: Annotated[int, Meta(description="how many jobs were selected")]


def _pattern(jobs: str) -> str:
    try:
        if jobs != last_good.BLOCKING:
            name_patterns.compile_typed(jobs)
    except ValueError as error:
        raise INVALID_PARAMETER.because(f"jobs: {error}") from None
    return jobs


def _names(text: str) -> tuple[str, ...]:
    backends = tuple(name.strip() for name in text.split(",") if name.strip())
    if len(backends) > last_good.BACKENDS_MOST:
        raise INVALID_PARAMETER.because(f"backends: at most {last_good.BACKENDS_MOST}")
    return backends


BRANCH = declare.text("branch", "name of the branch; without it the default branch", most=BRANCH_MOST)
JOBS = declare.parsed(
    "jobs",
    op.Text,
    "jobs that have to pass: a pattern (RE2), or `blocking`; "
    "where none is said to block, those that ran on at least half of the newest 50 commits",
    parse=_pattern,
    default=last_good.BLOCKING,
    tell_default=True,
)
BACKENDS: Parameter[tuple[str, ...]] = declare.parsed(
    "backends",
    op.Text,
    "backends that have to pass as well, owner/repo; commas between",
    parse=_names,
    default=(),
)


async def read_last_good(asked: Asked) -> last_good.LastGood:
    """Find the last good commit of a branch."""
    branch = await reading.find_branch(asked.tx, asked.hidden, asked[REPO], asked[BRANCH])
    return await last_good.find_last_good(
        asked.tx, asked.settings, branch, jobs=asked[JOBS], backends=asked[BACKENDS]
    )


def answer(found: last_good.LastGood) -> LastGood:
    """Return the JSON of a good commit."""
    return LastGood(sha=found.commit["sha"], at=time(found.commit["at"]) or "", columns=found.columns)


VIEW = View(
    read=read_last_good,
    parameters=(REPO, BRANCH, JOBS, BACKENDS),
    json=Json(
        path="/api/ci/{owner}/{repo}/last-good",
        answer=answer,
        content=LastGood,
        name="lastGood",
        summary="The newest commit on which all selected jobs passed",
        topic=op.CI,
        refusals=(
            NOT_FOUND,
            UNKNOWN_REPOSITORY,
            Refused(404, "no_good_commit", "no commit among the newest is good; `detail` says why"),
        ),
    ),
)
