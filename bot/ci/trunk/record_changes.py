"""The task `trunk_changes`: records how the columns of a branch changed on its newest commits. Key: repository, branch.

It follows each count of a day of the branch. A change that was recorded stays.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from bot.ci.trunk import broken_columns, grid, reading
from bot.ci.trunk.reading import Branch
from bot.ci.trunk.settings import TrunkSettings
from bot.ci.trunk.store import branches, broken_counts, event_rows, rows
from bot.core.errors import GiveUp
from bot.ingest import watched

if TYPE_CHECKING:
    from bot.ci.trunk.tables import EventRow
    from bot.context import Context
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.queue.sums import Place
    from bot.queue.tasks import Task

KIND = "trunk_changes"
EVENT_LINES = 100  # newest commits in which changes are looked for


async def request(tx: Transaction, place: Place) -> None:
    """Have the changes of a branch recorded, once a day of it was counted; sinks may have a copy of the day."""
    identifier, name = place.group
    tx.note_changed("ci_line", [{"repository_id": identifier, "branch": name, "day": place.day}])
    tx.enqueue(KIND, f"{identifier}/{name}")


async def record_changes(context: Context, task: Task) -> None:
    """Record changes of the columns of a branch, and how many of them are broken."""
    repository, _, name = task.key.partition("/")
    if not repository.isdigit():
        raise GiveUp(f"{task.key!r} names no branch")
    async with context.store.read() as tx:
        branch = await find_branch(tx, context.settings, int(repository), name)
        if branch is None:
            return
        commits, _ = await reading.newest_commits(tx, branch, before=None, limit=EVENT_LINES)
        facts = await reading.read_facts(tx, context.settings, branch, commits)
    made, broken = await asyncio.to_thread(_changes, branch, facts, context.settings.of(TrunkSettings))
    async with context.store.transaction() as tx:
        await broken_counts.store_counts(tx, branch, broken)
        if made:
            await event_rows.store_events(tx, made)


async def find_branch(tx: Transaction, settings: Settings, repository_id: int, name: str) -> Branch | None:
    """Return a branch of upstream, None where it is not watched."""
    found = await rows.repository(tx, {repository_id})
    if found is None or not settings.is_upstream(found["full_name"]):
        return None
    if not branches.watched(settings, found, name):
        return None
    names = await watched.names_of_same_repository(tx, found["full_name"])
    return Branch(repository=found, names=frozenset(names), name=name)


def _changes(
    branch: Branch, facts: grid.Facts, options: TrunkSettings
) -> tuple[list[EventRow], dict[str, int]]:
    """Return the rows of changes, and how many columns of each group are broken."""
    found = grid.build_grid(facts, options).on_branch()
    made = [
        _event(branch, found, place, change)
        for place in range(len(found.columns))
        for change in broken_columns.changes(found.column(place))
    ]
    return made, _count_broken(found)


def _event(branch: Branch, found: grid.Grid, place: int, change: broken_columns.Change) -> EventRow:
    cell = found.lines[change.place].cells[place]
    good = change.last_good
    return {
        "repository_id": branch.repository["repository_id"],
        "branch": branch.name,
        "name": found.columns[place].name,
        "first_bad": found.lines[change.first_bad].commit["sha"],
        "state_after": change.after.value,
        "state_before": change.before.value,
        "last_good": None if good is None else found.lines[good].commit["sha"],
        "signature": cell.signature,
        "at": cell.completed_at,
    }


def _count_broken(found: grid.Grid) -> dict[str, int]:
    """Return how many columns of each group are broken; an unstable one never counts.

    A pass on a second try mends nothing, and commits whose jobs still run change nothing.
    """
    counts: dict[str, int] = {}
    for place, column in enumerate(found.columns):
        if column.group != grid.UNSTABLE:
            states = [change.after for change in broken_columns.changes(found.column(place))]
            broken = bool(states) and states[-1] is broken_columns.State.BROKEN
            counts[column.group] = counts.get(column.group, 0) + broken
    return counts
