"""Which repository a name in the settings means: its id, from the first time GitHub named it.

Any account may take a name that was given up. What happens in another repository of upstream's name has no effect until
the operator says that it is upstream now: `ootbot upstream accept`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
import structlog
from cachetools import TTLCache

from bot.core.errors import GitHubRefused, RetryLater, StoreUnavailable
from bot.core.finding import Finding, error, ok
from bot.core.json_fields import Unreadable
from bot.db.rows import select
from bot.db.statements import RowStatement, Statement
from bot.db.transaction import Slot
from bot.ingest.tables import PinnedRepositoryRow, delivery, pinned_repository

if TYPE_CHECKING:
    from collections.abc import Collection

    from bot.core.settings import Settings
    from bot.db.store import Store
    from bot.db.transaction import Transaction
    from bot.github.client import GitHubApp
    from bot.ops.doctor.target import Target

log = structlog.get_logger("bot.ingest.pinned")

PIN = pinned_repository.c
ALL = Statement(sa.select(PIN.name, PIN.repository_id, PIN.moved_to))
READ_AGAIN = 10.0  # seconds until another process's change is seen
CHECK = "upstream's id"


@dataclass(kw_only=True)
class Pins:
    """What the names of the settings, case folded, stand for."""

    ids: dict[str, int]
    moved: dict[str, str]  # the name a repository has now, where that is another


PROBLEMS = RowStatement(
    select(PinnedRepositoryRow, pinned_repository).where(
        PIN.moved_to.is_not(None) | PIN.unreachable.is_not(None)
    )
)
PINS: Slot[list[Pins]] = Slot("pinned repositories", list)  # once they are read


class OtherRepository(Unreadable):
    """A delivery is about a repository that has taken a name of the settings."""


async def pinned_ids(tx: Transaction) -> dict[str, int]:
    """Return the ids by name, case folded."""
    return {row.name: row.repository_id for row in await tx.run(ALL)}


async def pin(tx: Transaction, repo: str, repository_id: int) -> int:
    """Pin a name to an id unless it is pinned already; returns the id it is pinned to."""
    row = {"name": repo.casefold(), "repository_id": repository_id, "pinned_at": tx.now}
    await tx.run(tx.insert(pinned_repository).values(row).on_conflict_do_nothing())
    query = sa.select(PIN.repository_id).where(PIN.name == repo.casefold())
    pinned_to: int = (await tx.run(query)).scalar_one()
    return pinned_to


async def keep(tx: Transaction, named: Collection[str]) -> None:
    """Forget names that the settings no longer have."""
    await tx.run(sa.delete(pinned_repository).where(PIN.name.not_in({name.casefold() for name in named})))


async def accept(tx: Transaction, repo: str, repository_id: int) -> int:
    """Pin a name to another id; returns how many deliveries of that repository are handled now."""
    await tx.run(sa.delete(pinned_repository).where(PIN.name == repo.casefold()))
    await pin(tx, repo, repository_id)
    tx.wakes_workers = True
    of_it = (delivery.c.repository_id == repository_id, sa.func.lower(delivery.c.repo) == repo.lower())
    change = {"state": "stored", "attempts": 0, "error": None}  # due since it was parked
    parked = sa.update(delivery).where(delivery.c.state == "parked", *of_it).values(change)
    return (await tx.run(parked)).rowcount


async def require(tx: Transaction, settings: Settings, payload: dict[str, Any]) -> None:
    """Raise OtherRepository unless a delivery is about the repository that its name means to us.

    The first delivery of an upstream that is not pinned yet pins it.
    """
    repository = payload.get("repository")
    name = repository.get("full_name") if isinstance(repository, dict) else None
    if not isinstance(repository, dict) or not isinstance(name, str):
        return
    known = tx.slot(PINS)
    if not known:
        rows = (await tx.run(ALL)).all()
        moved = {name: now for name, _, now in rows if now}
        known.append(Pins(ids={name: identifier for name, identifier, _ in rows}, moved=moved))
    pins = known[0]
    found, key = repository.get("id"), name.casefold()
    await _note_name(tx, pins, key, name, found)
    if key not in pins.ids and isinstance(found, int) and settings.is_upstream(name) and not tx.replaying:
        pins.ids[key] = await pin(tx, name, found)
    if key in pins.ids and (not isinstance(found, int) or isinstance(found, bool)):
        raise Unreadable("repository.id is missing or of another kind")
    if key in pins.ids and found != pins.ids[key]:
        raise OtherRepository(other(name, pins.ids[key], found))


async def _note_name(tx: Transaction, pins: Pins, key: str, name: str, found: object) -> None:
    """Store that a repository of the settings is heard of under another name, or under its own again."""
    if tx.replaying or found not in pins.ids.values():
        return
    if key in pins.ids:
        if found == pins.ids[key] and key in pins.moved:
            del pins.moved[key]
            await tx.run(sa.update(pinned_repository).where(PIN.name == key).values(moved_to=None))
        return
    for mine in [mine for mine, identifier in pins.ids.items() if identifier == found]:
        if pins.moved.get(mine) != name:
            pins.moved[mine] = name
            await tx.run(sa.update(pinned_repository).where(PIN.name == mine).values(moved_to=name))
            log.error("upstream was renamed or transferred", repo=mine, now=name, todo=has_moved(mine, name))


async def note_reached(tx: Transaction, repo: str, refusal: str | None) -> None:
    """Store why what is open in a repository of the settings could not be listed; None: it could."""
    changed = PIN.unreachable.is_distinct_from(refusal)
    same = PIN.name == repo.casefold()
    await tx.run(sa.update(pinned_repository).where(same, changed).values(unreachable=refusal))


async def read_problems(tx: Transaction, named: Collection[str]) -> tuple[list[str], list[str]]:
    """Return why nothing is done for repositories of the settings: they have moved, or cannot be reached."""
    rows = {row["name"]: row for row in await tx.fetch(PROBLEMS)}
    known = [(repo, row) for repo in named if (row := rows.get(repo.casefold()))]
    moved = [has_moved(repo, now) for repo, row in known if (now := row["moved_to"])]
    refused = [
        (repo, row["unreachable"]) for repo, row in known if row["unreachable"] and not row["moved_to"]
    ]
    return moved, [f"{repo} cannot be reached: {reason}" for repo, reason in refused]


def has_moved(repo: str, now: str) -> str:
    """Return what is wrong where a repository has another name, with the next step."""
    return f"{repo} is {now} now, and nothing of it is dispatched: write its new name into UPSTREAM_REPO"


def other(repo: str, mine: int, found: object) -> str:
    """Return what is wrong where a name has another id, with the next step."""
    return (
        f"{repo} is repository {mine}, and this is {found}: if that is right, `ootbot upstream accept {repo}`"
    )


class PinnedIds:
    """The ids that tokens are asked for; read again every few seconds."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._cached: TTLCache[str, dict[str, int]] = TTLCache(
            1, READ_AGAIN, timer=lambda: store.clock.now() / 1000
        )

    async def of(self, repo: str) -> int | None:
        """Return the id a name is pinned to, None where it is not."""
        known = self._cached.get("")
        if known is None:
            async with self._store.read() as tx:
                known = self._cached[""] = await pinned_ids(tx)
        return known.get(repo.casefold())


async def check(target: Target) -> list[Finding]:
    """Check for `ootbot doctor` that the names in the settings still mean the same repositories."""
    if not await target.has_database():
        return []
    try:
        async with target.store.read() as tx:
            ids = await pinned_ids(tx)
    except StoreUnavailable:  # no database yet, or an older one: other checks say so
        return []
    found = []
    for repo, mine in sorted(ids.items()):
        try:
            now = await id_of(target.app_for(repo), repo)
        except (GitHubRefused, RetryLater):  # other checks say so
            continue
        if now == mine:
            found.append(ok(CHECK, f"{repo} is repository {mine}"))
        else:
            detail = f"{repo} is repository {now} now, and was {mine}: what happens there has no effect"
            todo = (
                f"the right name in the settings, or if that is upstream now: ootbot upstream accept {repo}"
            )
            found.append(error(CHECK, detail, todo))
    return found


async def id_of(app: GitHubApp, repo: str) -> int:
    """Return the id of the repository that has a name at GitHub now."""
    return int((await app.by_name(repo, metadata="read").repository())["id"])
