"""GET /red and its JSON: what is broken now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct

from bot.oot.statistics.daily_sums import DAY_SUMS
from bot.pages.backends.interface import NOTHING_TO_SHOW, ONCALL, RESULTS
from bot.pages.grid.broken_now import BrokenFilter, BrokenNow, read_broken
from bot.web import parameters as declare
from bot.web.answers import Answer, Time, time
from bot.web.view import Json, Page, View

if TYPE_CHECKING:
    from bot.jobs.branch_standing import StandingBranch
    from bot.pages.grid.broken_now import BrokenJob, LongQueue, RedBackend, SilentBackend
    from bot.web.parameters import Query

REFRESH = 60  # seconds
REPO = declare.another_repository("repo", "only broken jobs and runners of this upstream")


class RedBranch(Struct, frozen=True, kw_only=True):
    """How a branch stands; see the grid's `standing`"""

    repo: str
    branch: str
    state: str
    since: str | None
    since_at: Time | None
    last_good: str | None
    blocking: int
    watched: int


class RedJob(Struct, frozen=True, kw_only=True):
    """A job that is broken on a branch"""

    repo: str
    branch: str
    name: str
    backend: Annotated[str | None, Meta(description="what the backend whose job it is goes by")]
    blocks: Annotated[bool, Meta(description="whether merging waits for it")]
    first_bad: str
    since: Annotated[Time, Meta(description="when the first bad commit was made")]
    last_good: str | None
    failures: int
    line: Annotated[str | None, Meta(description="why it failed last")]
    oncalls: list[str]
    notes: Annotated[list[str], Meta(description="such as the search for the culprit")]
    url: str


class RedBackendAnswer(Struct, frozen=True, kw_only=True):
    """A backend that is red in the last 24 hours"""

    repo: str
    level: int
    device: str | None
    new: Annotated[bool, Meta(description="it was not red in the week before")]
    pass_rate: float | None
    failing: Annotated[int, Meta(description="runs in a row that failed, 0 where the newest passed")]
    since: Annotated[Time | None, Meta(description="of the first of them")]
    first_bad: str | None
    last_good: Annotated[str | None, Meta(description="the commit of the newest run that passed")]
    last_good_at: Time | None
    oncalls: list[str]
    url: str


class SilentAnswer(Struct, frozen=True, kw_only=True):
    """A backend that has reported, and not for 36 hours"""

    repo: str
    level: int
    device: str | None
    since: Annotated[Time, Meta(description="its last report")]
    waiting: Annotated[int, Meta(description="open pull requests that wait for it")]
    oncalls: list[str]
    url: str


class QueueAnswer(Struct, frozen=True, kw_only=True):
    """A queue in which something waits longer than nine of ten did in the last week"""

    name: str
    repo: Annotated[str, Meta(description="whose runners, or the backend")]
    of_backend: bool
    waiting: int
    since: Annotated[Time, Meta(description="of what waits longest")]
    usual: Annotated[float, Meta(description="seconds within which nine of ten began")]
    oncalls: list[str]
    url: str


class RedAnswer(Answer, frozen=True, kw_only=True):
    """What is red now; what blocks comes first"""

    count: int
    blocks: Annotated[bool, Meta(description="whether any of it keeps pull requests from being merged")]
    branches: list[RedBranch]
    broken: list[RedJob]
    red: list[RedBackendAnswer]
    silent: list[SilentAnswer]
    queues: list[QueueAnswer]


@dataclass(frozen=True, kw_only=True)
class BrokenOnPage:
    """What is broken now, as far as the request selects it."""

    now: BrokenNow
    oncall: str
    repo: str


async def read_broken_now(query: Query) -> BrokenOnPage:
    """Read what is broken now."""
    wanted = BrokenFilter(hidden=query.hidden, oncall=query[ONCALL], repo=query[REPO])
    red = await read_broken(query.tx, query.settings, query.request.app[DAY_SUMS], wanted)
    return BrokenOnPage(now=red, oncall=query[ONCALL], repo=query[REPO])


