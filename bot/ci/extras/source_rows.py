"""Whose file is it? The row of a file that a job left, made of GitHub's word and our own dispatches.

The receivers of all extras store it first, then rows of their own under its key: a file that is read again replaces
what it left before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import sqlalchemy as sa

from bot.ci.collect.settings import CollectSettings
from bot.ci.collect.store import runs
from bot.ci.extras.tables import SOURCE_KEY, SourceRow, ci_source
from bot.ci.test_results.store import job_facts, job_parts
from bot.db.rows import select
from bot.ingest.prune import delete_rows

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from bot.ci.collect.receiving import Fetched
    from bot.ci.extras.parse.parsed import Parsed
    from bot.ci.test_results.job_tables import JobKeyRow
    from bot.ci.test_results.store.job_facts import Facts
    from bot.context import Context
    from bot.db.transaction import Transaction

DAY = 86_400_000  # milliseconds
BATCH = 500  # rows of one statement
S = ci_source.c


@dataclass(frozen=True, kw_only=True)
class Stored:
    """A file as it is now, and as it was before it was read again."""

    row: SourceRow
    before: SourceRow | None

    @property
    def trusted(self) -> list[SourceRow]:
        """Those of the two that feed daily sums."""
        return [one for one in (self.before, self.row) if one is not None and one["trusted"]]


async def store_source(
    tx: Transaction, context: Context, fetched: Fetched, parsed: Parsed[Any]
) -> Stored | None:
    """Store what a file is of, and what was left out of it; None where the job has left the same file before."""
    key = await job_parts.find_key(tx, fetched, [])
    part = job_facts.FactSource(object_id=fetched.object_id, name=fetched.name, told=fetched.told)
    facts = await job_facts.read_facts(tx, context.settings, key, [part])
    row = await _row(tx, fetched, key, facts, parsed)
    if await _is_known(tx, row):
        return None
    before = await find_source(tx, row["repository_id"], row["object_id"])
    values = [name for name in row if name not in {"repository_id", "object_id"}]
    await tx.upsert(ci_source, [row], replaced=values)
    tx.note_changed("ci_source", [row])
    return Stored(row=row, before=before)


async def _is_known(tx: Transaction, row: SourceRow) -> bool:
    """Whether a job has left the same file under another id: it was sent twice."""
    same = ("repository_id", "run_id", "run_attempt", "job_id", "kind", "sha256")
    query = sa.select(S.object_id).where(
        *(S[name] == row[name] for name in same),  # type: ignore[literal-required]
        S.object_id != row["object_id"],
    )
    return (await tx.run(query.limit(1))).scalar() is not None


async def find_source(tx: Transaction, repository_id: int, object_id: int) -> SourceRow | None:
    """Return a file that was read."""
    query = select(SourceRow, ci_source).where(S.repository_id == repository_id, S.object_id == object_id)
    return await tx.fetch_first(query)


async def sources_of_run(tx: Transaction, repository_id: int, run_id: int) -> list[SourceRow]:
    """Return the files that the jobs of a run left."""
    query = select(SourceRow, ci_source).where(S.repository_id == repository_id, S.run_id == run_id)
    return await tx.fetch(query.order_by(S.object_id))


async def sources_testing(tx: Transaction, sha: str, kind: str, *, limit: int) -> list[SourceRow]:
    """Return the newest files of a kind of which the jobs tested a commit of upstream."""
    query = select(SourceRow, ci_source).where(S.upstream_sha == sha, S.kind == kind)
    return await tx.fetch(query.order_by(S.at.desc(), S.object_id.desc()).limit(limit))


async def sources_by_key(
    tx: Transaction, keys: Collection[tuple[int, int]]
) -> dict[tuple[int, int], SourceRow]:
    """Return some files by repository and object."""
    if not keys:
        return {}
    query = select(SourceRow, ci_source).where(tx.among([S.repository_id, S.object_id], sorted(keys)))
    return {(row["repository_id"], row["object_id"]): row for row in await tx.fetch(query)}


async def replace_rows(
    tx: Transaction, table: sa.Table, source: SourceRow, rows: Sequence[Mapping[str, Any]]
) -> None:
    """Store the rows of a file in place of those it left before."""
    await tx.run(sa.delete(table).where(*_is_of(table, source)))
    for at in range(0, len(rows), BATCH):
        await tx.run(sa.insert(table), list(rows[at : at + BATCH]))


async def rows_of_source(
    tx: Transaction, table: sa.Table, source: SourceRow, columns: Sequence[str]
) -> list[dict[str, Any]]:
    """Return some columns of the rows of a file, each combination once."""
    query = sa.select(*(table.c[name] for name in columns)).where(*_is_of(table, source))
    return await tx.rows(query.distinct())


def _is_of(table: sa.Table, source: SourceRow) -> list[sa.ColumnElement[bool]]:
    return [table.c[name] == source[name] for name in SOURCE_KEY]  # type: ignore[literal-required]


async def delete_old(context: Context, tables: Mapping[str, sa.Table]) -> dict[str, int]:
    """Delete rows, of tables named for people, of days past the retention of results."""
    kept = context.settings.of(CollectSettings).ci_result_retention_days
    first = context.clock.now() // DAY - kept
    return {name: await delete_rows(context, table, table.c.day < first) for name, table in tables.items()}


async def delete_before(
    context: Context, columns: Mapping[str, sa.Column[Any]], before: int
) -> dict[str, int]:
    """Delete rows whose column has a time, or a day, before another time; of tables named for people."""
    deleted = {}
    for name, column in columns.items():
        first = before if column.info["field"].is_time else before // DAY
        deleted[name] = await delete_rows(context, column.table, column < first)
    return deleted


async def prune(context: Context) -> dict[str, int]:
    """Delete files past the retention of results."""
    return await delete_old(context, {"documents of jobs": ci_source})


async def _row(
    tx: Transaction, fetched: Fetched, key: JobKeyRow, facts: Facts | None, parsed: Parsed[Any]
) -> SourceRow:
    at = (facts and facts.at) or tx.now
    subject = facts.subject if facts else None
    return {
        "repository_id": key["repository_id"],
        "object_id": fetched.object_id,
        "run_id": key["run_id"],
        "run_attempt": key["run_attempt"],
        "job_id": key["job_id"],
        "repo": facts.repo if facts else fetched.repo,
        "workflow": facts.name.workflow if facts else "",
        "job_name": facts.name.name if facts else fetched.name,
        "base_name": facts.name.base_name if facts else fetched.name,
        "config": facts.name.config if facts else "",
        "head_sha": subject["head_sha"] if subject else fetched.head_sha,
        "upstream_sha": subject and subject["upstream_sha"],
        "upstream_repo": subject and subject["upstream_repo"],
        "head_branch": subject and subject["head_branch"],
        "pr_number": subject and subject["pr_number"],
        "trusted": bool(subject and subject["trusted"] and fetched.trusted),
        "at": at,
        "day": at // DAY,
        "seconds": await _seconds(tx, key),
        "kind": fetched.kind,
        "artifact": fetched.name,
        "sha256": fetched.sha256,
        "records": len(parsed.rows),
        "problems": msgspec.to_builtins(parsed.problems),
        "problem_count": parsed.problem_count,
        "received_at": tx.now,
    }


async def _seconds(tx: Transaction, key: JobKeyRow) -> int | None:
    """Return how long a job took, by GitHub's word."""
    job = await runs.find_job(tx, [key["repository_id"]], key["job_id"]) if key["job_id"] > 0 else None
    if job is None or job["started_at"] is None or job["completed_at"] is None:
        return None
    return max(job["completed_at"] - job["started_at"], 0) // 1000
