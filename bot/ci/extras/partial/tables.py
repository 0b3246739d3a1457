"""The table of running runs whose artifacts were listed."""

from __future__ import annotations

from typing import TypedDict

import sqlalchemy as sa

from bot.db.rows import Big, Int, Millis, table


class RunningListing(TypedDict):
    """When the artifacts of an attempt of a run were last listed while it ran."""

    repository_id: Big
    run_id: Big
    run_attempt: Int
    at: Millis


running_listing = table(
    "running_listing",
    RunningListing,
    sa.Index("ix_running_listing_at", "at"),
    key=("repository_id", "run_id", "run_attempt"),
)
