"""Tables of collecting: artifacts, what was fetched of them and of logs, the read budget, storage by day."""

from __future__ import annotations

import sqlalchemy as sa

from bot.db.columns import Big, Float, Json, column, metadata, must, partial_index

ci_artifact = sa.Table(
    "ci_artifact",
    metadata,
    must("repository_id", Big),
    must("id", Big),
    must("run_id", Big),
    must("run_attempt", sa.Integer),
    column("job_id", Big),  # None: of the run, not attributed to a job
    must("name", sa.Text),  # from outside
    must("kind", sa.Text),
    must("size_in_bytes", Big),
    column("digest", sa.Text),  # sha256:..., of uploads by the present actions
    column("created_at", Big),
    column("updated_at", Big),
    column("expires_at", Big),
    must("expired", sa.Boolean),
    must("head_sha", sa.Text),
    must("trusted", sa.Boolean),
    must("flags", Json),  # what did not fit together: foreign_job, foreign_head, foreign_attempt
    sa.PrimaryKeyConstraint("repository_id", "id", name="pk_ci_artifact"),
    sa.Index("ix_ci_artifact_run", "repository_id", "run_id", "id"),
    sa.Index("ix_ci_artifact_head_sha", "head_sha", "repository_id", "id"),
    sa.Index("ix_ci_artifact_name", "repository_id", "name", "id"),
)

ci_fetch = sa.Table(
    "ci_fetch",
    metadata,
    must("repository_id", Big),
    must("kind", sa.Text),  # log | artifact
    must("object_id", Big),
    must("run_id", Big),
    must("run_attempt", sa.Integer),
    column("job_id", Big),
    must("state", sa.Text),  # see bot.ci.collect.states
    must("tries", sa.Integer),
    column("due_at", Big),  # when it is asked for again
    column("size", Big),
    column("sha256", sa.Text),
    column("blob", sa.Text),
    column("parser", sa.Text),  # the kind of file it was read as
    column("error", sa.Text),  # the reason, in words
    must("asked_at", Big),
    column("done_at", Big),
    sa.PrimaryKeyConstraint("repository_id", "kind", "object_id", name="pk_ci_fetch"),
    sa.Index("ix_ci_fetch_run", "repository_id", "run_id", "kind", "object_id"),
    sa.Index("ix_ci_fetch_asked_at", "asked_at"),
)
partial_index("ix_ci_fetch_wanted", ci_fetch.c.asked_at, where=ci_fetch.c.state == "wanted")
partial_index("ix_ci_fetch_blob", ci_fetch.c.blob, where=ci_fetch.c.blob.is_not(None))

ci_listing = sa.Table(  # the passes over a run's artifacts
    "ci_listing",
    metadata,
    must("repository_id", Big),
    must("run_id", Big),
    must("run_attempt", sa.Integer),
    must("passes", sa.Integer),
    must("artifacts", sa.Integer),  # found by the last pass
    must("state", sa.Text),  # listed | forbidden | absent | skipped
    column("error", sa.Text),
    must("at", Big),
    sa.PrimaryKeyConstraint("repository_id", "run_id", "run_attempt", name="pk_ci_listing"),
)

ci_budget = sa.Table(  # what an account's installation has spent on collecting
    "ci_budget",
    metadata,
    sa.Column("account", sa.Text, primary_key=True),  # case folded
    must("calls", Float),  # that may be made now
    must("bytes", Float),  # that may be downloaded now; below zero after a large file
    must("at", Big),  # when these two were computed
    must("minutes", Json),  # of the last hour: minute -> [calls, bytes]
)

ci_storage_day = sa.Table(  # artifacts by repository, workflow and day of creation
    "ci_storage_day",
    metadata,
    must("repository_id", Big),
    must("day", sa.Integer),  # days since 1970
    must("workflow", sa.Text),
    must("artifacts", Big),
    must("bytes", Big),
    sa.PrimaryKeyConstraint("repository_id", "day", "workflow", name="pk_ci_storage_day"),
)

ci_upload = sa.Table(  # files that backends on another CI upload
    "ci_upload",
    metadata,
    sa.Column("id", Big, primary_key=True),
    must("backend", sa.Text),
    must("backend_key", sa.Text),  # case folded
    must("repository_id", Big),  # as the token has it, 0 where it has none
    must("dispatch_id", sa.Text),  # empty: of a run that nobody dispatched
    column("event_type", sa.Text),  # of such a run: nightly, periodic or push
    column(
        "commit_sha", sa.Text
    ),  # that it claims to have tested: upstream's, or the backend's own of a push
    must("kind", sa.Text),
    must("run_id", sa.Text),  # of any CI
    must("run_attempt", sa.Integer),
    must("workflow", sa.Text),  # these three as the backend calls them
    must("job", sa.Text),
    must("name", sa.Text),
    must("size", Big),
    must("sha256", sa.Text),
    must("blob", sa.Text),
    must("received_at", Big),
    sa.Index("ix_ci_upload_backend_key", "backend_key", "received_at"),
    sa.Index("ix_ci_upload_dispatch_id", "dispatch_id"),
)

ci_default = sa.Table(  # what an unset option means on this database, where that is not its default
    "ci_default",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    must("value", sa.Text),
)
