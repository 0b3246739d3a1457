"""Does a log fit the job it came with, and which of two logs is the job's?"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bot.ci.utilization.parsed import ParsedUsage
    from bot.ci.utilization.rows import JobRow

AROUND = 3600  # seconds before and after the run in which a record may still belong to it
SEVERAL = "several_logs"


def flags(
    log: ParsedUsage, *, run_id: str, job_id: str, started_at: int | None, completed_at: int | None
) -> list[str]:
    """Return what of a log does not fit its run; times in seconds. The run's own ids are used all the same.

    An id that is not known is empty.
    """
    found = []
    claimed = ((log.workflow_id, run_id), (log.job_id, job_id))
    if any(theirs and ours and theirs != ours for theirs, ours in claimed):
        found.append("foreign_ids")
    if log.first_at is not None:
        early = started_at is not None and log.first_at < started_at - AROUND
        late = completed_at is not None and log.end_at > completed_at + AROUND
        if early or late:
            found.append("outside_run")
    return found


def preferred(before: JobRow | None, found: JobRow) -> JobRow:
    """Return the log of a job that is used: the one with more valid records, then the later artifact.

    That there are several is a flag of the one that is used. The same file twice is one.
    """
    if before is None:
        return found
    if before["source_id"] != found["source_id"]:
        if before["digest"] and before["digest"] == found["digest"]:
            return before
        chosen = max(before, found, key=_rank)
        return {**chosen, "flags": sorted({*chosen["flags"], SEVERAL})}
    again: JobRow = {**found, "received_at": before["received_at"]}
    if SEVERAL in before["flags"]:
        again["flags"] = sorted({*found["flags"], SEVERAL})
    return again


def _rank(row: JobRow) -> tuple[int, bool, int]:
    """Return how good a log is; of two uploads, whose ids count down, the later one."""
    return (
        row["records"] if row["status"] == "ok" else 0,
        row["source_id"] > 0,
        abs(row["source_id"]),
    )
