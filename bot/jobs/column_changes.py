"""How columns change on the newest commits of a branch, and how many are broken.

Task `trunk_changes`, key: repository and branch.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.core import metrics
from bot.core.errors import GiveUp
from bot.db.rows import select
from bot.ingest import repositories
from bot.jobs import branch_history, branch_reads, branches, grid, rows
from bot.jobs.branch_reads import Branch
from bot.jobs.settings import BRANCHES_MOST, TrunkSettings
from bot.jobs.tables import EventRow, ci_broken, trunk_event

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bot.context import Context
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.queue.sums import SumPlace
    from bot.queue.tasks import Task
    from bot.web.access import Hidden

CHANGING = ("state_before", "last_good", "signature", "at")
BROKEN = ci_broken.c
CountLabels = tuple[str, str, str]  # repository, branch, group
CHANGES_TASK = "trunk_changes"
EVENT_LINES = 100  # newest commits in which changes are looked for


async def store_events(tx: Transaction, made: Sequence[EventRow]) -> None:
    """Store changes of one branch, and mark for sinks those that are new or differ: most are neither."""
    first = made[0]
    query = select(EventRow, trunk_event).where(
        trunk_event.c.repository_id == first["repository_id"], trunk_event.c.branch == first["branch"]
    )
    known = await tx.fetch(
        query.where(trunk_event.c.first_bad.in_(sorted({row["first_bad"] for row in made})))
    )
    new = [row for row in made if row not in known]
    if new:
        await tx.upsert(trunk_event, [dict(row) for row in new], replaced=CHANGING)
        tx.note_changed("trunk_event", new)


async def store_counts(tx: Transaction, branch: Branch, counts: Mapping[str, int]) -> None:
    """Replace the counts of a branch."""
    key = {"repository_id": branch.repository["repository_id"], "branch": branch.name}
    same = [BROKEN[name] == value for name, value in key.items()]
    await tx.run(sa.delete(ci_broken).where(*same))
    if counts:
        made = [{**key, "column_group": group, "broken": number} for group, number in sorted(counts.items())]
        await tx.run(sa.insert(ci_broken), made)


async def measure_broken(tx: Transaction, settings: Settings, hidden: Hidden) -> Callable[[], None]:
    """Return the metric of broken columns."""
    return partial(metrics.show_broken, await read_counts(tx, settings, hidden))


async def read_counts(tx: Transaction, settings: Settings, hidden: Hidden) -> dict[CountLabels, int]:
    """Return the counts of the watched branches that exist and may be shown."""
    counts: dict[CountLabels, int] = {}
    for repo in settings.upstream_repo:
        ids = set() if hidden.has(repo) else await repositories.read_ids(tx, repo)
        repository = await rows.repository(tx, ids) if ids else None
        if repository is None or hidden.has(repository["full_name"], repository["repository_id"]):
            continue
        identifier = repository["repository_id"]
        query = sa.select(BROKEN.branch, BROKEN.column_group, BROKEN.broken)
        query = query.where(BROKEN.repository_id == identifier).order_by(BROKEN.branch)
        counted = (await tx.run(query)).all()
        wanted = {row.branch for row in counted if branches.is_watched(settings, repository, row.branch)}
        names = sorted(wanted)[:BRANCHES_MOST]
        shown = set(names) - await branches.deleted_branches(tx, identifier, names)
        counts |= {
            (repository["full_name"], row.branch, row.column_group): row.broken
            for row in counted
            if row.branch in shown
        }
    return counts


async def request_changes(tx: Transaction, place: SumPlace) -> None:
    """After a day of a branch is counted, request its changes, and mark the day as changed for sinks."""
    identifier, name = place.group
    tx.note_changed("ci_line", [{"repository_id": identifier, "branch": name, "day": place.day}])
    tx.enqueue(CHANGES_TASK, f"{identifier}/{name}")


async def record_changes(context: Context, task: Task) -> None:
    """Record how the columns of a branch changed, and how many are broken."""
    repository, _, name = task.key.partition("/")
    if not repository.isdigit():
        raise GiveUp(f"{task.key!r} names no branch")
    async with context.store.read() as tx:
        branch = await find_watched_branch(tx, context.settings, int(repository), name)
        if branch is None:
            return
        commits, _ = await branch_reads.newest_commits(tx, branch, before=None, limit=EVENT_LINES)
        facts = await branch_reads.read_facts(tx, context.settings, branch, commits)
    made, broken = await asyncio.to_thread(_changes, branch, facts, context.settings.of(TrunkSettings))
    async with context.store.transaction() as tx:
        await store_counts(tx, branch, broken)
        if made:
            await store_events(tx, made)


async def find_watched_branch(
    tx: Transaction, settings: Settings, repository_id: int, name: str
) -> Branch | None:
    """Return a branch of upstream, None where it is not watched."""
    repository = await rows.repository(tx, {repository_id})
    if repository is None or not settings.is_upstream(repository["full_name"]):
        return None
    if not branches.is_watched(settings, repository, name):
        return None
    names = await repositories.read_names_of_same(tx, repository["full_name"])
    return Branch(repository=repository, names=frozenset(names), name=name)


def _changes(
    branch: Branch, facts: grid.Facts, options: TrunkSettings
) -> tuple[list[EventRow], dict[str, int]]:
    """Return rows of changes, and how many columns of each group are broken."""
    newest = grid.build_grid(facts, options).on_branch()
    made = [
        _event_row(branch, newest, place, change)
        for place in range(len(newest.columns))
        for change in branch_history.changes(newest.column(place))
    ]
    return made, _count_broken(newest)


def _event_row(branch: Branch, newest: grid.Grid, place: int, change: branch_history.StateChange) -> EventRow:
    cell = newest.lines[change.place].cells[place]
    good = change.last_good
    return {
        "repository_id": branch.repository["repository_id"],
        "branch": branch.name,
        "name": newest.columns[place].name,
        "first_bad": newest.lines[change.first_bad].commit["sha"],
        "state_after": change.after.value,
        "state_before": change.before.value,
        "last_good": None if good is None else newest.lines[good].commit["sha"],
        "signature": cell.signature,
        "at": cell.completed_at,
    }


def _count_broken(newest: grid.Grid) -> dict[str, int]:
    """Return how many columns of each group are broken; an unstable one never counts.

    A pass on a second try repairs nothing, and commits whose jobs still run change nothing.
    """
    counts: dict[str, int] = {}
    for place, column in enumerate(newest.columns):
        if column.group != grid.UNSTABLE:
            states = [change.after for change in branch_history.changes(newest.column(place))]
            broken = bool(states) and states[-1] is branch_history.ColumnState.BROKEN
            counts[column.group] = counts.get(column.group, 0) + broken
    return counts
