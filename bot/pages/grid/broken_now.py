"""What is broken now: jobs of branches, red and silent backends, long queues. The one place that decides it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from bot.jobs.branch_standing import read_standings
from bot.jobs.runner_queues import read_runner_queues
from bot.oot.allowlist import versions as allowlists
from bot.oot.statistics import health
from bot.oot.statistics import health as dispatch_rows
from bot.oot.statistics.stats import grade
from bot.pages.backends import job_rows
from bot.pages.culprits.sections import mark_grid
from bot.web.blocks import GridSubject

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.jobs.branch_reads import Branch
    from bot.jobs.branch_standing import StandingBranch, Trouble
    from bot.oot.statistics.daily_sums import DaySumsCache
    from bot.oot.statistics.health import Health
    from bot.pages.backends.job_rows import Streak
    from bot.web.access import Hidden
    from bot.web.blocks import BlockLine


DAYS_NOW, DAYS_BEFORE = 1, 7  # days
MOST_BACKENDS = 100  # red ones whose newest runs are looked at


@dataclass(frozen=True, kw_only=True)
class BrokenJob:
    """A job that is broken on a branch: its first bad and last good commit are in `trouble`."""

    repo: str
    branch: str
    trouble: Trouble
    oncalls: tuple[str, ...]  # of the backend whose job it is
    notes: tuple[BlockLine, ...]  # of other features, such as the search for the culprit

    @property
    def href(self) -> str:
        """Where it is shown: its column of the grid."""
        name = quote(self.trouble.name[:200], safe="")
        return f"/hud/{self.repo}/{quote(self.branch)}?name={name}"


@dataclass(frozen=True, kw_only=True)
class RedBackend:
    """A backend whose pass rate of the last 24 hours is red, or has turned red."""

    health: Health  # with the numbers of 24 hours
    streak: Streak
    new: bool  # it was not red in the week before

    @property
    def href(self) -> str:
        """Its page."""
        return f"/oot/{self.health.repo}"


@dataclass(frozen=True, kw_only=True)
class SilentBackend:
    """A backend that has reported before, but not in the last 36 hours."""

    health: Health
    since: int  # its last report

    @property
    def href(self) -> str:
        """Its page."""
        return f"/oot/{self.health.repo}"


@dataclass(frozen=True, kw_only=True)
class LongQueue:
    """Jobs or dispatches that have waited longer than nine in ten of the last week."""

    name: str  # of the runners' label, or what the backend goes by
    repo: str  # whose runners, or the backend
    of_backend: bool
    waiting: int
    since: int  # the one that waits longest
    usual: float  # seconds within which nine of ten began
    oncalls: tuple[str, ...]

    @property
    def href(self) -> str:
        """Where what waits is listed."""
        return f"/oot/dispatches?q={quote(self.repo)}" if self.of_backend else f"/{self.repo}/queue"


@dataclass(frozen=True, kw_only=True)
class BrokenNow:
    """Everything that is broken now; what blocks merging comes first."""

    branches: tuple[StandingBranch, ...]  # all that were looked at, red or not
    broken: tuple[BrokenJob, ...]
    red: tuple[RedBackend, ...]
    silent: tuple[SilentBackend, ...]
    queues: tuple[LongQueue, ...]

    @property
    def count(self) -> int:
        """How much there is."""
        return len(self.broken) + len(self.red) + len(self.silent) + len(self.queues)

    @property
    def blocks(self) -> bool:
        """Whether any of it keeps pull requests from being merged."""
        return any(job.trouble.blocks for job in self.broken) or any(
            backend.health.level == 4 for backend in self.red
        )


@dataclass(frozen=True, kw_only=True)
class BrokenFilter:
    """A filter: `oncall` (case folded) selects one person's backends, `repo` one upstream's jobs."""

    hidden: Hidden
    oncall: str = ""
    repo: str = ""

    def has(self, subject: BrokenJob | Health | LongQueue) -> bool:
        """Whether this filter selects it: without a person it selects everything."""
        return not self.oncall or self.oncall in map(str.casefold, subject.oncalls)


async def read_broken(
    tx: Transaction, settings: Settings, cache: DaySumsCache, wanted: BrokenFilter
) -> BrokenNow:
    """Read everything that is broken now."""
    oncalls = await _oncalls(tx)
    branches = await read_standings(tx, settings, wanted.hidden, repo=wanted.repo)
    broken = [job for each in branches for job in await _broken_jobs(tx, settings, each, oncalls)]
    week = await health.read_backends(tx, wanted.hidden, DAYS_BEFORE, cache)
    queues = [*await _runner_queues(tx, settings, branches), *await _backend_queues(tx, wanted, week)]
    return BrokenNow(
        branches=tuple(branches),
        broken=tuple(sorted(filter(wanted.has, broken), key=lambda job: not job.trouble.blocks)),
        red=tuple(await _red_backends(tx, cache, wanted)),
        silent=tuple(
            SilentBackend(health=backend, since=backend.last_report_at)
            for backend in week
            if backend.stale and backend.listed and backend.last_report_at and wanted.has(backend)
        ),
        queues=tuple(filter(wanted.has, queues)),
    )


async def _oncalls(tx: Transaction) -> dict[str, tuple[str, ...]]:
    """Return who is on call, by the backends' names in the grid (case folded); some share a device."""
    allowlist = await allowlists.read_in_force(tx)
    oncalls: dict[str, tuple[str, ...]] = {}
    for entry in allowlist.entries if allowlist else ():
        name = (entry.device or entry.repo).casefold()
        oncalls[name] = (*oncalls.get(name, ()), *entry.oncalls)
    return oncalls


