"""The signal that people mean by the name of a job or a test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.core import text
from bot.oot.culprits import job_runs, rows_runs
from bot.oot.culprits.refused import Refused
from bot.oot.culprits.signals import NAME_MOST, nearest_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bot.ci.trunk.reading import Branch
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.oot.culprits.history import History
    from bot.oot.culprits.tables import Signal

FAILING_READ = 20  # newest commits with a failure whose tests are looked at


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a signal is looked for."""

    branch: Branch
    backend: str  # empty: upstream's own CI
    label: str  # what people call it

    def signal(self, job: str, *, test: str = "", signature: str = "") -> Signal:
        """Return a signal there."""
        return {
            "repository_id": self.branch.repository["repository_id"],
            "branch": self.branch.name,
            "backend": self.backend,
            "job": job,
            "test": test,
            "signature": signature,
        }


async def find_signal(
    tx: Transaction,
    settings: Settings,
    seen: History,
    place: Place,
    what: str,
    *,
    signature: str,
    of_range: bool,
) -> Signal:
    """Return the job or test of this name; without one, the job that fails. Raises Refused.

    Where commits are named (`of_range`), a job need not fail on the newest ones.
    """
    what = " ".join(what.split())
    if len(what) > NAME_MOST:
        raise Refused(f"a name has at most {NAME_MOST} characters")
    if not seen.jobs:
        raise Refused(f"no job of {place.label} has a result on {place.branch.name}")
    if not what:
        return place.signal(_only_failing(seen, place), signature=signature)
    if jobs := _named_jobs(seen.jobs, what):
        if len(jobs) > 1:
            raise Refused(f"{place.label} has several jobs called {what}: {text.listing(sorted(jobs))}")
        return place.signal(jobs[0], signature=signature)
    failing = seen.jobs if of_range else seen.failing_jobs()
    for job in failing:
        signal = place.signal(job, test=what)
        shas = _failing_commits(seen, job)
        runs = await job_runs.read_job_runs(tx, settings, place.branch, signal, shas)
        if any(run.word == "bad" for run in runs):
            return signal
    tests = await _failing_tests(tx, seen, place, failing)
    near = text.listing(nearest_names(what, [*seen.jobs, *tests]))
    raise Refused(
        f"{place.label} has no job called {what}, and no test of that name fails on {place.branch.name}; "
        f"the nearest names are: {near}"
    )


def _only_failing(seen: History, place: Place) -> str:
    failing = seen.broken_jobs() or seen.failing_jobs()
    if not failing:
        raise Refused(f"nothing of {place.label} fails on {place.branch.name} now")
    if len(failing) > 1:
        raise Refused(f"several jobs of {place.label} fail: name one of {text.listing(failing)}")
    return failing[0]


def _named_jobs(jobs: Iterable[str], what: str) -> list[str]:
    """Return the jobs of a name, with or without their workflow's."""
    folded = what.casefold()
    whole = [job for job in jobs if job.casefold() == folded]
    return whole or [job for job in jobs if job.casefold().endswith(f" / {folded}")]


def _failing_commits(seen: History, job: str) -> list[str]:
    cells = zip(seen.grid.lines, seen.column(job), strict=True)
    found = [line.commit["sha"] for line, cell in cells if cell is not None and cell.broken]
    return found[:FAILING_READ]


async def _failing_tests(tx: Transaction, seen: History, place: Place, jobs: Sequence[str]) -> list[str]:
    """Return the tests that a backend reported as failed lately, to suggest them."""
    shas = sorted({sha for job in jobs for sha in _failing_commits(seen, job)})
    if not place.backend or not shas:
        return []
    reported = await rows_runs.reported_jobs(tx, place.branch.names, place.backend, shas)
    failed = await rows_runs.failed_tests(tx, [row["job_key"] for row in reported])
    names = [
        f"{test['classname']}.{test['name']}" if test.get("classname") else str(test.get("name") or "")
        for tests in failed.values()
        for test in tests
    ]
    return list(dict.fromkeys(name for name in names if name))[:NAME_MOST]
