"""The task `trunk`: counts stale days again, and records how columns changed. Key: nothing.

Everything is computed from the rows as they are, so neither the order of deliveries nor a run that was cut short
leaves a trace.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.ci.trunk import (
    branches,
    counting,
    day_rows,
    gauge,
    grid,
    lines,
    reading,
    rows,
    stale_days,
    stored_cells,
    trouble,
)
from bot.ci.trunk.reading import Branch
from bot.ci.trunk.settings import TrunkSettings
from bot.ci.trunk.stale_days import RUNNERS, Place
from bot.ci.trunk.tables import ci_day, ci_line, ci_runner_day, trunk_event
from bot.ingest import watched
from bot.oot.statistics import histogram

if TYPE_CHECKING:
    from bot.ci.trunk.counting import RunTimes
    from bot.context import Context
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.queue.tasks import Task

BATCH = 20  # days of one run of the task
COMMITS_MOST = 1_000  # of a day
EVENT_LINES = 100  # newest commits in which changes are looked for


async def run(context: Context, _task: Task) -> None:
    """Count the newest stale days again; what is left waits for the next run."""
    settings = context.settings
    async with context.store.read() as tx:
        stale = await stale_days.newest(tx, BATCH)
        of_days = {place: await _branch(tx, settings, place) for place in stale}
    for place, mark in stale.items():
        branch = of_days[place]
        if branch and place.branch != RUNNERS:
            await _store_cells(context, place)
        made = await _counted(context, place, branch) if branch else None
        async with context.store.transaction() as tx:
            if await stale_days.settle(tx, place, mark) and made:
                await _write(tx, place, made)
    for branch in {
        (each.repository["repository_id"], each.name): each for each in of_days.values() if each
    }.values():
        if branch.name != RUNNERS:
            await _record_changes(context, branch)


async def _branch(tx: Transaction, settings: Settings, place: Place) -> Branch | None:
    """Return the branch of a day, None where nobody watches it."""
    found = await rows.repository(tx, {place.repository_id})
    if found is None or not settings.is_upstream(found["full_name"]):
        return None
    wanted = place.branch == RUNNERS or branches.watched(settings, found, place.branch)
    names = await watched.of_same(tx, found["full_name"])
    return Branch(repository=found, names=frozenset(names), name=place.branch) if wanted else None


async def _store_cells(context: Context, place: Place) -> None:
    """Store the cells of a day's commits where something changed."""
    identifier = place.repository_id
    async with context.store.read() as tx:
        commits = await day_rows.commits_of_day(tx, identifier, place.branch, place.day, limit=COMMITS_MOST)
    await stored_cells.make(context.store, identifier, [row["sha"] for row in commits])


Rows = dict[sa.Table, list[dict[str, object]]]


async def _counted(context: Context, place: Place, branch: Branch) -> Rows:
    """Return the rows of a day as they should be; counted in a thread, so that nobody else has to wait."""
    identifier, settings = place.repository_id, context.settings
    options = settings.of(TrunkSettings)
    if place.branch == RUNNERS:
        async with context.store.read() as tx:
            times = await day_rows.times_of_day(tx, identifier, place.day)
        return await asyncio.to_thread(_runner_rows, times, options)
    async with context.store.read() as tx:
        commits = await day_rows.commits_of_day(tx, identifier, branch.name, place.day, limit=COMMITS_MOST)
        shas = [row["sha"] for row in commits]
        facts = await reading.facts(tx, settings, branch, lines.in_order(commits))
        times = await day_rows.times_of_commits(tx, identifier, shas)
        seconds = await day_rows.seconds_by_column(tx, identifier, shas)
    return await asyncio.to_thread(_branch_rows, facts, times, seconds, options)


def _branch_rows(
    facts: grid.Facts, times: list[RunTimes], seconds: dict[str, int], options: TrunkSettings
) -> Rows:
    # names as they are now: what is hidden, and what a name was before, may change
    found = grid.build(facts, replace(options, ci_hide=(), ci_aliases=()))
    return {
        ci_day: [
            {
                "name": one.name,
                "workflow": one.workflow,
                "cells": one.cells,
                "seconds": seconds.get(one.name, 0),
            }
            for one in counting.column_days(found)
        ],
        ci_line: [
            {"place": at, **{name: getattr(one, name) for name in one.__dataclass_fields__}}
            for at, one in enumerate(counting.line_sums(found, times, options.ci_runners))
        ],
    }


def _runner_rows(times: list[RunTimes], options: TrunkSettings) -> Rows:
    return {
        ci_runner_day: [
            {
                "label": one.label,
                "jobs": one.jobs,
                "queue": histogram.to_bytes(one.queue),
                "duration": histogram.to_bytes(one.duration),
            }
            for one in counting.runner_days(times, options.ci_runners)
        ]
    }


async def _write(tx: Transaction, place: Place, made: Rows) -> None:
    """Replace the rows of a day."""
    for table, found in made.items():
        same = [table.c.repository_id == place.repository_id, table.c.day == place.day]
        key: dict[str, object] = {"repository_id": place.repository_id, "day": place.day}
        if "branch" in table.c:
            same.append(table.c.branch == place.branch)
            key["branch"] = place.branch
        await tx.run(sa.delete(table).where(*same))
        if found:
            await tx.run(sa.insert(table), [{**key, **row} for row in found])


async def _record_changes(context: Context, branch: Branch) -> None:
    """Record how the columns of a branch changed on its newest commits, and how many are broken.

    A change that was recorded stays.
    """
    async with context.store.read() as tx:
        commits, _ = await reading.newest(tx, branch, before=None, limit=EVENT_LINES)
        facts = await reading.facts(tx, context.settings, branch, commits)
    made, broken = await asyncio.to_thread(_changes, branch, facts, context.settings.of(TrunkSettings))
    async with context.store.transaction() as tx:
        await gauge.store(tx, branch, broken)
        if made:
            changed = ("state_before", "last_good", "signature", "at")
            await tx.upsert(trunk_event, made, replaced=changed)


def _changes(
    branch: Branch, facts: grid.Facts, options: TrunkSettings
) -> tuple[list[dict[str, object]], dict[str, int]]:
    """Return the rows of changes, and how many columns of each group are broken."""
    found = grid.build(facts, options).on_branch()
    made = [
        _event(branch, found, place, change)
        for place in range(len(found.columns))
        for change in trouble.changes(found.column(place))
    ]
    return made, gauge.count(found)


def _event(branch: Branch, found: grid.Grid, place: int, change: trouble.Change) -> dict[str, object]:
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
