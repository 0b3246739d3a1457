"""Tables of comparisons: failed jobs compared with the same elsewhere, merge bases."""

from __future__ import annotations

import sqlalchemy as sa

from bot.db.columns import Big, metadata
from bot.db.columns import column as _column
from bot.db.columns import must as _must

oot_compared = sa.Table(
    "oot_compared",
    metadata,
    sa.Column("job_key", sa.Text, primary_key=True),
    _must("completed_at", Big),  # the job's: a later completion is compared again
    _must("history", sa.Text),
    _column("url", sa.Text),
    _must("elsewhere", sa.Boolean),
)


oot_merge_base = sa.Table(
    "oot_merge_base",
    metadata,
    _must("upstream_repo", sa.Text),
    _must("head_sha", sa.Text),
    _must("base_ref", sa.Text),
    _column("merge_base", sa.Text),  # null: GitHub knows none
    _must("asked_at", Big),
    sa.PrimaryKeyConstraint("upstream_repo", "head_sha", "base_ref", name="pk_oot_merge_base"),
)
