"""What is known about some dispatches? Their reports, the re-runs asked for, and GitHub's own word on the runs."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from bot.domain import verdict
from bot.store import jobs, reruns

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from bot.domain.verdict import Facts
    from bot.store import Transaction

Row = dict[str, Any]


async def facts_of(
    tx: Transaction, rows: Sequence[Row], *, tests_of: Collection[str] = ()
) -> dict[str, Facts]:
    """Return the facts of each dispatch by its id, with failed tests and environment of some."""
    ids = [row["id"] for row in rows]
    reported = await jobs.of_dispatches(tx, ids, tests_of=tests_of)
    asked_again = await reruns.of_dispatches(tx, ids)
    backends = {row["id"]: row["backend_key"] for row in rows}
    runs = {(backends[row["dispatch_id"]], row["run_id"]) for row in reported}
    words = await jobs.words_of_github(tx, runs)
    jobs_of, reruns_of = _by(reported, "dispatch_id"), _by(asked_again, "dispatch_id")
    words_of = _by(words, "backend_key")
    return {
        row["id"]: verdict.Facts(
            dispatch=row,
            jobs=jobs_of[row["id"]],
            reruns=reruns_of[row["id"]],
            words={(word["run_id"], word["run_attempt"]): word for word in words_of[row["backend_key"]]},
        )
        for row in rows
    }


def _by(rows: Sequence[Row], name: str) -> defaultdict[str, list[Row]]:
    found = defaultdict(list)
    for row in rows:
        found[row[name]].append(row)
    return found