def show_broken(page: BrokenOnPage) -> dict[str, Any]:
    """Return what the page shows."""
    red = page.now
    return {
        "red": red,
        "oncall": page.oncall,
        "only_repo": page.repo,
        "tone": "bad" if red.blocks else "warn" if red.count else "good",
        "people": sorted(_people(red), key=str.casefold),
    }


def answer_broken(page: BrokenOnPage) -> RedAnswer:
    """Return what is broken as JSON."""
    red = page.now
    return RedAnswer(
        count=red.count,
        blocks=red.blocks,
        branches=[_branch(branch) for branch in red.branches],
        broken=[_job(job) for job in red.broken],
        red=[_backend(backend) for backend in red.red],
        silent=[_silent(backend) for backend in red.silent],
        queues=[_queue(queue) for queue in red.queues],
    )


VIEW = View(
    read=read_broken_now,
    of_upstream=True,
    parameters=(ONCALL, REPO),
    page=Page(path="/red", template="red.html", values=show_broken, refresh=REFRESH),
    json=Json(
        path="/api/red",
        answer=answer_broken,
        content=RedAnswer,
        name="redNow",
        summary="What is red now, across upstreams and backends",
        topic=RESULTS,
        refusals=(NOTHING_TO_SHOW,),
        link=lambda page: {"oncall": page.oncall, "repo": page.repo},
    ),
)
VIEWS = (VIEW,)


def _people(red: BrokenNow) -> set[str]:
    """Return everybody who is on call for any of it."""
    oncalls = [job.oncalls for job in red.broken]
    oncalls += [queue.oncalls for queue in red.queues]
    oncalls += [backend.health.oncalls for backend in red.red]
    oncalls += [backend.health.oncalls for backend in red.silent]
    return {name for names in oncalls for name in names}


def _branch(branch: StandingBranch) -> RedBranch:
    standing = branch.standing
    return RedBranch(
        repo=branch.branch.repository["full_name"],
        branch=branch.branch.name,
        state=standing.state,
        since=standing.since["sha"] if standing.since else None,
        since_at=time(standing.since["at"]) if standing.since else None,
        last_good=standing.last_good["sha"] if standing.last_good else None,
        blocking=len(standing.blocking),
        watched=len(standing.watched),
    )


def _job(job: BrokenJob) -> RedJob:
    trouble = job.trouble
    return RedJob(
        repo=job.repo,
        branch=job.branch,
        name=trouble.name,
        backend=trouble.backend,
        blocks=trouble.blocks,
        first_bad=trouble.first_bad["sha"],
        since=time(trouble.first_bad["at"]) or "",
        last_good=trouble.last_good["sha"] if trouble.last_good else None,
        failures=trouble.failures,
        line=trouble.line,
        oncalls=list(job.oncalls),
        notes=[note.text for note in job.notes],
        url=job.href,
    )


def _backend(backend: RedBackend) -> RedBackendAnswer:
    streak = backend.streak
    bad, good = streak.first_bad, streak.last_good
    return RedBackendAnswer(
        repo=backend.health.repo,
        level=backend.health.level,
        device=backend.health.device,
        new=backend.new,
        pass_rate=backend.health.stats.pass_rate,
        failing=streak.failing,
        since=time(streak.since),
        first_bad=bad.sha if bad else None,
        last_good=good.sha if good else None,
        last_good_at=time(good.at) if good else None,
        oncalls=list(backend.health.oncalls),
        url=backend.href,
    )


def _silent(backend: SilentBackend) -> SilentAnswer:
    return SilentAnswer(
        repo=backend.health.repo,
        level=backend.health.level,
        device=backend.health.device,
        since=time(backend.since) or "",
        waiting=backend.health.waiting,
        oncalls=list(backend.health.oncalls),
        url=backend.href,
    )


def _queue(queue: LongQueue) -> QueueAnswer:
    return QueueAnswer(
        name=queue.name,
        repo=queue.repo,
        of_backend=queue.of_backend,
        waiting=queue.waiting,
        since=time(queue.since) or "",
        usual=queue.usual,
        oncalls=list(queue.oncalls),
        url=queue.href,
    )
