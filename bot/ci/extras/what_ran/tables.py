"""The table of tests that selection missed: a pull request left their file out, and they failed once it was merged."""

from __future__ import annotations

from typing import TypedDict

import sqlalchemy as sa

from bot.db.rows import Big, Int, Millis, Text, table


class MissKey(TypedDict):
    """Which test of which pull request."""

    repository_id: Big
    pr_number: Big
    test_id: Big


class MissedFailure(MissKey):
    """Where it failed, on a trusted branch."""

    file: Text
    head_sha: Text  # the commit of the pull request there
    run_id: Big
    at: Millis


class MissRow(MissedFailure):
    """A test that selection missed."""

    left_out_run_id: Big  # the run of the pull request that left the file out
    day: Int


td_miss = table(
    "td_miss",
    MissRow,
    sa.Index("ix_td_miss_run", "repository_id", "run_id"),
    sa.Index("ix_td_miss_day", "day"),
    key=("repository_id", "pr_number", "test_id"),
)
