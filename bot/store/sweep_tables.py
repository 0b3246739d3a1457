"""What is kept of the periodic looks at GitHub, and of the deliveries they found missing?"""

from __future__ import annotations

import sqlalchemy as sa

from bot.store.columns import Big, metadata
from bot.store.columns import column as _column
from bot.store.columns import must as _must

sweep = sa.Table(
    "sweep",
    metadata,
    _must("app_id", Big),  # 0 where no App is concerned
    _must("name", sa.Text),  # what is swept: redeliver, reconcile, archive, ...
    _must("created_at", Big),
    _column("tried_at", Big),  # when the first try since the last complete one began
    _column("reached", Big),  # everything before was looked at
    _column("finished_at", Big),  # the last complete one
    _must("found", Big),
    sa.PrimaryKeyConstraint("app_id", "name", name="pk_sweep"),
)

missed_delivery = sa.Table(
    "missed_delivery",
    metadata,
    _must("app_id", Big),
    _must("guid", sa.Text),
    _must("log_id", Big),  # GitHub's id of one attempt, by which it is asked for again
    _must("event", sa.Text),
    _column("repository_id", Big),  # none where it is about an account
    _must("delivered_at", Big),
    _must("asks", sa.Integer),
    _must("asked_at", Big),
    _must("lost", sa.Boolean),  # GitHub's log does not hold it any more
    sa.PrimaryKeyConstraint("app_id", "guid", name="pk_missed_delivery"),
)
