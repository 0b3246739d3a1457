"""Versions of the allowlist, and since when each backend stands at its level."""

from __future__ import annotations

import sqlalchemy as sa

from bot.db.columns import Big, metadata
from bot.db.columns import column as _column
from bot.db.columns import must as _must

allowlist_version = sa.Table(
    "allowlist_version",
    metadata,
    sa.Column("id", Big, primary_key=True),
    _must("digest", sa.Text),
    _must("source", sa.Text),
    _must("content", sa.Text),
    _must("valid", sa.Boolean),
    _column("error", sa.Text),
    _must("loaded_at", Big),
    _column("default_events", sa.Text),  # of entries that name none, when it was read; null: pull_request
)


oot_level = sa.Table(
    "oot_level",
    metadata,
    _must("backend_key", sa.Text),
    _must("since", Big),
    _must("level", sa.Integer),  # 0: not on the allowlist any more
    sa.PrimaryKeyConstraint("backend_key", "since", name="pk_oot_level"),
)
