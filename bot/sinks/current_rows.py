"""The current rows of some keys as a sink may have them: rows, tombstones, nothing private."""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple

import sqlalchemy as sa

from bot.core.feature import load
from bot.db.exports import encode_key
from bot.db.rows import select
from bot.ingest.tables import records, repository_name
from bot.oot.results import visibility as result_rows
from bot.sinks import queue_rows
from bot.sinks.driver import Outgoing
from bot.sinks.tables import ExportedRepositoryRow, sink_repository

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Mapping, Sequence

    from bot.context import Context
    from bot.core.settings import Settings
    from bot.db.exports import Export, ExportedRow, RowKey, TableCopy
    from bot.db.transaction import Transaction
    from bot.sinks.queues import ExportQueue
    from bot.web.access import Private

REPOSITORY, EXPORTED = records["repository"].c, sink_repository.c
IDS_PER_QUERY = 500
RowSubject = tuple[
    str | None, tuple[int | str, ...]
]  # the `repo` of rows, and the repositories they are about
STORED_LAYOUT = "clickhouse.ootbot"
KEYS_AT_ONCE = 10_000  # keys


class KnownRepository(NamedTuple):
    """What is known of a repository."""

    name: str
    is_public: bool  # GitHub has said so


@dataclass(frozen=True, kw_only=True)
class CurrentRows:
    """The rows of some keys that are to be sent."""

    items: list[Outgoing]
    new_repository_ids: frozenset[int]  # of rows that are sent: the sink has no copies of these yet


@dataclass(frozen=True, kw_only=True)
class _RepositoryStanding:
    """What happens to the rows about some repositories."""

    name: str  # of the repository that rows have the id of
    ids: frozenset[int]  # all that their names stand for
    sends: bool
    withdraws: bool  # the copies that are there are to be deleted


async def read_known_repositories(tx: Transaction, ids: Collection[int]) -> dict[int, KnownRepository]:
    """Return what is known of repositories; those without a record are missing."""
    known: dict[int, KnownRepository] = {}
    ordered = sorted(ids)
    for start in range(0, len(ordered), IDS_PER_QUERY):
        some = REPOSITORY.repository_id.in_(ordered[start : start + IDS_PER_QUERY])
        query = sa.select(REPOSITORY.repository_id, REPOSITORY.full_name, REPOSITORY.repo, REPOSITORY.private)
        for row in await tx.run(query.where(some)):
            known[row.repository_id] = KnownRepository(
                row.full_name or row.repo, row.private is False or row.private == 0
            )
    return known


async def read_private_repositories(tx: Transaction, settings: Settings, names: Collection[str]) -> Private:
    """Return which repositories are private, including those of some names."""
    return await result_rows.private_repositories(tx, settings, names)


async def read_repository_ids(tx: Transaction, names: Collection[str]) -> dict[str, set[int]]:
    """Return the repositories that have or had these names, by name (case folded)."""
    folded = sorted({name.casefold() for name in names})
    ids: dict[str, set[int]] = {}
    for start in range(0, len(folded), IDS_PER_QUERY):
        some = repository_name.c.name.in_(folded[start : start + IDS_PER_QUERY])
        query = sa.select(repository_name.c.name, repository_name.c.repository_id).where(some)
        for name, identifier in await tx.run(query):
            ids.setdefault(name, set()).add(identifier)
    return ids


async def exported_among(
    tx: Transaction, sink: str, ids: Collection[int]
) -> dict[int, ExportedRepositoryRow]:
    """Return which of these repositories a sink has copies of."""
    ordered = sorted(ids)
    exported: dict[int, ExportedRepositoryRow] = {}
    for start in range(0, len(ordered), IDS_PER_QUERY):
        query = select(ExportedRepositoryRow, sink_repository).where(
            EXPORTED.sink == sink, EXPORTED.repository_id.in_(ordered[start : start + IDS_PER_QUERY])
        )
        exported |= {row["repository_id"]: row for row in await tx.fetch(query)}
    return exported


async def note_exported(tx: Transaction, sink: str, ids: Collection[int]) -> None:
    """Note that a sink is about to get copies of these repositories."""
    rows = [
        ExportedRepositoryRow(sink=sink, repository_id=identifier, withdrawn_at=None, deleted=False)
        for identifier in sorted(ids)
    ]
    if rows:
        await tx.upsert(sink_repository, rows, replaced=("withdrawn_at", "deleted"))


