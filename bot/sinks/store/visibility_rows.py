"""Which repositories are private, and of which a sink has copies."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import sqlalchemy as sa

from bot.db.rows import select
from bot.ingest.tables import records, repository_name
from bot.oot.results import rows as result_rows
from bot.sinks.tables import ExportedRow, sink_repository

if TYPE_CHECKING:
    from collections.abc import Collection

    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.web.access import Private

REPOSITORY, E = records["repository"].c, sink_repository.c
IDS_PER_QUERY = 500


class Known(NamedTuple):
    """What is known of a repository."""

    name: str
    is_public: bool  # GitHub has said so


async def read_known(tx: Transaction, ids: Collection[int]) -> dict[int, Known]:
    """Return what is known of repositories; of one without a record, nothing is."""
    found: dict[int, Known] = {}
    ordered = sorted(ids)
    for start in range(0, len(ordered), IDS_PER_QUERY):
        some = REPOSITORY.repository_id.in_(ordered[start : start + IDS_PER_QUERY])
        query = sa.select(REPOSITORY.repository_id, REPOSITORY.full_name, REPOSITORY.repo, REPOSITORY.private)
        for row in await tx.run(query.where(some)):
            found[row.repository_id] = Known(
                row.full_name or row.repo, row.private is False or row.private == 0
            )
    return found


async def read_private(tx: Transaction, settings: Settings, names: Collection[str]) -> Private:
    """Return which repositories are private, those of some names among them."""
    return await result_rows.private(tx, settings, names)


async def read_ids(tx: Transaction, names: Collection[str]) -> dict[str, set[int]]:
    """Return the repositories that have or had these names, by name (case folded)."""
    folded = sorted({name.casefold() for name in names})
    found: dict[str, set[int]] = {}
    for start in range(0, len(folded), IDS_PER_QUERY):
        some = repository_name.c.name.in_(folded[start : start + IDS_PER_QUERY])
        query = sa.select(repository_name.c.name, repository_name.c.repository_id).where(some)
        for name, identifier in await tx.run(query):
            found.setdefault(name, set()).add(identifier)
    return found


async def exported_among(tx: Transaction, sink: str, ids: Collection[int]) -> dict[int, ExportedRow]:
    """Return those of these repositories of which a sink has copies."""
    ordered = sorted(ids)
    found: dict[int, ExportedRow] = {}
    for start in range(0, len(ordered), IDS_PER_QUERY):
        query = select(ExportedRow, sink_repository).where(
            E.sink == sink, E.repository_id.in_(ordered[start : start + IDS_PER_QUERY])
        )
        found |= {row["repository_id"]: row for row in await tx.fetch(query)}
    return found


async def note_exported(tx: Transaction, sink: str, ids: Collection[int]) -> None:
    """Note that a sink is about to get copies of these repositories."""
    rows = [
        ExportedRow(sink=sink, repository_id=identifier, withdrawn_at=None, deleted=False)
        for identifier in sorted(ids)
    ]
    if rows:
        await tx.upsert(sink_repository, rows, replaced=("withdrawn_at", "deleted"))


async def sinks_with(tx: Transaction, repository_id: int) -> list[str]:
    """Return the sinks that have copies of a repository which are not withdrawn."""
    query = sa.select(E.sink).where(E.repository_id == repository_id, E.withdrawn_at.is_(None))
    return list((await tx.run(query.order_by(E.sink))).scalars())


async def withdraw(tx: Transaction, sink: str, repository_id: int) -> None:
    """Note that the copies of a repository are to be deleted."""
    these = (E.sink == sink, E.repository_id == repository_id)
    await tx.run(sa.update(sink_repository).where(*these).values(withdrawn_at=tx.now))


async def withdrawn(tx: Transaction) -> list[ExportedRow]:
    """Return the repositories whose copies are or were deleted."""
    query = select(ExportedRow, sink_repository).where(E.withdrawn_at.is_not(None))
    return await tx.fetch(query.order_by(E.sink, E.repository_id))


async def note_deleted(tx: Transaction, sink: str, repository_id: int) -> None:
    """Note that all copies that could be deleted were."""
    these = (E.sink == sink, E.repository_id == repository_id)
    await tx.run(sa.update(sink_repository).where(*these).values(deleted=True))
