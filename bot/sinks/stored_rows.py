"""All rows of an export as they are in our tables of a column store: for files that are analysed elsewhere."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from bot.core.feature import load
from bot.db.exports import encode_key
from bot.sinks.current_rows import repositories_of
from bot.sinks.store import key_pages, visibility_rows

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Mapping

    from bot.context import Context
    from bot.core.column_tables import TableCopy
    from bot.db.exports import Export, Key, Row
    from bot.db.transaction import Transaction

LAYOUT = "clickhouse.ootbot"
PAGE = 10_000  # keys


def copy_of_export(export: Export) -> TableCopy:
    """Return the table that the rows would have."""
    copy: TableCopy = load(export.shapes[LAYOUT].make)(export)
    return copy


async def read_stored(
    context: Context, export: Export, *, since: int, repos: Collection[str] = ("*",)
) -> AsyncIterator[Mapping[str, Any]]:
    """Yield the rows since a time, of repositories whose names match a glob; values are those of GitHub, or ours."""
    shape, copy = export.shapes[LAYOUT], copy_of_export(export)
    after: str | None = None
    while True:
        async with context.store.read() as tx:
            page = await key_pages.read_page(tx, export, after=after, limit=PAGE, since=since)
        keys = list(page.times)
        for start in range(0, len(keys), shape.most):
            async with context.store.read() as tx:
                found = await load(shape.read)(tx, export, keys[start : start + shape.most])
                rows = await _named(tx, export, found)
            chosen = {key: row for key, row in rows.items() if _is_wanted(row, repos)}
            loaded = await load(shape.load)(context, chosen) if shape.load else chosen
            for row in loaded.values():
                if not export.deleted or row[export.deleted] is None:
                    for one in copy.rows(row):
                        yield one
        if page.after is None:
            return
        after = encode_key(page.after)


async def _named(tx: Transaction, export: Export, rows: Mapping[Key, Row]) -> dict[Key, Row]:
    """Return rows with the full names of their repositories."""
    ids = {value for row in rows.values() for value in repositories_of(export, row) if isinstance(value, int)}
    known = await visibility_rows.read_known(tx, ids)
    named: dict[Key, Row] = {}
    for key, row in rows.items():
        of_row = (value for value in repositories_of(export, row) if isinstance(value, int))
        names = (known[value].name for value in of_row if value in known)
        named[key] = row if "repo" in row else {**row, "repo": next(names, "")}
    return named


def _is_wanted(row: Row, repos: Collection[str]) -> bool:
    names = [str(row.get(name) or "").casefold() for name in ("repo", "downstream_repo", "backend")]
    return any(fnmatchcase(name, glob.casefold()) for name in names if name for glob in repos)
