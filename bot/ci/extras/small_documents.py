"""A small document of a job: one declaration makes the receiver of its rows, asks for its daily sum, and prunes both.

A capability has a parser (`bot.ci.extras.parse`), a table whose rows name the file they are from, and one
`SmallDocument`. CONTRIBUTING.md shows the whole of a small one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from bot.ci.collect.receiving import Receiver
from bot.ci.extras import source_rows
from bot.queue import sums
from bot.queue.sums import DAY, Place

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import sqlalchemy as sa

    from bot.ci.collect.receiving import Fetched
    from bot.ci.extras.parse.parsed import Parsed
    from bot.ci.extras.source_rows import Stored
    from bot.ci.extras.tables import SourceRow
    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.queue.sums import Sum


def nothing_more(_source: SourceRow, _record: Any) -> Mapping[str, Any]:
    """Return no further columns."""
    return {}


@dataclass(frozen=True, kw_only=True)
class SmallDocument:
    """What becomes of the records of a file that a job left.

    Each column of `table` is filled from what is `more`, what is known of the file (`SourceRow`), or the record's field
    of that name; `seq` numbers the records. Of the columns, `day` says when a row is deleted.
    """

    table: sa.Table  # its key begins with that of the file: `source_rows.SOURCE_KEY`
    called: str  # its rows, for people
    answer: Any  # what the parser returns: `Parsed` of a struct
    most_written: int  # bytes of that
    more: Callable[[SourceRow, Any], Mapping[str, Any]] = nothing_more
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
        """Store the rows of a file in place of those it left before, and have its day counted again."""
        stored = await source_rows.store_source(tx, context, fetched, parsed)
        if stored is None:
            return
        rows = [
            make_row(self.table, stored.row, one, seq=seq, **self.more(stored.row, one))
            for seq, one in enumerate(parsed.rows)
        ]
        await self._note_changes(tx, stored, rows)
        await source_rows.replace_rows(tx, self.table, stored.row, rows)

    async def _note_changes(self, tx: Transaction, stored: Stored, rows: list[dict[str, Any]]) -> None:
        """Tell of rows that are about to take the place of others: whose days change, and what sinks have to copy."""
        noted = [column.name for column in self.table.primary_key] if self.exported else []
        group = self.sum.group if self.sum else ()
        if not noted and not group:
            return
        columns = list(dict.fromkeys((*noted, *group)))
        changed = [*await source_rows.rows_of_source(tx, self.table, stored.row, columns), *rows]
        if noted:
            tx.note_changed(self.table.name, changed)
        if self.sum:
            groups = {tuple(row[name] for name in group) for row in changed}
            days = {one["day"] for one in stored.trusted}
            sums.request(tx, self.sum, sorted(Place(one, day) for one in groups for day in days))

    async def prune(self, context: Context) -> dict[str, int]:
        """Delete rows past the retention of results; what was counted goes later, with the records."""
        deleted = await source_rows.delete_old(context, {self.called: self.table})
        before = context.clock.now() - context.settings.record_retention_days * DAY
        return deleted | await source_rows.delete_before(context, self.kept, before)


def make_row(table: sa.Table, source: SourceRow, record: msgspec.Struct, **more: Any) -> dict[str, Any]:
    """Return the row of a table for a record of a file."""
    known = {**msgspec.structs.asdict(record), **source, **more}  # what a file says of its job never counts
    return {column.name: known[column.name] for column in table.columns}
