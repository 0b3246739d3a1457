"""What do a backend's rows amount to, counted one by one? What SQL and rollups are held against."""

from __future__ import annotations

from bot.oot.statistics.stats import ENDS, measure_backend, tally_rows


def backend_stats(jobs, dispatches):
    """Return the numbers of one backend from all rows there are of it."""
    return measure_backend(tally_rows(*counted(jobs, dispatches)))


def counted(jobs, dispatches):
    """Return rows that say whether they count, given all rows there are of a backend."""
    dropped = {row["id"] for row in dispatches if row["state"] == "superseded"}
    kept = [row for row in jobs if "refused" not in row["flags"]]
    latest = {id(row) for row in latest_attempts(kept)}
    heard = {row["dispatch_id"] for row in kept}
    said = [
        row
        | {
            "counts": id(row) in latest and row["dispatch_id"] not in dropped,
            "swept": "swept" in row["flags"],
        }
        for row in kept
    ]
    ended = [row | {"counts": row["id"] not in heard} for row in dispatches if row["state"] in ENDS]
    return said, ended


def latest_attempts(jobs):
    """Return of each job of each run only the latest attempt; of one told twice, what the backend told."""
    latest = {}
    for row in jobs:
        name = (row["delivery_id"], row["run_id"], row["workflow_name"], row["job_name"])
        known = latest.get(name)
        if known is None or _precedence(row) > _precedence(known):
            latest[name] = row
    return list(latest.values())


def _precedence(row):
    return row["run_attempt"], row["source"] == "callback"
