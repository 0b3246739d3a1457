"""What is true now of some keys, as a sink may have it: rows, tombstones, and what is private left out."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from bot.core.feature import load
from bot.sinks.driver import Outgoing
from bot.sinks.store import visibility_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from bot.context import Context
    from bot.db.exports import Export, Key, Row
    from bot.db.transaction import Transaction
    from bot.sinks.lanes import Lane
    from bot.sinks.store.visibility_rows import Known
    from bot.sinks.tables import ExportedRow
    from bot.web.access import Private


@dataclass(frozen=True, kw_only=True)
class Current:
    """What is to be sent of some keys."""

    items: list[Outgoing]
    new_repository_ids: frozenset[int]  # of rows that are sent: the sink has no copies of these yet


@dataclass(frozen=True, kw_only=True)
class _Visibility:
    """What one sink may have."""

    lane: Lane
    known: Mapping[int, Known]  # repositories by id
    private: Private
    ids: Mapping[str, set[int]]  # of names, case folded
    exported: Mapping[int, ExportedRow]

    def allows(self, row: Row) -> bool:
        """Whether nothing that a row is about is private, or the sink gets private repositories, too."""
        if self.lane.sink.private:
            return True
        return not self.lane.export.internal and all(
            self._is_public(value) for value in repositories_of(self.lane.export, row)
        )

    def wants(self, row: Row) -> bool:
        """Whether the sink's globs match a repository that a row is about; one about none is wanted."""
        values = list(repositories_of(self.lane.export, row))
        globs = [glob.casefold() for glob in self.lane.sink.repos]
        if not values or "*" in globs:
            return True
        names = [self._name(value, row).casefold() for value in values]
        return any(fnmatchcase(name, glob) for name in names for glob in globs)

    def was_exported(self, row: Row) -> bool:
        """Whether copies of what a row is about may be there that are to be deleted."""
        private = [value for value in repositories_of(self.lane.export, row) if not self._is_public(value)]
        copied = (self.exported.get(one) for value in private for one in self.ids_of(value))
        return not self.lane.sink.private and any(one is not None and not one["deleted"] for one in copied)

    def with_name(self, row: Row | None) -> Row | None:
        """Return a row with the full name of its repository."""
        if row is None or "repo" in row:
            return row
        ids = (value for value in repositories_of(self.lane.export, row) if isinstance(value, int))
        return {**row, "repo": next((self.known[one].name for one in ids if one in self.known), "")}

    def ids_of(self, value: int | str) -> set[int]:
        """Return the repositories that a value of a row stands for."""
        return {value} if isinstance(value, int) else self.ids.get(value.casefold(), set())

    def _is_public(self, value: int | str) -> bool:
        if isinstance(value, int):
            return value in self.known and self.known[value].is_public
        return value.casefold() not in self.private.names

    def _name(self, value: int | str, row: Row) -> str:
        if isinstance(value, str):
            return value
        return self.known[value].name if value in self.known else str(row.get("repo") or "")


async def read_current(tx: Transaction, context: Context, lane: Lane, keys: Sequence[Key]) -> Current:
    """Return what is true now of some keys, in one snapshot."""
    rows: dict[Key, Row] = await load(lane.shape.read)(tx, lane.export, keys)
    for addition in lane.additions:
        added: dict[Key, Row] = await load(addition.read)(tx, list(rows))
        rows |= {key: {**rows[key], **further} for key, further in added.items()}
    seen = await _read_visibility(tx, context, lane, rows.values())
    items: list[Outgoing] = []
    ids: set[int] = set()
    for key in keys:
        row = seen.with_name(rows.get(key))
        if row is None:
            items.append(Outgoing(key=key, row=None, deleted=True, version=tx.now))
        elif not seen.wants(row):
            continue
        elif not seen.allows(row):
            if seen.was_exported(row):
                items.append(Outgoing(key=key, row=row, deleted=True, version=tx.now))
        else:
            gone = bool(lane.export.deleted) and row[lane.export.deleted] is not None
            items.append(Outgoing(key=key, row=row, deleted=gone, version=tx.now))
            ids.update(one for value in repositories_of(lane.export, row) for one in seen.ids_of(value))
    known = {one for one, copied in seen.exported.items() if copied["withdrawn_at"] is None}
    return Current(
        items=items, new_repository_ids=frozenset() if lane.sink.private else frozenset(ids - known)
    )


async def load_content(context: Context, lane: Lane, items: Sequence[Outgoing]) -> list[Outgoing]:
    """Add what is no row; leave out what turns out to be about something private."""
    if not lane.shape.load:
        return list(items)
    rows = {item.key: item.row for item in items if item.row is not None}
    loaded: dict[Key, Row] = await load(lane.shape.load)(context, rows)
    found = []
    for item in items:
        row = loaded.get(item.key) if item.row is not None else None
        if row is None:
            found += [item] if item.row is None else []
        elif lane.sink.private or item.deleted or not _mentions_private(lane.export, row):
            found.append(Outgoing(key=item.key, row=row, deleted=item.deleted, version=item.version))
    return found


def _mentions_private(export: Export, row: Row) -> bool:
    """Whether a row about no repository that is known says that it is about a private one."""
    return bool(row.get("private")) and not list(repositories_of(export, row))


async def _read_visibility(tx: Transaction, context: Context, lane: Lane, rows: Iterable[Row]) -> _Visibility:
    about = {value for row in rows for value in repositories_of(lane.export, row)}
    names = {value for value in about if isinstance(value, str)}
    of_names = await visibility_rows.read_ids(tx, names)
    ids = {value for value in about if isinstance(value, int)}
    every = ids.union(*of_names.values())
    return _Visibility(
        lane=lane,
        known=await visibility_rows.read_known(tx, ids),
        private=await visibility_rows.read_private(tx, context.settings, names),
        ids=of_names,
        exported=await visibility_rows.exported_among(tx, lane.sink.name, every),
    )


def repositories_of(export: Export, row: Row) -> Iterator[int | str]:
    """Yield the repositories that a row is about: ids of GitHub's, and names."""
    for name in export.repositories:
        value: Any = row[name]
        if (isinstance(value, int) and value > 0) or (isinstance(value, str) and value):
            yield value
