"""Deleting what the grid keeps once it is as old as records get: cells, commits, sums by day, changes of state."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.ci.trunk.store import commit_words
from bot.ci.trunk.tables import (
    branch_commit,
    ci_broken,
    ci_cell,
    ci_column,
    ci_commit,
    ci_day,
    ci_line,
    ci_runner_day,
    folded_commit,
    trunk_branch,
    trunk_event,
)
from bot.ingest.prune import delete_rows
from bot.ingest.tables import records
from bot.queue.sums import DAY

if TYPE_CHECKING:
    from bot.context import Context

CELL, COLUMN, COMMIT, EVENT, STORED = ci_cell.c, ci_column.c, branch_commit.c, trunk_event.c, ci_commit.c
JOB = records["workflow_job"].c
MARGIN = 7  # days that columns are kept longer than cells: some of these go only after their records


async def delete_old_rows(context: Context) -> dict[str, int]:
    """Delete what is past the retention of records."""
    before = context.clock.now() - context.settings.record_retention_days * DAY
    first = before // DAY  # the oldest day that is kept
    return {
        "cells": await _cells(context, before),
        "columns": await delete_rows(context, ci_column, COLUMN.seen.between(1, first - MARGIN - 1)),
        "commits of branches": sum(
            [
                await delete_rows(context, table, table.c.at < before)
                for table in (branch_commit, folded_commit)
            ]
        ),
        "words of commits": await commit_words.forget_words(context),
        "branches": sum(
            [await delete_rows(context, table, ~_known(table)) for table in (ci_broken, trunk_branch)]
        ),
        "changes of jobs": await delete_rows(context, trunk_event, _old_event(before)),
        "sums of CI": sum(
            [
                await delete_rows(context, table, table.c.day < first)
                for table in (ci_day, ci_line, ci_runner_day)
            ]
        ),
    }


async def _cells(context: Context, before: int) -> int:
    """Delete old cells, repository by repository: the index of their times begins with it."""
    async with context.store.read() as tx:
        query = sa.select(COLUMN.repository_id).distinct().order_by(COLUMN.repository_id)
        repositories = list((await tx.run(query)).scalars())
    deleted = 0
    for repository in repositories:
        for old in (CELL.queued_at < before, sa.and_(CELL.queued_at.is_(None), _old_otherwise(before))):
            deleted += await delete_rows(context, ci_cell, sa.and_(CELL.repository_id == repository, old))
    await delete_rows(context, ci_commit, ~_has_cells())
    return deleted


def _has_cells() -> sa.ColumnElement[bool]:
    """Return whether any job is kept that ran on a commit."""
    return sa.exists().where(CELL.repository_id == STORED.repository_id, CELL.head_sha == STORED.head_sha)


def _old_otherwise(before: int) -> sa.ColumnElement[bool]:
    """Return whether a cell is old that does not say when its job was created; without any time, its record tells."""
    recorded = sa.exists().where(JOB.repository_id == CELL.repository_id, JOB.id == CELL.job_id)
    at = sa.func.coalesce(CELL.completed_at, CELL.started_at)
    return sa.or_(at < before, sa.and_(at.is_(None), ~recorded))


def _old_event(before: int) -> sa.ColumnElement[bool]:
    """Return whether a change is old; one without a time is as old as the commit that it began with."""
    known = sa.exists().where(
        COMMIT.repository_id == EVENT.repository_id,
        COMMIT.branch == EVENT.branch,
        COMMIT.sha == EVENT.first_bad,
    )
    return sa.or_(EVENT.at < before, sa.and_(EVENT.at.is_(None), ~known))


def _known(table: sa.Table, *also: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    """Return whether any commit is kept of the branch that a row of this table is about."""
    same = (COMMIT.repository_id == table.c.repository_id, COMMIT.branch == table.c.branch)
    return sa.exists().where(*same, *also)
