"""Repositories whose events lead to anything: their names, their ids, and who may see them.

A name of the settings means the repository that had it when GitHub first named it.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
import structlog
from cachetools import TTLCache

from bot.core.errors import GitHubRefused, RetryLater, StoreUnavailable
from bot.core.feature import Finding, error, load_each, ok
from bot.core.json_fields import Unreadable, decode
from bot.db.rows import select
from bot.db.statements import RowStatement, Statement
from bot.db.transaction import Slot
from bot.ingest.tables import PinnedRepositoryRow, delivery, pinned_repository, records, repository_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from bot.context import Context
    from bot.core.settings import Settings
    from bot.db.store import Store
    from bot.db.transaction import Transaction
    from bot.github.client import GitHubApp
    from bot.ingest.tables import Record
    from bot.ops.doctor import Target

NAME, REPOSITORY = repository_name.c, records["repository"].c
NAMES: sa.BindParameter[Any] = sa.bindparam("names", expanding=True)
IDS: sa.BindParameter[Any] = sa.bindparam("ids", expanding=True)
IDS_OF_NAME = Statement(sa.select(NAME.repository_id).where(NAME.name == sa.bindparam("name")))
log = structlog.get_logger("bot.ingest.repositories")

PINNED = pinned_repository.c
ALL_IDS = Statement(sa.select(PINNED.name, PINNED.repository_id, PINNED.moved_to))
IDS_READ_AGAIN = 10.0  # seconds until another process's change is seen
CHECK = "upstream's id"
ID_PROBLEMS = RowStatement(
    select(PinnedRepositoryRow, pinned_repository).where(
        PINNED.moved_to.is_not(None) | PINNED.unreachable.is_not(None)
    )
)
REPOSITORY_IDS: Slot[list[RepositoryIds]] = Slot("pinned repositories", list)  # once they are read


@dataclass(frozen=True, kw_only=True)
class Watched:
    """What is watched, in lower case."""

    repositories: frozenset[str]  # records of these are compared with GitHub
    accounts: frozenset[str]  # their missed deliveries are requested before others'
    named: frozenset[str] = frozenset()  # by the settings: private until their visibility is known


@dataclass(kw_only=True)
class RepositoryIds:
    """What the names of the settings, case folded, stand for."""

    ids: dict[str, int]
    moved: dict[str, str]  # the name a repository has now, where that is another


class OtherRepository(Unreadable):
    """A delivery is about a repository that has taken a name of the settings."""


async def read_watched(context: Context, tx: Transaction) -> Watched:
    """Return upstream and what every feature adds."""
    settings = context.settings
    repositories = {repo.lower() for repo in settings.upstream_repo}
    accounts = set(map(owner_of, settings.upstream_repo))
    named = {repo.casefold() for repo in settings.upstream_repo}
    for find in load_each(context.features, "repositories"):
        added: Watched = await find(tx, settings)
        repositories |= added.repositories
        accounts |= added.accounts
        named |= added.named
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


def _private_near() -> sa.Select[Any]:
    repositories = sa.select(NAME.repository_id).where(NAME.name.in_(NAMES))
    names = sa.select(NAME.name).where(NAME.repository_id.in_(repositories))
    near = sa.select(NAME.repository_id).where(NAME.name.in_(names))
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


async def note_names(tx: Transaction, gathered: Iterable[Record]) -> None:
    """Store the repository names of some records."""
    seen = {
        (record.values["repository_id"], record.values["repo"].casefold())
        for record in gathered
        if record.values["repository_id"] and record.values["repo"]
    }
    if seen:
        rows = [{"repository_id": identifier, "name": name} for identifier, name in sorted(seen)]
        await tx.upsert(repository_name, rows)


async def read_names_of_same(tx: Transaction, name: str) -> set[str]:
    """Return every name (case folded) of the repositories that have or had this one, itself included."""
    same = sa.select(NAME.repository_id).where(NAME.name == name.casefold())
    names = await tx.run(sa.select(NAME.name).where(NAME.repository_id.in_(same)))
    return {name.casefold(), *names.scalars()}


async def read_ids(tx: Transaction, name: str) -> set[int]:
    """Return the repositories that have or had this name."""
    return set((await tx.run(IDS_OF_NAME, {"name": name.casefold()})).scalars())


async def read_distinct_upstreams(tx: Transaction, *tables: sa.Table) -> set[str]:
    """Return the distinct upstreams of these tables, as spelled there: few, in very many rows."""
    return {name for name in (await tx.run(_distinct_upstreams(tables))).scalars() if name is not None}


async def read_private_ids(tx: Transaction, wanted: Collection[str]) -> set[int]:
    """Return the private repositories that share a name, past or present, with any that has or had one of these."""
    names = {"names": sorted({name.casefold() for name in wanted})}
    return set((await tx.run(PRIVATE_NEAR, names)).scalars())


async def read_names_of_unknown_visibility(tx: Transaction, wanted: Iterable[str]) -> set[str]:
    """Return which of these names (case folded) belong to repositories whose visibility GitHub has not told yet."""
    folded = {name.casefold() for name in wanted}
    return folded - set((await tx.run(OF_KNOWN_VISIBILITY, {"names": sorted(folded)})).scalars())


def is_known(
    repository_id: sa.ColumnElement[Any], accounts: Collection[str] | None = None
) -> sa.ColumnElement[bool]:
    """Return the condition that a repository's name is known; with `accounts` (case folded), one that is theirs."""
    at = [NAME.name.startswith(f"{account}/", autoescape=True) for account in sorted(accounts or ())]
    return sa.exists().where(NAME.repository_id == repository_id, *([sa.or_(*at)] if at else []))


