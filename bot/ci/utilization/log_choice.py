"""Does a log fit the job it came with, and which of two logs is the job's?"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bot.ci.utilization.log_attribution import LogOwner
    from bot.ci.utilization.store_usage import ParsedLog
    from bot.ci.utilization.tables import JobRow

AROUND = 3600  # seconds before and after the run in which a record may still belong to it
SEVERAL = "several_logs"


def find_contradictions(log: ParsedLog, owner: LogOwner) -> list[str]:
    """Return flags for what of a log does not fit its run; the run's own ids are used all the same."""
    found = []
    if any(
        theirs and ours and theirs != ours for theirs, ours in zip(log["claims"], owner.claims, strict=True)
    ):
        found.append("foreign_ids")
    first, last = log["first_at"], log["row"]["end_at"]
    if first is not None:
        early = owner.started_at is not None and first < owner.started_at // 1000 - AROUND
        late = owner.completed_at is not None and last > owner.completed_at // 1000 + AROUND
        if early or late:
            found.append("outside_run")
    return found


def prefer(before: JobRow | None, found: JobRow) -> JobRow:
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
