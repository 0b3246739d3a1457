"""The daily sums of a branch and of a repository's runners: how a day of each is counted from its rows."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from bot.ci.trunk import counting, day_rows, grid, lines, reading, record_changes, rows, stored_cells
from bot.ci.trunk.settings import TrunkSettings
from bot.ci.trunk.tables import ci_day, ci_line, ci_runner_day
from bot.oot.statistics import histogram

if TYPE_CHECKING:
    from bot.ci.trunk.counting import RunTimes
    from bot.context import Context
    from bot.queue.sums import Counted, Place

COMMITS_MOST = 1_000  # of a day


async def count_branch(context: Context, place: Place) -> Counted | None:
    """Count a day of a watched branch, in a thread, so that nothing else has to wait."""
    (identifier, name), settings = place.group, context.settings
    async with context.store.read() as tx:
        branch = await record_changes.find_branch(tx, settings, identifier, name)
        if branch is None:
            return None
        commits = await day_rows.commits_of_day(tx, identifier, name, place.day, limit=COMMITS_MOST)
    shas = [row["sha"] for row in commits]
    await stored_cells.make(context.store, identifier, shas)
    async with context.store.read() as tx:
        commits = await day_rows.commits_of_day(tx, identifier, name, place.day, limit=COMMITS_MOST)
        shas = [row["sha"] for row in commits]
        facts = await reading.facts(tx, settings, branch, lines.in_order(commits))
        times = await day_rows.times_of_commits(tx, identifier, shas)
        seconds = await day_rows.seconds_by_column(tx, identifier, shas)
    return await asyncio.to_thread(_branch_rows, facts, times, seconds, settings.of(TrunkSettings))


async def count_runners(context: Context, place: Place) -> Counted | None:
    """Count the jobs of an upstream repository that were created on a day."""
    (identifier,), settings = place.group, context.settings
    async with context.store.read() as tx:
        found = await rows.repository(tx, {identifier})
        if found is None or not settings.is_upstream(found["full_name"]):
            return None
        times = await day_rows.times_of_day(tx, identifier, place.day)
    return await asyncio.to_thread(_runner_rows, times, settings.of(TrunkSettings))


def _branch_rows(
    facts: grid.Facts, times: list[RunTimes], seconds: dict[str, int], options: TrunkSettings
) -> Counted:
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


def _runner_rows(times: list[RunTimes], options: TrunkSettings) -> Counted:
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