async def sinks_with(tx: Transaction, repository_id: int) -> list[str]:
    """Return the sinks with copies of a repository that are not withdrawn."""
    query = sa.select(EXPORTED.sink).where(
        EXPORTED.repository_id == repository_id, EXPORTED.withdrawn_at.is_(None)
    )
    return list((await tx.run(query.order_by(EXPORTED.sink))).scalars())


async def withdraw_copies(tx: Transaction, sink: str, repository_id: int) -> None:
    """Note that the copies of a repository are to be deleted."""
    these = (EXPORTED.sink == sink, EXPORTED.repository_id == repository_id)
    await tx.run(sa.update(sink_repository).where(*these).values(withdrawn_at=tx.now))


async def read_withdrawn(tx: Transaction) -> list[ExportedRepositoryRow]:
    """Return the repositories whose copies were withdrawn."""
    query = select(ExportedRepositoryRow, sink_repository).where(EXPORTED.withdrawn_at.is_not(None))
    return await tx.fetch(query.order_by(EXPORTED.sink, EXPORTED.repository_id))


async def note_deleted(tx: Transaction, sink: str, repository_id: int) -> None:
    """Note that all copies that could be deleted are deleted."""
    these = (EXPORTED.sink == sink, EXPORTED.repository_id == repository_id)
    await tx.run(sa.update(sink_repository).where(*these).values(deleted=True))


async def read_current(
    tx: Transaction, context: Context, queue: ExportQueue, keys: Sequence[RowKey], *, version: int = 0
) -> CurrentRows:
    """Return the current rows of some keys, in one snapshot."""
    rows: dict[RowKey, ExportedRow] = await load(queue.shape.read)(tx, queue.export, keys)
    for addition in queue.additions:
        added: dict[RowKey, ExportedRow] = await load(addition.read)(tx, list(rows))
        rows |= {key: {**rows[key], **further} for key, further in added.items()}
    about = {key: (row.get("repo"), repositories_of(queue.export, row)) for key, row in rows.items()}
    seen = await _read_visibility(tx, context, queue, set(about.values()))
    gone = queue.export.deleted
    items: list[Outgoing] = []
    sent: set[RowSubject] = set()
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
    ids = frozenset[int]().union(*(seen.standing_of(subject).ids for subject in sent))
    known = {
        repository_id for repository_id, copied in seen.exported.items() if copied["withdrawn_at"] is None
    }
    return CurrentRows(items=items, new_repository_ids=frozenset() if queue.sink.private else ids - known)


async def load_content(context: Context, queue: ExportQueue, items: Sequence[Outgoing]) -> list[Outgoing]:
    """Load content that is not in rows; drop rows that turn out to be about something private."""
    if not queue.shape.load:
        return list(items)
    rows = {item.key: item.row for item in items if item.row is not None}
    loaded: dict[RowKey, ExportedRow] = await load(queue.shape.load)(context, rows)
    loaded_items = []
    for item in items:
        row = loaded.get(item.key) if item.row is not None else None
        if row is None:
            loaded_items += [item] if item.row is None else []
        elif queue.sink.private or item.deleted or not _mentions_private(queue.export, row):
            loaded_items.append(item._replace(row=row))
    return loaded_items


def repositories_of(export: Export, row: ExportedRow) -> tuple[int | str, ...]:
    """Return the repositories that a row is about: ids of GitHub's, and names."""
    values = [row[name] for name in export.repositories]
    return tuple([value for value in values if value and (isinstance(value, str) or value > 0)])


def copy_of_export(export: Export) -> TableCopy:
    """Return the table that an export's rows would have."""
    copy: TableCopy = load(export.shapes[STORED_LAYOUT].make)(export)
    return copy


async def read_stored_rows(
    context: Context, export: Export, *, since: int, repos: Collection[str] = ("*",)
) -> AsyncIterator[Mapping[str, Any]]:
    """Yield the rows since a time, of repositories whose names match a glob."""
    shape, copy = export.shapes[STORED_LAYOUT], copy_of_export(export)
    after: str | None = None
    while True:
        async with context.store.read() as tx:
            page = await queue_rows.read_key_page(tx, export, after=after, limit=KEYS_AT_ONCE, since=since)
        keys = list(page.times)
        for start in range(0, len(keys), shape.most):
            async with context.store.read() as tx:
                stored = await load(shape.read)(tx, export, keys[start : start + shape.most])
                rows = await _with_names(tx, export, stored)
            chosen = {key: row for key, row in rows.items() if _matches_repos(row, repos)}
            loaded = await load(shape.load)(context, chosen) if shape.load else chosen
            for row in loaded.values():
                if not export.deleted or row[export.deleted] is None:
                    for table_row in copy.rows(row):
                        yield table_row
        if page.after is None:
            return
        after = encode_key(page.after)


