"""Repositories and accounts whose events lead to anything: upstream, and those that features add."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.core.feature import load_each
from bot.core.json_fields import decode
from bot.db.statements import Statement
from bot.ingest.tables import pinned_repository, records, repository_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from bot.context import Context
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.ingest.records import Record


@dataclass(frozen=True, kw_only=True)
class Watched:
    """What is watched, in lower case."""

    repositories: frozenset[str]  # records of these are compared with GitHub
    accounts: frozenset[str]  # their missed deliveries are requested before others'
    named: frozenset[str] = frozenset()  # by the settings: private until their visibility is known


async def watched(context: Context, tx: Transaction) -> Watched:
    """Return upstream, with what every feature adds."""
    settings = context.settings
    repositories = {repo.lower() for repo in settings.upstream_repo}
    accounts = set(map(owner_of, settings.upstream_repo))
    named = {repo.casefold() for repo in settings.upstream_repo}
    for find in load_each(context.features, "watched"):
        found: Watched = await find(tx, settings)
        repositories |= found.repositories
        accounts |= found.accounts
        named |= found.named
    return Watched(repositories=frozenset(repositories), accounts=frozenset(accounts), named=frozenset(named))


def owner_of(repo: str) -> str:
    """Return the account a repository belongs to, case folded."""
    return repo.partition("/")[0].casefold()


def canonical_name(settings: Settings, repo: str) -> str:
    """Return a repository's name; upstream's as spelled in the settings: GitHub ignores case, our keys do not."""
    folded = repo.casefold()
    return next((name for name in settings.upstream_repo if name.casefold() == folded), repo)


def read_payload(settings: Settings, body: bytes) -> dict[str, Any]:
    """Return a decoded body, upstream's name as spelled in the settings; raises Unreadable."""
    payload: dict[str, Any] = decode(body)
    repository = payload.get("repository")
    if isinstance(repository, dict) and isinstance(name := repository.get("full_name"), str):
        repository["full_name"] = canonical_name(settings, name)
    return payload


NAME, REPOSITORY = repository_name.c, records["repository"].c
NAMES: sa.BindParameter[Any] = sa.bindparam("names", expanding=True)
IDS: sa.BindParameter[Any] = sa.bindparam("ids", expanding=True)


def _private_near() -> sa.Select[Any]:
    these = sa.select(NAME.repository_id).where(NAME.name.in_(NAMES))
    theirs = sa.select(NAME.name).where(NAME.repository_id.in_(these))
    near = sa.select(NAME.repository_id).where(NAME.name.in_(theirs))
    return sa.select(REPOSITORY.repository_id).where(REPOSITORY.private, REPOSITORY.repository_id.in_(near))


def _known_visibility_query() -> sa.Select[Any]:
    meant = sa.func.coalesce(pinned_repository.c.repository_id, NAME.repository_id)
    named = repository_name.outerjoin(pinned_repository, pinned_repository.c.name == NAME.name)
    public_known = named.join(records["repository"], REPOSITORY.repository_id == NAME.repository_id)
    query = sa.select(NAME.name).select_from(public_known)
    return query.where(NAME.name.in_(NAMES), NAME.repository_id == meant, REPOSITORY.private.is_not(None))


def _names_of() -> sa.CompoundSelect[Any]:
    taken = sa.select(sa.func.lower(REPOSITORY.full_name)).where(
        ~REPOSITORY.private, REPOSITORY.full_name.is_not(None)
    )
    named = sa.select(NAME.name).where(NAME.repository_id.in_(IDS), NAME.name.not_in(taken))
    pinned = sa.select(pinned_repository.c.name).where(pinned_repository.c.repository_id.in_(IDS))
    return sa.union_all(named, pinned)


# built once: every page asks
PRIVATE_NEAR, OF_KNOWN_VISIBILITY, NAMES_OF = _private_near(), _known_visibility_query(), _names_of()
IDS_OF_NAME = Statement(sa.select(NAME.repository_id).where(NAME.name == sa.bindparam("name")))


async def note(tx: Transaction, gathered: Iterable[Record]) -> None:
    """Store the repository names of some records."""
    seen = {
        (record.values["repository_id"], record.values["repo"].casefold())
        for record in gathered
        if record.values["repository_id"] and record.values["repo"]
    }
    if seen:
        rows = [{"repository_id": identifier, "name": name} for identifier, name in sorted(seen)]
        await tx.upsert(repository_name, rows)


async def names_of_same_repository(tx: Transaction, name: str) -> set[str]:
    """Return every name (case folded) of the repositories that have or had this one, itself included."""
    same = sa.select(NAME.repository_id).where(NAME.name == name.casefold())
    found = await tx.run(sa.select(NAME.name).where(NAME.repository_id.in_(same)))
    return {name.casefold(), *found.scalars()}


async def ids(tx: Transaction, name: str) -> set[int]:
    """Return the repositories that have or had this name."""
    return set((await tx.run(IDS_OF_NAME, {"name": name.casefold()})).scalars())


async def distinct_upstreams(tx: Transaction, *tables: sa.Table) -> set[str]:
    """Return the distinct upstreams of these tables, as spelled there: few, in very many rows."""
    return {name for name in (await tx.run(_distinct_upstreams(tables))).scalars() if name is not None}


@functools.cache
def _distinct_upstreams(tables: tuple[sa.Table, ...]) -> Statement:
    """Return the query that goes from each name to the next by the index, rather than through all rows."""
    queries = []
    for column in (table.c.upstream_repo for table in tables):
        each = sa.select(sa.func.min(column).label("name")).cte(f"of_{column.table.name}", recursive=True)
        following = sa.select(sa.func.min(column)).where(column > each.c.name).scalar_subquery()
        each = each.union_all(sa.select(following).where(each.c.name.is_not(None)))
        queries.append(sa.select(each.c.name))
    return Statement(sa.union_all(*queries))


async def private_ids(tx: Transaction, wanted: Collection[str]) -> set[int]:
    """Return the private repositories that share a name, past or present, with any that has or had one of these."""
    names = {"names": sorted({name.casefold() for name in wanted})}
    return set((await tx.run(PRIVATE_NEAR, names)).scalars())


async def names_of_unknown_visibility(tx: Transaction, wanted: Iterable[str]) -> set[str]:
    """Return those of these names (case folded) of which GitHub has not said whether the repository is private."""
    folded = {name.casefold() for name in wanted}
    return folded - set((await tx.run(OF_KNOWN_VISIBILITY, {"names": sorted(folded)})).scalars())


def is_known(
    repository_id: sa.ColumnElement[Any], accounts: Collection[str] | None = None
) -> sa.ColumnElement[bool]:
    """Return the condition that a repository's name is known; with `accounts` (case folded), one that is theirs."""
    at = [NAME.name.startswith(f"{one}/", autoescape=True) for one in sorted(accounts or ())]
    return sa.exists().where(NAME.repository_id == repository_id, *([sa.or_(*at)] if at else []))


async def names_of_ids(tx: Transaction, wanted: Collection[int]) -> set[str]:
    """Return every name (case folded) of some repositories, except those that public repositories have now.

    A name of the settings stays with the repository it was pinned to.
    """
    return set((await tx.run(NAMES_OF, {"ids": sorted(wanted)})).scalars()) if wanted else set()
