"""Tables of how long tests take."""

from __future__ import annotations

import sqlalchemy as sa

from bot.db.columns import Big, Json, metadata, must

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

test_rerun = (
    sa.Table(  # how often a disabled test passed and failed in a job that runs such tests over and over
        "test_rerun",
        metadata,
        must("generation", Big),  # of the job
        must("name", sa.Text),
        must("suite", sa.Text),
        must("file", sa.Text),
        must("green", sa.Integer),
        must("red", sa.Integer),
        must("flaky", sa.Boolean),
        must("repository_id", Big),
        must("trusted", sa.Boolean),
        must("platforms", Json),  # what the job's platform may be called
        must("at", Big),
        sa.PrimaryKeyConstraint("generation", "name", "suite", "file", name="pk_test_rerun"),
        sa.Index("ix_test_rerun_at", "repository_id", "at"),
    )
)

test_rerun_job = sa.Table(  # a job whose reruns were counted
    "test_rerun_job",
    metadata,
    sa.Column("generation", Big, primary_key=True, autoincrement=False),
    must("at", Big),
)
