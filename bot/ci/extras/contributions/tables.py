"""Tables of contributions: pull requests of outside people, and sums by day."""

from __future__ import annotations

from typing import TypedDict

import sqlalchemy as sa

from bot.ci.extras.tables import OfRepository
from bot.db.rows import Big, Int, Json, Millis, Text, table


class Contribution(TypedDict):
    """A pull request of an outside contributor, open or merged."""

    number: Big
    login: Text
    state: Text  # open | merged
    created_at: Millis
    day: Int | None  # on which it was merged
    merged_at: Millis | None
    reviewed_at: Millis | None  # first, by a member


class ContributionRow(OfRepository, Contribution):
    """The same of a repository."""


contribution_pull = table(
    "contribution_pull",
    ContributionRow,
    sa.Index("ix_contribution_pull_day", "repository_id", "day"),
    sa.Index("ix_contribution_pull_login", "repository_id", "login", "day"),
    sa.Index("ix_contribution_pull_waiting", "repository_id", "state", "created_at"),
    key=("repository_id", "number"),
)


class ContributionDay(TypedDict):
    """What was merged on a day."""

    day: Int
    pr_count: Int
    users: Json[list[str]]
    new_users: Int  # of whom nothing was merged before
    review_hours: Json[list[float]]  # to the first review by a member, of those that had one
    merge_hours: Json[list[float]]


class ContributionDayRow(OfRepository, ContributionDay):
    """The same of a repository."""


contribution_day = table("contribution_day", ContributionDayRow, key=("repository_id", "day"))