async def _broken_jobs(
    tx: Transaction,
    settings: Settings,
    standing_branch: StandingBranch,
    oncalls: Mapping[str, tuple[str, ...]],
) -> list[BrokenJob]:
    branch, standing = standing_branch
    if not standing.troubles:
        return []
    notes = await mark_grid(tx, _grid_subject(branch, standing.troubles, settings))
    return [
        BrokenJob(
            repo=branch.repository["full_name"],
            branch=branch.name,
            trouble=trouble,
            oncalls=oncalls.get((trouble.backend or "").casefold(), ()),
            notes=notes.columns.get(trouble.name, ()),
        )
        for trouble in standing.troubles
    ]


def _grid_subject(branch: Branch, troubles: Sequence[Trouble], settings: Settings) -> GridSubject:
    return GridSubject(
        repo=branch.repository["full_name"],
        repository_id=branch.repository["repository_id"],
        branch=branch.name,
        shas=tuple({trouble.first_bad["sha"] for trouble in troubles}),
        broken=tuple(trouble.name for trouble in troubles),
        settings=settings,
    )


async def _red_backends(tx: Transaction, cache: DaySumsCache, wanted: BrokenFilter) -> list[RedBackend]:
    red = [
        backend
        for backend in await health.read_backends(tx, wanted.hidden, DAYS_NOW, cache)
        if (backend.turned == "red" or grade(backend.stats.pass_rate) == "red") and wanted.has(backend)
    ]
    return [
        RedBackend(
            health=backend,
            streak=await job_rows.read_streak(tx, backend.repo, hidden=wanted.hidden.names),
            new=backend.turned == "red",
        )
        for backend in red[:MOST_BACKENDS]
    ]


async def _runner_queues(
    tx: Transaction, settings: Settings, branches: Sequence[StandingBranch]
) -> list[LongQueue]:
    of_repo = {branch.repository["full_name"]: branch for branch, _ in branches}
    return [
        LongQueue(
            name=queue.label,
            repo=repo,
            of_backend=False,
            waiting=queue.waiting,
            since=tx.now - round((queue.oldest or 0) * 1000),
            usual=queue.queue_p90_week or 0,
            oncalls=(),
        )
        for repo, branch in of_repo.items()
        for queue in await read_runner_queues(tx, settings, branch)
        if queue.is_long
    ]


async def _backend_queues(tx: Transaction, wanted: BrokenFilter, week: Sequence[Health]) -> list[LongQueue]:
    backends = {backend.repo.casefold(): backend for backend in week}
    waiting: dict[str, list[int]] = {}
    for underway in await dispatch_rows.read_underway(tx, hidden=wanted.hidden.names):
        if health.waits_long(underway, backends.get(underway.row["backend_key"]), tx.now):
            waiting.setdefault(underway.row["backend_key"], []).append(underway.since)
    return [
        LongQueue(
            name=backends[key].label,
            repo=backends[key].repo,
            of_backend=True,
            waiting=len(since),
            since=min(since),
            usual=backends[key].stats.p90_queue_time or 0,
            oncalls=backends[key].oncalls,
        )
        for key, since in waiting.items()
    ]
