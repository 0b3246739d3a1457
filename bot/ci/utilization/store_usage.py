"""The receiver of parsed usage logs: which job each is of, and how it becomes rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from bot.ci.collect.receiving import MIB, Receiver
from bot.ci.utilization import claims, count_days, origin, rows
from bot.ci.utilization.histogram import Histogram, encoded, packed
from bot.ci.utilization.parsed import METRICS, ParsedUsage
from bot.ci.utilization.tables import MEASURES

if TYPE_CHECKING:
    from bot.ci.collect.receiving import Fetched
    from bot.ci.utilization.origin import Origin
    from bot.ci.utilization.rows import JobRow
    from bot.context import Context
    from bot.db.transaction import Transaction

OOM = 95  # percent of memory
NOTHING = encoded(packed([Histogram.of(())] * len(METRICS)), len(METRICS))


async def store(
    tx: Transaction, _context: Context, fetched: Fetched, log: ParsedUsage, blob: str | None
) -> None:
    """Write what a log comes to, and have its day counted again."""
    if log.status == "absent":
        return
    whose = await origin.find(tx, fetched, log)
    before = await rows.held(tx, whose.key)
    found = _row(fetched, log, whose, blob, now=tx.now)
    after = claims.preferred(before, found)
    if after != before:
        await rows.put(tx, after)
        count_days.request(tx, before, after)


def _row(fetched: Fetched, log: ParsedUsage, whose: Origin, blob: str | None, *, now: int) -> JobRow:
    started, completed = whose.started_at, whose.completed_at
    odd = claims.flags(
        log,
        run_id=whose.claims[0],
        job_id=whose.claims[1],
        started_at=None if started is None else started // 1000,
        completed_at=None if completed is None else completed // 1000,
    )
    measures: dict[str, Any] = {}
    for metric, name in zip(METRICS, MEASURES, strict=True):
        one = log.measures.get(metric)
        measures |= {f"{name}_{part}": getattr(one, part, None) for part in ("avg", "p90", "max")}
    memory = log.measures.get("memory")
    repository_id, run_id, attempt, job_id = whose.key
    row: Any = {
        "repository_id": repository_id,
        "run_id": run_id,
        "run_attempt": attempt,
        "job_id": job_id,
        **origin.columns(whose, observed_s=log.observed_s, day=now // origin.DAY),
        "trusted": fetched.trusted,
        "source_id": fetched.object_id,
        "digest": log.digest,
        "flags": sorted({*log.flags, *odd}),
        **{
            name: getattr(log, name)
            for name in (
                "status", "reason", "collect_interval", "model_version", "gpu_count", "cpu_count", "gpu_type",
                "start_at", "end_at", "records", "error_records", "observed_s", "idle_gpu_s", "gpu_s", "no_data_s",
                "saturated_s",
            )
        },
        **measures,
        "oom_risk": memory is not None and memory.max >= OOM,
        "peak": msgspec.to_builtins(log.peak) if log.peak else None,
        "segments": [list(one) for one in log.segments],
        "histograms": log.histograms or NOTHING,
        "totals": log.totals or [0] * len(METRICS),
        "blob": blob,
        "received_at": now,
    }  # fmt: skip
    found: JobRow = row
    return found


RECEIVER = Receiver(
    store=store, answer=ParsedUsage, most_written=64 * MIB, members=("*usage_log.txt",), blob_prefix="util"
)
