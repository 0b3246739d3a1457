"""Tables of a column store as exports describe them, and how rows are written there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence


@dataclass(frozen=True, kw_only=True)
class ColumnTable:
    """A table of ClickHouse."""

    name: str  # `database.table`; without a database it is in that of the sink
    columns: Mapping[str, str]  # types by name
    order: tuple[str, ...]  # ORDER BY: rows that are equal in these replace one another
    # rows have a version, and say whether they were deleted: the newest version counts, whatever came last
    versioned: bool = False
    replaces: bool = True  # without versions: whether a later row replaces an equal one
    # further columns that the server computes, as declared, such as `String ALIAS lower(name)`: queries use them
    computed: Mapping[str, str] = field(default_factory=dict)
    # views of some columns beside it, which queries ask in its place: columns by name of the view
    views: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    open: bool = False  # further columns that the table has and the rows, too, are written as well
    day: str = ""  # a column with a time that never changes: the table is split by its month
    time: str = ""  # a column with a time by which rows grow old

    @property
    def all_columns(self) -> Mapping[str, str]:
        """The types of all columns that are written."""
        return {**self.columns, **(VERSION if self.versioned else {})}


VERSION = {"_version": "UInt64", "_deleted": "UInt8"}


@dataclass(frozen=True, kw_only=True)
class TableCopy:
    """How an export is written to a table: what `Shape.make` returns of the export in layouts of ClickHouse."""

    table: ColumnTable
    # an export's row -> rows of the table, values by column: GitHub's, or those of our columns
    rows: Callable[[Mapping[str, Any]], Iterable[Mapping[str, Any]]]
    key: tuple[str, ...]  # columns that all rows of one key of the export have in common, and no others
    # a key and its row, where there is one -> the values of these columns; None: they are not known
    key_values: Callable[[tuple[Any, ...], Mapping[str, Any] | None], Sequence[Any] | None]
    several: bool = False  # a key has several rows, and each time they may be others
    shared: bool = False  # rows of other keys of the export may have the same values in these columns
