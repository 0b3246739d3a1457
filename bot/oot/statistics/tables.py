"""Tables of daily sums by backend, and of why jobs failed."""

from __future__ import annotations

import sqlalchemy as sa

from bot.db.columns import Big, Json, metadata
from bot.db.columns import must as _must
from bot.oot.statistics.stats import ADDED

HISTOGRAMS = ("execution", "queue", "whole")
COUNTS = tuple(name for name in ADDED if name not in HISTOGRAMS)
ADDED_LATER = {"not_run": "0", "infra": "0"}  # an older version writes days without them


oot_day = sa.Table(
    "oot_day",
    metadata,
    _must("backend_key", sa.Text),  # case folded
    _must("day", sa.Integer),  # days since 1970, UTC
    _must("upstream_key", sa.Text),  # case folded too; by it, private upstreams are left out
    _must("event_type", sa.Text),
    _must("backend", sa.Text),
    _must("level", sa.Integer),
    *(_must(name, Big, server_default=ADDED_LATER.get(name)) for name in COUNTS),
    *(_must(name, sa.LargeBinary) for name in HISTOGRAMS),  # see bot.oot.statistics.histogram
    _must("hours", Json),
    _must("last_at", Big),
    _must("written_at", Big),
    sa.PrimaryKeyConstraint("backend_key", "day", "upstream_key", "event_type", name="pk_oot_day"),
)


sa.Index("ix_oot_day_day", oot_day.c.day, oot_day.c.written_at, oot_day.c.backend_key)


oot_failure_kind = sa.Table(  # why a job failed, where its log was read and says so
    "oot_failure_kind",
    metadata,
    sa.Column("job_key", sa.Text, primary_key=True),  # of oot_workflow_job
    _must("kind", sa.Text),
)