@dataclass(frozen=True, kw_only=True)
class _SinkVisibility:
    """What one sink may have."""

    queue: ExportQueue
    known: Mapping[int, KnownRepository]  # repositories by id
    private: Private
    ids: Mapping[str, set[int]]  # of names, case folded
    exported: Mapping[int, ExportedRepositoryRow]
    _standings: dict[RowSubject, _RepositoryStanding] = field(
        default_factory=dict
    )  # many rows are about the same

    def standing_of(self, about: RowSubject) -> _RepositoryStanding:
        """Return what happens to the rows about some repositories."""
        standing = self._standings.get(about)
        if standing is None:
            standing = self._standings[about] = self._judge(*about)
        return standing

    def _judge(self, repo: str | None, values: tuple[int | str, ...]) -> _RepositoryStanding:
        wanted = self._matches(repo, values)
        public = not self.queue.export.internal and all(map(self._is_public, values))
        sends = wanted and (self.queue.sink.private or public)
        names = (self.known[value].name for value in values if isinstance(value, int) and value in self.known)
        return _RepositoryStanding(
            name=next(names, ""),
            ids=frozenset(number for value in values for number in self._ids_of(value)),
            sends=sends,
            withdraws=wanted and not sends and self._was_exported(values),
        )

    def _matches(self, repo: str | None, values: Sequence[int | str]) -> bool:
        """Whether the sink's globs match one of these repositories; a row about none is wanted."""
        globs = [glob.casefold() for glob in self.queue.sink.repos]
        if not values or "*" in globs:
            return True
        names = [self._name(value, repo).casefold() for value in values]
        return any(fnmatchcase(name, glob) for name in names for glob in globs)

    def _was_exported(self, values: Sequence[int | str]) -> bool:
        """Whether the sink may have copies about these that are to be deleted."""
        private = [value for value in values if not self._is_public(value)]
        copied = (
            self.exported.get(repository_id) for value in private for repository_id in self._ids_of(value)
        )
        return any(row is not None and not row["deleted"] for row in copied)

    def _ids_of(self, value: int | str) -> set[int]:
        """Return the ids of the repositories that a value stands for."""
        return {value} if isinstance(value, int) else self.ids.get(value.casefold(), set())

    def _is_public(self, value: int | str) -> bool:
        if isinstance(value, int):
            return value in self.known and self.known[value].is_public
        return value.casefold() not in self.private.names

    def _name(self, value: int | str, repo: str | None) -> str:
        if isinstance(value, str):
            return value
        return self.known[value].name if value in self.known else repo or ""


def _mentions_private(export: Export, row: ExportedRow) -> bool:
    """Whether a row about no known repository says that it is about a private one."""
    return bool(row.get("private")) and not repositories_of(export, row)


async def _read_visibility(
    tx: Transaction, context: Context, queue: ExportQueue, about: Collection[RowSubject]
) -> _SinkVisibility:
    values = {value for _, some in about for value in some}
    names = {value for value in values if isinstance(value, str)}
    of_names = await read_repository_ids(tx, names)
    ids = {value for value in values if isinstance(value, int)}
    every = ids.union(*of_names.values())
    return _SinkVisibility(
        queue=queue,
        known=await read_known_repositories(tx, ids),
        private=await read_private_repositories(tx, context.settings, names),
        ids=of_names,
        exported=await exported_among(tx, queue.sink.name, every),
    )


async def _with_names(
    tx: Transaction, export: Export, rows: Mapping[RowKey, ExportedRow]
) -> dict[RowKey, ExportedRow]:
    """Return rows with the full names of their repositories."""
    ids = {value for row in rows.values() for value in repositories_of(export, row) if isinstance(value, int)}
    known = await read_known_repositories(tx, ids)
    named: dict[RowKey, ExportedRow] = {}
    for key, row in rows.items():
        of_row = (value for value in repositories_of(export, row) if isinstance(value, int))
        names = (known[value].name for value in of_row if value in known)
        named[key] = row if "repo" in row else {**row, "repo": next(names, "")}
    return named


def _matches_repos(row: ExportedRow, repos: Collection[str]) -> bool:
    names = [str(row.get(name) or "").casefold() for name in ("repo", "downstream_repo", "backend")]
    return any(fnmatchcase(name, glob.casefold()) for name in names if name for glob in repos)
