"""Tables of the grid: columns, cells, commits of branches, sums by day, changes of state."""

from __future__ import annotations

import sqlalchemy as sa

from bot.db.columns import Big, Json, column, metadata, must

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
    must("seen", sa.Integer, server_default="0"),  # the day, since 1970, UTC, of its newest job
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
    column("runner_label", sa.Text),  # all that the job asks for: see bot.ci.trunk.runner_labels
    column("signature", sa.Text),  # of the failure, where its log was read
    column("line", sa.Text),  # the line that says why it failed
    column("tests_failed", sa.Integer),
    column("failed_tests", sa.Text),  # some of these: see bot.ci.trunk.failed_tests
    column("failure_kind", sa.Text),  # what its log says: infra, test, ...; none: no rule says
    sa.PrimaryKeyConstraint("repository_id", "head_sha", "column_id", "job_id", name="pk_ci_cell"),
    sa.Index("ix_ci_cell_job", "repository_id", "job_id"),
    sa.Index("ix_ci_cell_queued_at", "repository_id", "queued_at"),
)

ci_commit = sa.Table(  # a commit that jobs ran on, with its cells made once until anything of it changes
    "ci_commit",
    metadata,
    must("repository_id", Big),
    must("head_sha", sa.Text),
    must("mark", Big),  # random, replaced each time a job or run of the commit changes
    column("cells", sa.LargeBinary),  # see bot.ci.trunk.commit_cells, as for the next; null: to be made again
    column("outline", sa.LargeBinary),
    sa.PrimaryKeyConstraint("repository_id", "head_sha", name="pk_ci_commit"),
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
    must("listed", sa.Boolean, server_default=sa.false()),  # GitHub's list told of it, no push has
    sa.PrimaryKeyConstraint("repository_id", "branch", "sha", name="pk_branch_commit"),
    sa.Index("ix_branch_commit_at", "repository_id", "branch", "at", "sha"),
    sa.Index("ix_branch_commit_sha", "sha", "repository_id"),
)

folded_commit = sa.Table(  # a commit that came with the push of another one, as GitHub lists it
    "folded_commit",
    metadata,
    must("repository_id", Big),
    must("branch", sa.Text),
    must("sha", sa.Text),
    must("at", Big),
    must("title", sa.Text),
    column("author", sa.Text),
    sa.PrimaryKeyConstraint("repository_id", "branch", "sha", name="pk_folded_commit"),
)

ci_day = sa.Table(  # what a column showed on the commits of one day of a branch
    "ci_day",
    metadata,
    must("repository_id", Big),
    must("branch", sa.Text),
    must("day", sa.Integer),  # of the commits, since 1970, UTC
    must("name", sa.Text),  # of the column
    must("workflow", sa.Text),
    must("cells", sa.Text),  # a character for each commit, oldest first; a space where it has none
    must("seconds", Big),  # that its runs took
    sa.PrimaryKeyConstraint("repository_id", "branch", "day", "name", name="pk_ci_day"),
)

ci_line = sa.Table(  # a commit of a branch as its jobs left it
    "ci_line",
    metadata,
    must("repository_id", Big),
    must("branch", sa.Text),
    must("day", sa.Integer),
    must("place", sa.Integer),  # among the commits of the day, the oldest is 0
    must("sha", sa.Text),
    must("verdict", sa.Text),
    column("red_seconds", Big),  # from the first job's creation to the first blocking failure
    column("signal_seconds", Big),  # to the end of the last blocking job
    must("jobs", sa.Integer),
    must("reruns", sa.Integer),
    must("flaky", sa.Integer),
    must("cancelled_seconds", Big),
    must("seconds", Json),  # of all runs, by runner label
    column(
        "failures", Json
    ),  # runs by the kind of their failure, see bot.ci.trunk.counting; null: not counted then
    sa.PrimaryKeyConstraint("repository_id", "branch", "day", "place", name="pk_ci_line"),
)

ci_runner_day = sa.Table(  # jobs by runner label and day of creation, of all branches and pull requests
    "ci_runner_day",
    metadata,
    must("repository_id", Big),
    must("label", sa.Text),
    must("day", sa.Integer),
    must("jobs", sa.Integer),
    must("queue", sa.LargeBinary),  # see bot.oot.statistics.histogram, as the next one
    must("duration", sa.LargeBinary),
    sa.PrimaryKeyConstraint("repository_id", "label", "day", name="pk_ci_runner_day"),
)

trunk_event = sa.Table(  # changes of a column's state on a branch
    "trunk_event",
    metadata,
    must("repository_id", Big),
    must("branch", sa.Text),
    must("name", sa.Text),  # of the column
    must("first_bad", sa.Text),
    must("state_after", sa.Text),
    must("state_before", sa.Text),
    column("last_good", sa.Text),
    column("signature", sa.Text),
    column("at", Big),  # when the job that decided it ended
    sa.PrimaryKeyConstraint(
        "repository_id", "branch", "name", "first_bad", "state_after", name="pk_trunk_event"
    ),
    sa.Index("ix_trunk_event_at", "repository_id", "branch", "at"),
)

ci_broken = sa.Table(  # how many columns are broken, as last counted
    "ci_broken",
    metadata,
    must("repository_id", Big),
    must("branch", sa.Text),
    must("column_group", sa.Text),
    must("broken", sa.Integer),
    sa.PrimaryKeyConstraint("repository_id", "branch", "column_group", name="pk_ci_broken"),
)

ci_unstable = sa.Table(  # jobs that open issues call unstable
    "ci_unstable",
    metadata,
    must("repository_id", Big),
    must("name", sa.Text),  # as an issue has it
    sa.PrimaryKeyConstraint("repository_id", "name", name="pk_ci_unstable"),
)

branch_rule = sa.Table(  # the checks that GitHub requires on a branch
    "branch_rule",
    metadata,
    must("repository_id", Big),
    must("branch", sa.Text),
    column("contexts", Json),  # their names; null: GitHub has never said
    must("asked_at", Big),
    sa.PrimaryKeyConstraint("repository_id", "branch", name="pk_branch_rule"),
)

trunk_branch = sa.Table(  # whether a branch was deleted: the later of the two times tells
    "trunk_branch",
    metadata,
    must("repository_id", Big),
    must("branch", sa.Text),
    must("pushed_at", Big),  # when the last push to it was received, 0: none was
    must("deleted_at", Big),  # when its deletion was received, 0: it was not
    sa.PrimaryKeyConstraint("repository_id", "branch", name="pk_trunk_branch"),
)