async def read_names_of_ids(tx: Transaction, wanted: Collection[int]) -> set[str]:
    """Return every name (case folded) of some repositories, except those that public repositories have now.

    A name of the settings stays with the repository whose id is stored for it.
    """
    return set((await tx.run(NAMES_OF, {"ids": sorted(wanted)})).scalars()) if wanted else set()


async def read_repository_ids(tx: Transaction) -> dict[str, int]:
    """Return the ids by name, case folded."""
    return {row.name: row.repository_id for row in await tx.run(ALL_IDS)}


async def set_id(tx: Transaction, repo: str, repository_id: int) -> int:
    """Store the id of a name unless one is stored already; returns the stored id."""
    row = {"name": repo.casefold(), "repository_id": repository_id, "pinned_at": tx.now}
    await tx.run(tx.insert(pinned_repository).values(row).on_conflict_do_nothing())
    query = sa.select(PINNED.repository_id).where(PINNED.name == repo.casefold())
    pinned_to: int = (await tx.run(query)).scalar_one()
    return pinned_to


async def forget_unnamed(tx: Transaction, named: Collection[str]) -> None:
    """Delete the ids of names that the settings no longer have."""
    await tx.run(sa.delete(pinned_repository).where(PINNED.name.not_in({name.casefold() for name in named})))


async def accept_id(tx: Transaction, repo: str, repository_id: int) -> int:
    """Give a name another id; returns how many deliveries of that repository are handled now."""
    await tx.run(sa.delete(pinned_repository).where(PINNED.name == repo.casefold()))
    await set_id(tx, repo, repository_id)
    tx.wakes_workers = True
    of_it = (delivery.c.repository_id == repository_id, sa.func.lower(delivery.c.repo) == repo.lower())
    change = {"state": "stored", "attempts": 0, "error": None}  # due since it was parked
    parked = sa.update(delivery).where(delivery.c.state == "parked", *of_it).values(change)
    return (await tx.run(parked)).rowcount


async def require_same_repository(tx: Transaction, settings: Settings, payload: dict[str, Any]) -> None:
    """Raise OtherRepository unless a delivery is about the repository that its name means to us.

    The first delivery of an upstream stores its id.
    """
    repository = payload.get("repository")
    name = repository.get("full_name") if isinstance(repository, dict) else None
    if not isinstance(repository, dict) or not isinstance(name, str):
        return
    known = tx.slot(REPOSITORY_IDS)
    if not known:
        rows = (await tx.run(ALL_IDS)).all()
        moved = {name: now for name, _, now in rows if now}
        known.append(RepositoryIds(ids={name: identifier for name, identifier, _ in rows}, moved=moved))
    pins = known[0]
    repository_id, key = repository.get("id"), name.casefold()
    await _note_name(tx, pins, key, name, repository_id)
    if (
        key not in pins.ids
        and isinstance(repository_id, int)
        and settings.is_upstream(name)
        and not tx.replaying
    ):
        pins.ids[key] = await set_id(tx, name, repository_id)
    if key in pins.ids and (not isinstance(repository_id, int) or isinstance(repository_id, bool)):
        raise Unreadable("repository.id is missing or of another kind")
    if key in pins.ids and repository_id != pins.ids[key]:
        raise OtherRepository(describe_other_id(name, pins.ids[key], repository_id))


