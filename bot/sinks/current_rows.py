"""What is true now of some keys, as a sink may have it: rows, tombstones, and what is private left out."""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from bot.core.feature import load
from bot.sinks.driver import Outgoing
from bot.sinks.store import visibility_rows

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from bot.context import Context
    from bot.db.exports import Export, Key, Row
    from bot.db.transaction import Transaction
    from bot.sinks.lanes import Lane
    from bot.sinks.store.visibility_rows import Known
    from bot.sinks.tables import ExportedRow
    from bot.web.access import Private


About = tuple[str | None, tuple[int | str, ...]]  # the `repo` of rows, and the repositories they are about


@dataclass(frozen=True, kw_only=True)
class Current:
    """What is to be sent of some keys."""

    items: list[Outgoing]
    new_repository_ids: frozenset[int]  # of rows that are sent: the sink has no copies of these yet


@dataclass(frozen=True, kw_only=True)
class _Standing:
    """What becomes of the rows about some repositories."""

    name: str  # of the repository that rows have the id of
    ids: frozenset[int]  # all that their names stand for
    sends: bool
    withdraws: bool  # the copies that are there are to be deleted


@dataclass(frozen=True, kw_only=True)
class _Visibility:
    """What one sink may have."""

    lane: Lane
    known: Mapping[int, Known]  # repositories by id
    private: Private
    ids: Mapping[str, set[int]]  # of names, case folded
    exported: Mapping[int, ExportedRow]
    _standings: dict[About, _Standing] = field(default_factory=dict)  # many rows are about the same

    def standing_of(self, about: About) -> _Standing:
        """Return what becomes of the rows about some repositories."""
        found = self._standings.get(about)
        if found is None:
            found = self._standings[about] = self._judge(*about)
        return found

    def _judge(self, repo: str | None, values: tuple[int | str, ...]) -> _Standing:
        wanted = self._matches(repo, values)
        public = not self.lane.export.internal and all(map(self._is_public, values))
        sends = wanted and (self.lane.sink.private or public)
        names = (self.known[one].name for one in values if isinstance(one, int) and one in self.known)
        return _Standing(
            name=next(names, ""),
            ids=frozenset(one for value in values for one in self._ids_of(value)),
            sends=sends,
            withdraws=wanted and not sends and self._was_exported(values),
        )

    def _matches(self, repo: str | None, values: Sequence[int | str]) -> bool:
        """Whether the sink's globs match one of these repositories; a row about none is wanted."""
        globs = [glob.casefold() for glob in self.lane.sink.repos]
        if not values or "*" in globs:
            return True
        names = [self._name(value, repo).casefold() for value in values]
        return any(fnmatchcase(name, glob) for name in names for glob in globs)

    def _was_exported(self, values: Sequence[int | str]) -> bool:
        """Whether copies of what is about these may be there that are to be deleted."""
        private = [value for value in values if not self._is_public(value)]
        copied = (self.exported.get(one) for value in private for one in self._ids_of(value))
        return any(one is not None and not one["deleted"] for one in copied)

    def _ids_of(self, value: int | str) -> set[int]:
        """Return the repositories that a value of a row stands for."""
        return {value} if isinstance(value, int) else self.ids.get(value.casefold(), set())

    def _is_public(self, value: int | str) -> bool:
        if isinstance(value, int):
            return value in self.known and self.known[value].is_public
        return value.casefold() not in self.private.names

    def _name(self, value: int | str, repo: str | None) -> str:
        if isinstance(value, str):
            return value
        return self.known[value].name if value in self.known else repo or ""


async def read_current(
    tx: Transaction, context: Context, lane: Lane, keys: Sequence[Key], *, version: int = 0
) -> Current:
    """Return what is true now of some keys, in one snapshot."""
    rows: dict[Key, Row] = await load(lane.shape.read)(tx, lane.export, keys)
    for addition in lane.additions:
        added: dict[Key, Row] = await load(addition.read)(tx, list(rows))
        rows |= {key: {**rows[key], **further} for key, further in added.items()}
    about = {key: (row.get("repo"), repositories_of(lane.export, row)) for key, row in rows.items()}
    seen = await _read_visibility(tx, context, lane, set(about.values()))
    gone = lane.export.deleted
    items: list[Outgoing] = []
    sent: set[About] = set()
    for key in keys:
        row = rows.get(key)
        if row is None:
            items.append(Outgoing(key, None, deleted=True, version=version))
            continue
        standing = seen.standing_of(about[key])
        if not (standing.sends or standing.withdraws):
            continue
        deleted = standing.withdraws or (gone != "" and row[gone] is not None)
        named = row if "repo" in row else {**row, "repo": standing.name}
        items.append(Outgoing(key, named, deleted, version))
        if standing.sends:
            sent.add(about[key])
    ids = frozenset[int]().union(*(seen.standing_of(one).ids for one in sent))
    known = {one for one, copied in seen.exported.items() if copied["withdrawn_at"] is None}
    return Current(items=items, new_repository_ids=frozenset() if lane.sink.private else ids - known)


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
            found.append(item._replace(row=row))
    return found


def _mentions_private(export: Export, row: Row) -> bool:
    """Whether a row about no repository that is known says that it is about a private one."""
    return bool(row.get("private")) and not repositories_of(export, row)


async def _read_visibility(
    tx: Transaction, context: Context, lane: Lane, about: Collection[About]
) -> _Visibility:
    values = {value for _, some in about for value in some}
    names = {value for value in values if isinstance(value, str)}
    of_names = await visibility_rows.read_ids(tx, names)
    ids = {value for value in values if isinstance(value, int)}
    every = ids.union(*of_names.values())
    return _Visibility(
        lane=lane,
        known=await visibility_rows.read_known(tx, ids),
        private=await visibility_rows.read_private(tx, context.settings, names),
        ids=of_names,
        exported=await visibility_rows.exported_among(tx, lane.sink.name, every),
    )


def repositories_of(export: Export, row: Row) -> tuple[int | str, ...]:
    """Return the repositories that a row is about: ids of GitHub's, and names."""
    values = [row[name] for name in export.repositories]
    return tuple([value for value in values if value and (isinstance(value, str) or value > 0)])
