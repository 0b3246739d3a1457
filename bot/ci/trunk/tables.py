"""Tables of the grid: columns, cells, commits of branches, sums by day, changes of state."""

from __future__ import annotations

import sqlalchemy as sa

from bot.db.columns import Big, column, metadata, must

ci_column = sa.Table(  # a job, named without shard and runner
    "ci_column",
    metadata,
    sa.Column("id", Big, primary_key=True),
    must("repository_id", Big),
    must("workflow", sa.Text),
    must("job", sa.Text),
    must("base_name", sa.Text),
    must("config", sa.Text),
    must("flags", sa.Text),  # comma separated
    sa.UniqueConstraint("repository_id", "workflow", "job", name="uq_ci_column"),
)

ci_cell = sa.Table(  # one job of GitHub on a commit: the narrow copy of workflow_job that grids are read from
    "ci_cell",
    metadata,
    must("repository_id", Big),
    must("head_sha", sa.Text),
    must("column_id", Big),
    must("job_id", Big),
    column("numbered_column_id", Big),  # the column it has where its numbers turn out to be no shard
    must("run_id", Big),
    must("attempt", sa.Integer),
    must("shard", sa.Integer),  # 0: none
    must("shards", sa.Integer),
    must("state", sa.SmallInteger),  # see bot.ci.trunk.cells, as the next one
    must("conclusion", sa.SmallInteger),
    column("queued_at", Big),
    column("started_at", Big),
    column("completed_at", Big),
    column("runner_label", sa.Text),
    column("signature", sa.Text),  # of the failure, where its log was read
    column("line", sa.Text),  # the line that says why it failed
    column("tests_failed", sa.Integer),
    sa.PrimaryKeyConstraint("repository_id", "head_sha", "column_id", "job_id", name="pk_ci_cell"),
    sa.Index("ix_ci_cell_job", "repository_id", "job_id"),
)

branch_commit = sa.Table(  # a line of the grid: the head of a push, or a commit that GitHub lists
    "branch_commit",
    metadata,
    must("repository_id", Big),
    must("branch", sa.Text),
    must("sha", sa.Text),
    column("parent", sa.Text),  # the line before: the head before the push, or the first parent
    column("replaces", sa.Text),  # the head that a forced push took from the branch
    must("at", Big),
    must("title", sa.Text),
    column("author", sa.Text),
    column("pr_number", Big),
    must("folded", sa.Integer),  # further commits that came with it
    must("gone", sa.Boolean),  # no longer on the branch
    sa.PrimaryKeyConstraint("repository_id", "branch", "sha", name="pk_branch_commit"),
    sa.Index("ix_branch_commit_at", "repository_id", "branch", "at", "sha"),
    sa.Index("ix_branch_commit_sha", "sha", "repository_id"),
)
