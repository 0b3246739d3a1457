"""What is kept of days gone by? The daily numbers of each backend, and since when it stands at its level."""

from __future__ import annotations

import sqlalchemy as sa

from bot.domain.tally import ADDED
from bot.store.columns import Big, Json, metadata
from bot.store.columns import must as _must

HISTOGRAMS = ("execution", "queue", "whole")
COUNTS = tuple(name for name in ADDED if name not in HISTOGRAMS)

oot_day = sa.Table(
    "oot_day",
    metadata,
    _must("backend_key", sa.Text),  # the name, case folded
    _must("day", sa.Integer),  # days since 1970, UTC
    _must("upstream_key", sa.Text),  # case folded too: what is private is left out
    _must("event_type", sa.Text),
    _must("backend", sa.Text),
    _must("level", sa.Integer),
    *(_must(name, Big) for name in COUNTS),
    *(_must(name, sa.LargeBinary) for name in HISTOGRAMS),  # see domain.histogram
    _must("hours", Json),
    _must("last_at", Big),
    _must("written_at", Big),
    sa.PrimaryKeyConstraint("backend_key", "day", "upstream_key", "event_type", name="pk_oot_day"),
)
sa.Index("ix_oot_day_day", oot_day.c.day, oot_day.c.written_at, oot_day.c.backend_key)

oot_stale_day = sa.Table(
    "oot_stale_day",
    metadata,
    _must("day", sa.Integer),
    _must("backend_key", sa.Text),
    _must("mark", Big),  # a random number, another one each time rows of that day change
    sa.PrimaryKeyConstraint("day", "backend_key", name="pk_oot_stale_day"),
)

oot_level = sa.Table(
    "oot_level",
    metadata,
    _must("backend_key", sa.Text),
    _must("since", Big),
    _must("level", sa.Integer),  # 0: not on the allowlist any more
    sa.PrimaryKeyConstraint("backend_key", "since", name="pk_oot_level"),
)
