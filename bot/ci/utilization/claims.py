"""Does a log fit the job it came with, and which of two logs is the job's?"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bot.ci.utilization.usage_log import UsageLog

AROUND = 3600  # seconds before and after the run in which a record may still belong to it


def flags(
    log: UsageLog, *, run_id: int, job_id: int, started_at: int | None, completed_at: int | None
) -> list[str]:
    """Return what of a log does not fit its run; times in seconds. The run's own ids are used all the same."""
    found = []
    said = log.metadata
    claimed = ((said.workflow_id, str(run_id)), (said.job_id, str(job_id))) if said else ()
    if any(theirs and theirs != ours for theirs, ours in claimed):
        found.append("foreign_ids")
    early = started_at is not None and log.timestamps and log.timestamps[0] < started_at - AROUND
    late = completed_at is not None and log.timestamps and log.timestamps[-1] > completed_at + AROUND
    if early or late:
        found.append("outside_run")
    return found


def preferred(logs: Iterable[tuple[int, UsageLog]]) -> tuple[int, UsageLog]:
    """Return the one of several logs of a job to be used, each given with its artifact's id: the fuller, the later."""
    return max(logs, key=lambda one: (one[1].records if one[1].status == "ok" else 0, one[0]))
