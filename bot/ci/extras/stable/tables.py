"""The table of stable commits: each move of a branch's last good commit."""

from __future__ import annotations

from typing import TypedDict

import sqlalchemy as sa

from bot.db.rows import Big, Int, Millis, Text, table


class StableKey(TypedDict):
    """Which commit of which branch."""

    repository_id: Big
    branch: Text
    sha: Text


class StablePush(TypedDict):
    """When it became the last good commit."""

    committed_at: Millis
    title: Text
    jobs_passed: Int  # jobs that passed on it
    day: Int
    at: Millis  # when that was found


class StablePushRow(StableKey, StablePush):
    """A move of a branch's last good commit."""


stable_push = table(
    "stable_push",
    StablePushRow,
    sa.Index("ix_stable_push_at", "repository_id", "at"),
    sa.Index("ix_stable_push_day", "day"),
    key=("repository_id", "branch", "sha"),
)
