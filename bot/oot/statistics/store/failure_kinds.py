"""What kind of failure a job's failure is, where its log says: the pass rate without infrastructure rests on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.oot.results.tables import oot_workflow_job
from bot.oot.statistics.days import DAY
from bot.oot.statistics.store import rollup
from bot.oot.statistics.tables import oot_failure_kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bot.db.transaction import Transaction

JOB, KIND = oot_workflow_job.c, oot_failure_kind.c


async def store(tx: Transaction, kinds: Mapping[str, str | None]) -> None:
    """Store the kind of some jobs' failures by job key, None where no log says; days that change are recounted."""
    keys = sorted(kinds)
    known = {
        row.job_key: row.kind
        for row in await tx.run(sa.select(KIND.job_key, KIND.kind).where(KIND.job_key.in_(keys)))
    }
    changed = [key for key in keys if known.get(key) != kinds[key]]
    if not changed:
        return
    await tx.run(sa.delete(oot_failure_kind).where(KIND.job_key.in_(changed)))
    if rows := [{"job_key": key, "kind": kinds[key]} for key in changed if kinds[key]]:
        await tx.run(sa.insert(oot_failure_kind), rows)
    days = await tx.run(sa.select(JOB.received_at, JOB.downstream_repo).where(JOB.job_key.in_(changed)))
    rollup.request(tx, {(row.received_at // DAY, row.downstream_repo.casefold()) for row in days})
