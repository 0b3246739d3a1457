"""What is kept of the installation as a whole? What it has used of GitHub's patience, which versions may use it."""

from __future__ import annotations

import sqlalchemy as sa

from bot.store.columns import Big, Json, metadata
from bot.store.columns import must as _must

oot_budget = sa.Table(
    "oot_budget",
    metadata,
    _must("app_id", Big),
    _must("account", sa.Text),  # whose installation; app: the App itself
    _must("next_write", Big),  # when the write after those reserved may go
    _must("blocked_until", Big),  # GitHub asked for it
    _must("pressed_until", Big),  # until then gates and verdicts go first
    # when each of the last hour went: a sliding hour needs every single time
    _must("creations", Json),
    _must("dispatches", Json),  # the same of the last minute
    sa.PrimaryKeyConstraint("app_id", "account", name="pk_oot_budget"),
)

schema_support = sa.Table(  # one row
    "schema_support",
    metadata,
    # the revision that the oldest program knows which may use it
    sa.Column("oldest", sa.Text, primary_key=True),
)
