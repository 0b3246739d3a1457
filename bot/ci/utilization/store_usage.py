"""The receiver of parsed usage logs: which job each is of, and how it becomes rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict, cast

from bot.ci.collect.receiving import MIB, Receiver
from bot.ci.utilization import log_attribution, log_choice
from bot.ci.utilization.store import count_days, job_rows
from bot.ci.utilization.tables import LogRow

if TYPE_CHECKING:
    from bot.ci.collect.receiving import Fetched
    from bot.ci.utilization.log_attribution import LogOwner
    from bot.ci.utilization.tables import JobRow
    from bot.context import Context
    from bot.db.transaction import Transaction


class ParsedLog(TypedDict):
    """What the parser child says of a usage log: columns of its row, and what only the log itself claims."""

    row: LogRow
    claims: tuple[str, str]  # the ids of run and job that the log names, empty where it names none
    first_at: int | None  # seconds; the first of the records


async def store_log(
    tx: Transaction, _context: Context, fetched: Fetched, log: ParsedLog, blob: str | None
) -> None:
    """Write what a log comes to, and have its day counted again."""
    owner = await log_attribution.find_owner(tx, fetched, log["claims"][1])
    before = await job_rows.lock_job(tx, owner.key)
    after = log_choice.prefer(before, _row(fetched, log, owner, blob, now=tx.now))
    if after != before:
        await job_rows.put_job(tx, after)
        count_days.request_days(tx, before, after)


def _row(fetched: Fetched, log: ParsedLog, owner: LogOwner, blob: str | None, *, now: int) -> JobRow:
    odd = log_choice.find_contradictions(log, owner)
    as_read = [list(one) for one in log["row"]["segments"]]  # JSON has no tuples: rows are compared
    row: JobRow = {
        **owner.key,
        **owner.names,
        "trusted": fetched.trusted,
        "source_id": fetched.object_id,
        **log["row"],
        "flags": sorted({*log["row"]["flags"], *odd}),
        "segments": cast("list[tuple[str, int, int]]", as_read),
        "machine_s": 0,
        "day": now // log_attribution.DAY,
        "blob": blob,
        "received_at": now,
    }
    return log_attribution.with_owner(row, owner)


RECEIVER = Receiver(
    store=store_log,
    answer=ParsedLog,
    most_written=64 * MIB,
    members=("*usage_log.txt",),
    blob_prefix="util",
)