async def note_reached(tx: Transaction, repo: str, refusal: str | None) -> None:
    """Store why a repository of the settings could not be listed; None if it could."""
    changed = PINNED.unreachable.is_distinct_from(refusal)
    same = PINNED.name == repo.casefold()
    await tx.run(sa.update(pinned_repository).where(same, changed).values(unreachable=refusal))


async def read_problems(tx: Transaction, named: Collection[str]) -> tuple[list[str], list[str]]:
    """Return why nothing is done for repositories of the settings: they have moved, or cannot be reached."""
    rows = {row["name"]: row for row in await tx.fetch(ID_PROBLEMS)}
    known = [(repo, row) for repo in named if (row := rows.get(repo.casefold()))]
    moved = [describe_move(repo, now) for repo, row in known if (now := row["moved_to"])]
    refused = [
        (repo, row["unreachable"]) for repo, row in known if row["unreachable"] and not row["moved_to"]
    ]
    return moved, [f"{repo} cannot be reached: {reason}" for repo, reason in refused]


def describe_move(repo: str, now: str) -> str:
    """Say that a repository has another name now, with the next step."""
    return f"{repo} is {now} now, and nothing of it is dispatched: write its new name into UPSTREAM_REPO"


def describe_other_id(repo: str, stored: int, other: object) -> str:
    """Say that a name has another id now, with the next step."""
    return f"{repo} is repository {stored}, and this is {other}: if that is right, `ootbot upstream accept {repo}`"


class CachedRepositoryIds:
    """The ids that tokens are asked for; read again every few seconds."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._cached: TTLCache[str, dict[str, int]] = TTLCache(
            1, IDS_READ_AGAIN, timer=lambda: store.clock.now() / 1000
        )

    async def of(self, repo: str) -> int | None:
        """Return the id of a name, None if none is stored."""
        known = self._cached.get("")
        if known is None:
            async with self._store.read() as tx:
                known = self._cached[""] = await read_repository_ids(tx)
        return known.get(repo.casefold())


async def check_repository_ids(target: Target) -> list[Finding]:
    """Check for `ootbot doctor` that the names in the settings still mean the same repositories."""
    if not await target.has_database():
        return []
    try:
        async with target.store.read() as tx:
            ids = await read_repository_ids(tx)
    except StoreUnavailable:  # no database yet, or an older one: other checks say so
        return []
    findings = []
    for repo, stored in sorted(ids.items()):
        try:
            now = await fetch_id(target.app_for(repo), repo)
        except (GitHubRefused, RetryLater):  # other checks say so
            continue
        if now == stored:
            findings.append(ok(CHECK, f"{repo} is repository {stored}"))
        else:
            detail = f"{repo} is repository {now} now, and was {stored}: what happens there has no effect"
            todo = (
                f"the right name in the settings, or if that is upstream now: ootbot upstream accept {repo}"
            )
            findings.append(error(CHECK, detail, todo))
    return findings


async def fetch_id(app: GitHubApp, repo: str) -> int:
    """Return the id of the repository that has a name at GitHub now."""
    return int((await app.by_name(repo, metadata="read").repository())["id"])


@functools.cache
def _distinct_upstreams(tables: tuple[sa.Table, ...]) -> Statement:
    """Return a query that goes from name to name by the index instead of reading all rows."""
    queries = []
    for column in (table.c.upstream_repo for table in tables):
        each = sa.select(sa.func.min(column).label("name")).cte(f"of_{column.table.name}", recursive=True)
        following = sa.select(sa.func.min(column)).where(column > each.c.name).scalar_subquery()
        each = each.union_all(sa.select(following).where(each.c.name.is_not(None)))
        queries.append(sa.select(each.c.name))
    return Statement(sa.union_all(*queries))


async def _note_name(
    tx: Transaction, pins: RepositoryIds, key: str, name: str, repository_id: object
) -> None:
    """Store that a repository of the settings now has another name, or has its own name again."""
    if tx.replaying or repository_id not in pins.ids.values():
        return
    if key in pins.ids:
        if repository_id == pins.ids[key] and key in pins.moved:
            del pins.moved[key]
            await tx.run(sa.update(pinned_repository).where(PINNED.name == key).values(moved_to=None))
        return
    for old_name in [old_name for old_name, identifier in pins.ids.items() if identifier == repository_id]:
        if pins.moved.get(old_name) != name:
            pins.moved[old_name] = name
            await tx.run(sa.update(pinned_repository).where(PINNED.name == old_name).values(moved_to=name))
            log.error(
                "upstream was renamed or transferred",
                repo=old_name,
                now=name,
                todo=describe_move(old_name, name),
            )
