"""How a stored job is shown: when it ran, as its backend says where that can be true, and the page it is on."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from bot.oot.results.tables import JobDurations, JobFlags, JobOutcome, JobReportedSpan, JobSpan

if TYPE_CHECKING:
    from bot.oot.results.tables import JobRow

SKEW = 60_000  # milliseconds that a backend's clock may differ from ours
LONGEST = 35 * 86_400_000  # milliseconds: no report is accepted so long after its dispatch
RUN_PAGE = re.compile(r"(https?://[^/?#]+/[^/?#]+/[^/?#]+/actions/runs/([0-9]+))(?:/attempts/[0-9]+)?/?")


class JobTimed(JobOutcome, JobSpan, JobReportedSpan, JobDurations, JobFlags):
    """What says when it ran, and how long."""


class Times(NamedTuple):
    """When a job began and ended, epoch milliseconds."""

    started_at: int | None
    completed_at: int | None


def can_be_true(reported: Times, *, now: int, dispatched_at: int | None) -> bool:
    """Whether reported times can be: in order, not in the future, not before the dispatch."""
    known = [at for at in reported if at is not None]
    first = dispatched_at - SKEW if dispatched_at is not None else now - LONGEST
    return known == sorted(known) and all(first <= at <= now + SKEW for at in known)


def seconds(job: JobTimed) -> float | None:
    """Return how long a job ran: as measured here, else as its backend says where it alone knows both times."""
    measured = job["execution_time"]
    if measured is not None or job["status"] != "completed" or job["reported_started_at"] is None:
        return measured
    began, ended = times(job)
    return (ended - began) / 1000 if began is not None and ended is not None else None


def times(job: JobTimed) -> Times:
    """Return when a job began and ended: as reported, unless that is odd; otherwise as measured here."""
    measured = Times(job["started_at"], job["completed_at"])
    if "odd_times" in job["flags"]:
        return measured
    began = job["reported_started_at"] or measured.started_at
    ended = measured.completed_at and (job["reported_completed_at"] or measured.completed_at)
    if began is None or ended is None or began <= ended:
        return Times(began, ended)
    return Times(ended, ended) if "no_start" in job["flags"] else measured


def page(job: JobRow) -> str | None:
    """Return the address of a job's own page, where its run is one of GitHub's and the job's id is known."""
    url, identifier = job["workflow_run_url"], job["check_run_id"] or ""
    run = RUN_PAGE.fullmatch(url or "")
    known = run and run[2] == job["run_id"] and identifier.isascii() and identifier.isdigit()
    return f"{run[1]}/job/{identifier}" if run and known else url
