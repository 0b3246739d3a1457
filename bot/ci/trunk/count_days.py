"""The daily sums of a branch and of a repository's runners: how a day of each is counted from its rows."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from bot.ci.trunk import counting, grid, lines, reading, record_changes
from bot.ci.trunk.settings import TrunkSettings
from bot.ci.trunk.store import day_rows, rows, stored_cells
from bot.ci.trunk.tables import ci_day, ci_line, ci_runner_day

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
    await stored_cells.make_cells(context.store, identifier, shas)
    async with context.store.read() as tx:
        commits = await day_rows.commits_of_day(tx, identifier, name, place.day, limit=COMMITS_MOST)
        shas = [row["sha"] for row in commits]
        facts = await reading.read_facts(tx, settings, branch, lines.order_commits(commits))
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
    found = grid.build_grid(facts, replace(options, ci_hide=(), ci_aliases=()))
    return {
        ci_day: counting.column_days(found, seconds),
        ci_line: [
            {"place": place, **sums}
            for place, sums in enumerate(counting.line_sums(found, times, options.ci_runners))
        ],
    }


def _runner_rows(times: list[RunTimes], options: TrunkSettings) -> Counted:
    found = counting.runner_days(times, options.ci_runners)
    return {ci_runner_day: [{"label": label, **counts} for label, counts in found.items()]}
