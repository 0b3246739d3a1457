"""Jobs on a commit that ran elsewhere than on GitHub Actions, each at its newest attempt, as the grid knows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.ci.trunk import same_names, shown_twice
from bot.ci.trunk.cells import CONCLUSIONS, STATES
from bot.ci.trunk.store import rows
from bot.ingest import watched
from bot.web.jobs_elsewhere import JobElsewhere

if TYPE_CHECKING:
    from bot.ci.trunk.tables import CellRow, ColumnRow
    from bot.db.transaction import Transaction

MOST = 2_000  # of a commit


async def find_jobs_elsewhere(tx: Transaction, repo: str, sha: str) -> list[JobElsewhere]:
    """Return the jobs of other CIs on a commit; a commit status that shows a job which is known is none."""
    found = []
    for identifier in sorted(await watched.ids(tx, repo)):
        cells = await rows.cells_elsewhere(tx, identifier, sha, limit=MOST)
        if not cells:
            continue
        columns = await rows.columns(tx, identifier, {row["column_id"] for row in cells})
        if contexts := shown_twice.contexts_of(columns.values()):
            columns |= await rows.columns_shown_as(tx, identifier, contexts)
        present = await rows.columns_on(tx, identifier, sha)
        statuses = shown_twice.find_statuses(columns)
        covered = {
            key
            for key in statuses.all
            if statuses.alone.get(key) in present or present & statuses.several.get(key, frozenset())
        }
        newest: dict[tuple[int, int, int], CellRow] = {}
        for column, row, twin in same_names.place_jobs(cells, same_names.describe_runs([]), shards=False):
            place = (column, row["shard"], twin)
            if column not in covered and (place not in newest or _order(row) > _order(newest[place])):
                newest[place] = row
        found += [_job(row, columns[row["column_id"]]) for row in newest.values()]
    return sorted(found, key=lambda one: (one.workflow, one.name, one.id))


def _order(row: CellRow) -> tuple[int, int]:
    return row["attempt"], row["queued_at"] or 0


def _job(row: CellRow, column: ColumnRow) -> JobElsewhere:
    shard = f" ({row['shard']}/{row['shards']})" if row["shards"] else ""
    return JobElsewhere(
        id=row["job_id"],
        workflow=column["workflow"],
        name=f"{column['job']}{shard}",
        status=STATES[row["state"]],
        conclusion=CONCLUSIONS[row["conclusion"]] or None,
        attempt=row["attempt"],
        queued_at=row["queued_at"],
        started_at=row["started_at"],
        completed_at=row["completed_at"],
        url=row["url"],
    )
