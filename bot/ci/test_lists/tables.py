"""Tables of how long tests take."""

from __future__ import annotations

import sqlalchemy as sa

from bot.db.columns import Big, metadata, must

test_time = sa.Table(  # of a job's base name and configuration
    "test_time",
    metadata,
    must("repository_id", Big),
    must("base_name", sa.Text),
    must("config", sa.Text),
    must("files", sa.LargeBinary),  # zlib of JSON: seconds by file
    must("classes", sa.LargeBinary),  # the same by file and class, with a NUL between
    must("at", Big),  # of the newest job
    sa.PrimaryKeyConstraint("repository_id", "base_name", "config", name="pk_test_time"),
)

test_time_source = sa.Table(  # which jobs the lists of a repository were made of
    "test_time_source",
    metadata,
    sa.Column("repository_id", Big, primary_key=True, autoincrement=False),
    must("digest", sa.Text),  # of their generations
    must("at", Big),
)
