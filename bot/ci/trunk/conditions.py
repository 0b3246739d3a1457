"""Conditions of watched branches that notices report: jobs that broke, and jobs that were repaired."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from cachetools import LRUCache

from bot.ci.trunk.branch_standing import Standing, read_standing
from bot.ci.trunk.reading import Branch
from bot.ci.trunk.settings import TrunkSettings
from bot.ci.trunk.store import branch_marks, branches, rows
from bot.core import text
from bot.core.conditions import Condition, Subject
from bot.core.resources import Resource
from bot.ingest import watched
from bot.oot.allowlist import rows as allowlists

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from bot.ci.trunk.branch_standing import Trouble
    from bot.context import Context
    from bot.core.conditions import Scope
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.oot.allowlist.allowlist import Entry

EVENT = "trunk_broken"
MOST_KNOWN = 200  # branches that are remembered
KNOWN_FOR = 600_000  # milliseconds after which a branch is read again, though nothing seems to have changed


class Standings:
    """How branches stand, read again once a job of their newest commits has changed."""

    def __init__(self) -> None:
        self._known: LRUCache[tuple[int, str], tuple[object, int, Standing]] = LRUCache(MOST_KNOWN)

    async def close(self) -> None:
        """Nothing is open."""

    async def read(self, tx: Transaction, settings: Settings, branch: Branch) -> Standing:
        """Return how a branch stands."""
        key = (branch.repository["repository_id"], branch.name)
        mark = await branch_marks.read_mark(tx, *key)
        known: tuple[object, int, Standing] | None = self._known.get(key)
        sees_all = settings.of(TrunkSettings).ci_checks == "off"  # a check of another App leaves no mark
        if known and sees_all and known[0] == mark and 0 <= tx.now - known[1] < KNOWN_FOR:
            return known[2]
        found = await read_standing(tx, settings, branch)
        self._known[key] = (mark, tx.now, found)
        return found


STANDINGS: Resource[Standings] = Resource("branch standings", lambda _context: Standings())


async def read_conditions(context: Context, tx: Transaction, scope: Scope) -> list[Condition]:
    """Return which jobs are broken on watched branches, and which of those that were told no longer are."""
    allowlist = await allowlists.in_force(tx)
    entries = allowlist.entries if allowlist else ()
    labels = {(entry.device or entry.repo).casefold(): entry for entry in entries}
    found: list[Condition] = []
    async for branch in watched_branches(tx, context.settings, scope):
        standing = await context.resource(STANDINGS).read(tx, context.settings, branch)
        found += _broken(branch, standing, labels, scope)
        found += _repaired(branch, standing, labels, scope)
    return found


async def watched_branches(tx: Transaction, settings: Settings, scope: Scope) -> AsyncIterator[Branch]:
    """Yield the watched branches that may be shown."""
    for repo in settings.upstream_repo:
        repository = (
            None if scope.hidden.has(repo) else await rows.repository(tx, await watched.ids(tx, repo))
        )
        if repository is None or scope.hidden.has(repository["full_name"], repository["repository_id"]):
            continue
        names = frozenset(await watched.names_of_same_repository(tx, repository["full_name"]))
        for name in await branches.watched_names(tx, settings, repository):
            yield Branch(repository=repository, names=names, name=name)


def _broken(
    branch: Branch, standing: Standing, labels: Mapping[str, Entry], scope: Scope
) -> Iterator[Condition]:
    for one in standing.troubles:
        entry = labels.get((one.backend or "").casefold())
        if entry is not None and scope.hidden.has(entry.repo):
            continue
        which = "" if one.blocks else "watched jobs on "
        yield Condition(
            event=EVENT,
            key=_key(branch, one.name),
            holds=True,
            heading=f"{which}{branch.name} of {branch.repository['full_name']} broke",
            lines=(_line(one),),
            since=one.first_bad["at"],
            subject=_subject(branch, entry, one.backend),
        )


def _repaired(
    branch: Branch, standing: Standing, labels: Mapping[str, Entry], scope: Scope
) -> Iterator[Condition]:
    """Yield what was told to be broken on a branch and passes. Without a result nothing is known to be repaired."""
    for name in sorted(standing.passing):
        key = _key(branch, name)
        if key not in scope.told_of(EVENT):
            continue
        backend = name.split(" / ")[1] if name.startswith("backends / ") else None
        yield Condition(
            event=EVENT,
            key=key,
            holds=False,
            heading=f"{branch.name} of {branch.repository['full_name']}: jobs are repaired",
            lines=(name,),
            subject=_subject(branch, labels.get((backend or "").casefold()), backend),
        )


def _subject(branch: Branch, entry: Entry | None, backend: str | None) -> Subject:
    repo = branch.repository["full_name"]
    return Subject(
        repo=repo,
        branch=branch.name,
        backend=entry.repo if entry else backend or "",
        oncalls=entry.oncalls if entry else (),
        path=f"/hud/{repo}/{quote(branch.name)}",
    )


def _line(one: Trouble) -> str:
    good = f", last good {text.short(one.last_good['sha'])}" if one.last_good else ""
    why = f": {one.line}" if one.line else ""
    return f"{one.name} fails since {text.short(one.first_bad['sha'])}{good}{why}"


def _key(branch: Branch, name: str) -> str:
    """Return the key of a broken job; no name of a branch has a colon."""
    return f"{branch.repository['repository_id']}:{branch.name}:{name}"
