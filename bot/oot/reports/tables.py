"""Static keys, and how much was lately accepted of each caller."""

from __future__ import annotations

import sqlalchemy as sa

from bot.db.columns import Big, metadata
from bot.db.columns import column as _column
from bot.db.columns import must as _must

oot_key = sa.Table(
    "oot_key",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),  # the part of a static key that is no secret
    _must("repo", sa.Text),
    _must("digest", sa.LargeBinary),  # SHA-256 of the secret part
    _must("note", sa.Text),
    _must("created_at", Big),
    _column("used_at", Big),
    _column("revoked_at", Big),
)


oot_rate = sa.Table(
    "oot_rate",
    metadata,
    _must("caller", sa.Text),
    _must("second", Big),  # epoch seconds
    _must("accepted", sa.Integer),
    sa.PrimaryKeyConstraint("caller", "second", name="pk_oot_rate"),
)
