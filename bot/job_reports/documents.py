"""Small documents of jobs: one declaration makes the receiver of rows, asks for the daily sum, and prunes both.

A kind of document has a parser (`bot.job_reports.parse`), a table whose rows name their file, and one `SmallDocument`;
CONTRIBUTING.md shows a whole one. The row of a file says whose it is, by GitHub's word and our own dispatches; it is
stored first, then the rows of its kind under its key: a file that is read again replaces what it left before.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import sqlalchemy as sa

from bot.db.rows import select
from bot.evidence.collect.receivers import Receiver
from bot.evidence.tests import job_facts, job_parts
from bot.ingest.retention import delete_rows
from bot.job_reports.tables import SOURCE_KEY, SourceRow, ci_source
from bot.jobs import runs
from bot.jobs.settings import CollectSettings
from bot.queue import sums
from bot.queue.sums import DAY, SumPlace

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.evidence.collect.receivers import Fetched
    from bot.evidence.tests.job_facts import Facts
    from bot.evidence.tests.tables import JobKeyRow
    from bot.job_reports.parse.values import Parsed
    from bot.queue.sums import Sum

DAY_MS = 86_400_000  # milliseconds
ROWS_AT_ONCE = 500  # rows of one statement
SOURCE = ci_source.c


@dataclass(frozen=True, kw_only=True)
class StoredSource:
    """A file as it is now, and as it was before it was read again."""

    row: SourceRow
    before: SourceRow | None

    @property
    def trusted(self) -> list[SourceRow]:
        """Those of both that feed daily sums."""
        return [source for source in (self.before, self.row) if source is not None and source["trusted"]]


async def store_source(
    tx: Transaction, context: Context, fetched: Fetched, parsed: Parsed[Any]
) -> StoredSource | None:
    """Store whose a file is, and what was skipped of it; None if the job left the same file before."""
    key = await job_parts.find_key(tx, fetched, [])
    part = job_facts.FactSource(object_id=fetched.object_id, name=fetched.name, told=fetched.told)
    facts = await job_facts.read_facts(tx, context.settings, key, [part])
    row = await _source_row(tx, fetched, key, facts, parsed)
    if await _is_known(tx, row):
        return None
    before = await find_source(tx, row["repository_id"], row["object_id"])
    values = [name for name in row if name not in {"repository_id", "object_id"}]
    await tx.upsert(ci_source, [row], replaced=values)
    tx.note_changed("ci_source", [row])
    return StoredSource(row=row, before=before)


async def find_source(tx: Transaction, repository_id: int, object_id: int) -> SourceRow | None:
    """Return a file that was read."""
    query = select(SourceRow, ci_source).where(
        SOURCE.repository_id == repository_id, SOURCE.object_id == object_id
    )
    return await tx.fetch_first(query)


async def sources_of_run(tx: Transaction, repository_id: int, run_id: int) -> list[SourceRow]:
    """Return the files that the jobs of a run left."""
    query = select(SourceRow, ci_source).where(SOURCE.repository_id == repository_id, SOURCE.run_id == run_id)
    return await tx.fetch(query.order_by(SOURCE.object_id))


async def sources_testing(tx: Transaction, sha: str, kind: str, *, limit: int) -> list[SourceRow]:
    """Return the newest files of a kind whose jobs tested a commit of upstream."""
    query = select(SourceRow, ci_source).where(SOURCE.upstream_sha == sha, SOURCE.kind == kind)
    return await tx.fetch(query.order_by(SOURCE.at.desc(), SOURCE.object_id.desc()).limit(limit))


async def sources_by_key(
    tx: Transaction, keys: Collection[tuple[int, int]]
) -> dict[tuple[int, int], SourceRow]:
    """Return some files by repository and object."""
    if not keys:
        return {}
    query = select(SourceRow, ci_source).where(
        tx.among([SOURCE.repository_id, SOURCE.object_id], sorted(keys))
    )
    return {(row["repository_id"], row["object_id"]): row for row in await tx.fetch(query)}


async def replace_rows(
    tx: Transaction, table: sa.Table, source: SourceRow, rows: Sequence[Mapping[str, Any]]
) -> None:
    """Store the rows of a file in place of those it left before."""
    await tx.run(sa.delete(table).where(*_of_source(table, source)))
    for at in range(0, len(rows), ROWS_AT_ONCE):
        await tx.run(sa.insert(table), list(rows[at : at + ROWS_AT_ONCE]))


async def rows_of_source(
    tx: Transaction, table: sa.Table, source: SourceRow, columns: Sequence[str]
) -> list[dict[str, Any]]:
    """Return distinct values of some columns in the rows of a file."""
    query = sa.select(*(table.c[name] for name in columns)).where(*_of_source(table, source))
    return await tx.rows(query.distinct())


async def delete_old(context: Context, tables: Mapping[str, sa.Table]) -> dict[str, int]:
    """Delete rows of days past the retention of results; `tables` have their names for people."""
    kept = context.settings.of(CollectSettings).ci_result_retention_days
    first = context.clock.now() // DAY_MS - kept
    return {name: await delete_rows(context, table, table.c.day < first) for name, table in tables.items()}


async def delete_before(
    context: Context, columns: Mapping[str, sa.Column[Any]], before: int
) -> dict[str, int]:
    """Delete rows whose column has a time, or a day, before a given time; `columns` have their names for people."""
    deleted = {}
    for name, column in columns.items():
        first = before if column.info["field"].is_time else before // DAY_MS
        deleted[name] = await delete_rows(context, column.table, column < first)
    return deleted


async def prune_sources(context: Context) -> dict[str, int]:
    """Delete files past the retention of results."""
    return await delete_old(context, {"documents of jobs": ci_source})


def no_columns(_source: SourceRow, _record: Any) -> Mapping[str, Any]:
    """Return no further columns."""
    return {}


@dataclass(frozen=True, kw_only=True)
class SmallDocument:
    """What happens to the records of a file that a job left.

    A column of `table` is filled from `more`, the file (`SourceRow`), or the record's field of that name; `seq` numbers
    the records. The column `day` says when a row is deleted.
    """

    table: sa.Table  # its key begins with that of the file: `source_rows.SOURCE_KEY`
    called: str  # its rows, for people
    answer: Any  # what the parser returns: `Parsed` of a struct
    most_written: int  # bytes of that
    more: Callable[[SourceRow, Any], Mapping[str, Any]] = no_columns
    exported: bool = False  # whether sinks may have copies of the rows themselves: see `Feature.exports`
    sum: Sum | None = None  # whose group are columns of the table: a day of trusted files is counted again
    # what is counted or judged from the rows, deleted as records are: by its name for people, the column with the time
    kept: Mapping[str, sa.Column[Any]] = field(default_factory=dict)

    @property
    def receiver(self) -> Receiver:
        """The receiver of its files."""
        return Receiver(store=self.store, answer=self.answer, most_written=self.most_written)

    async def store(
        self, tx: Transaction, context: Context, fetched: Fetched, parsed: Parsed[Any], _blob: str | None
    ) -> None:
        """Replace the rows of a file, and request a recount of its day."""
        stored = await store_source(tx, context, fetched, parsed)
        if stored is None:
            return
        rows = [
            make_row(self.table, stored.row, record, seq=seq, **self.more(stored.row, record))
            for seq, record in enumerate(parsed.rows)
        ]
        await self._note_changes(tx, stored, rows)
        await replace_rows(tx, self.table, stored.row, rows)

    async def _note_changes(self, tx: Transaction, stored: StoredSource, rows: list[dict[str, Any]]) -> None:
        """Note the rows that change, for sinks, and request a recount of their days."""
        noted = [column.name for column in self.table.primary_key] if self.exported else []
        group = self.sum.group if self.sum else ()
        if not noted and not group:
            return
        columns = list(dict.fromkeys((*noted, *group)))
        changed = [*await rows_of_source(tx, self.table, stored.row, columns), *rows]
        if noted:
            tx.note_changed(self.table.name, changed)
        if self.sum:
            groups = {tuple(row[name] for name in group) for row in changed}
            days = {source["day"] for source in stored.trusted}
            sums.request(tx, self.sum, sorted(SumPlace(group, day) for group in groups for day in days))

    async def prune(self, context: Context) -> dict[str, int]:
        """Delete rows past the retention of results; counts go later, with the records."""
        deleted = await delete_old(context, {self.called: self.table})
        before = context.clock.now() - context.settings.record_retention_days * DAY
        return deleted | await delete_before(context, self.kept, before)


def make_row(table: sa.Table, source: SourceRow, record: msgspec.Struct, **more: Any) -> dict[str, Any]:
    """Return the row of a table for a record of a file."""
    known = {**msgspec.structs.asdict(record), **source, **more}  # what a file says of its job never counts
    return {column.name: known[column.name] for column in table.columns}


async def _is_known(tx: Transaction, row: SourceRow) -> bool:
    """Whether a job left the same file under another id: it was sent twice."""
    same = ("repository_id", "run_id", "run_attempt", "job_id", "kind", "sha256")
    query = sa.select(SOURCE.object_id).where(
        *(SOURCE[name] == row[name] for name in same),  # type: ignore[literal-required]
        SOURCE.object_id != row["object_id"],
    )
    return (await tx.run(query.limit(1))).scalar() is not None


def _of_source(table: sa.Table, source: SourceRow) -> list[sa.ColumnElement[bool]]:
    return [table.c[name] == source[name] for name in SOURCE_KEY]  # type: ignore[literal-required]


async def _source_row(
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
        "day": at // DAY_MS,
        "seconds": await _job_seconds(tx, key),
        "kind": fetched.kind,
        "artifact": fetched.name,
        "sha256": fetched.sha256,
        "records": len(parsed.rows),
        "problems": msgspec.to_builtins(parsed.problems),
        "problem_count": parsed.problem_count,
        "received_at": tx.now,
    }


async def _job_seconds(tx: Transaction, key: JobKeyRow) -> int | None:
    """Return how long a job took, by GitHub's word."""
    job = await runs.find_job(tx, [key["repository_id"]], key["job_id"]) if key["job_id"] > 0 else None
    if job is None or job["started_at"] is None or job["completed_at"] is None:
        return None
    return max(job["completed_at"] - job["started_at"], 0) // 1000
