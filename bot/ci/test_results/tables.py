"""Tables of test results: known tests and environments, what each job said, daily sums, states.

Every job's cases stand in one block; only what did not simply pass has rows of its own. Rows of a job belong to a
generation: those that `test_job` names are shown, others are being written, or left to be deleted.
"""

from __future__ import annotations

import sqlalchemy as sa

from bot.db.columns import Big, Json, column, metadata, must, partial_index

JOB_KEY = ("repository_id", "run_id", "run_attempt", "job_id")

test_class = sa.Table(  # a suite in a file
    "test_class",
    metadata,
    sa.Column("id", Big, primary_key=True),
    must("repository_id", Big),
    must("file", sa.Text),
    must("suite", sa.Text),
    must("last_at", Big),  # the beginning of the day (UTC) on which it was last seen
    sa.UniqueConstraint("repository_id", "file", "suite", name="uq_test_class"),
    sqlite_autoincrement=True,  # no id is ever used again: blocks and sums outlive tests
)

test = sa.Table(
    "test",
    metadata,
    sa.Column("id", Big, primary_key=True),  # in blocks only; pages name a test by its digest
    must("repository_id", Big),
    must("class_id", Big),
    must("digest", sa.LargeBinary),  # see bot.ci.test_results.parse.identity, as for canonical
    must("canonical", Big),  # the same for the same test on every device
    must("name", sa.Text),
    column("declared_name", sa.Text),  # in the source, before a device or type was added
    column("language", sa.Text),
    must("first_at", Big),
    must("last_at", Big),  # the beginning of a day (UTC), as the other `last`
    column("trusted_first_at", Big),  # the same two, of trusted runs alone
    column("trusted_last_at", Big),
    sa.UniqueConstraint("repository_id", "digest", name="uq_test"),
    sa.Index("ix_test_class_id", "class_id", "id"),
    sa.Index("ix_test_canonical", "canonical"),
    sqlite_autoincrement=True,
)

test_env = sa.Table(  # where tests ran
    "test_env",
    metadata,
    sa.Column("id", Big, primary_key=True),
    sa.Column("digest", sa.LargeBinary, nullable=False, unique=True),  # of all other columns
    must("os", sa.Text),  # empty where unknown, as all texts here
    must("arch", sa.Text),
    must("accelerator", sa.Text),
    must("accelerator_version", sa.Text),
    must("device_name", sa.Text),
    must("device_count", sa.Integer),
    must("python", sa.Text),
    must("build", sa.Text),  # the base name of the job
    must("config", sa.Text),
    must(
        "env_group", sa.Text
    ),  # operating system, accelerator and configuration: what results are compared within
)

test_job = sa.Table(
    "test_job",
    metadata,
    must("repository_id", Big),
    must("run_id", Big),  # below 0: of another CI
    must("run_attempt", sa.Integer),
    must("job_id", Big),  # below 0: no job of GitHub's, but the artifact, or the other CI's job, of a name
    must("generation", Big),
    must("head_sha", sa.Text),  # of the repository itself
    column("upstream_sha", sa.Text),  # upstream's commit that was tested; its own runs: head_sha
    column("upstream_repo", sa.Text),
    column("backend", sa.Text),
    column("dispatch_id", sa.Text),
    column("head_branch", sa.Text),
    column("event", sa.Text),
    must("trusted", sa.Boolean),  # may feed baselines, lists and states of its own repository
    column("pr_number", Big),
    must("env_id", Big),
    must("workflow", sa.Text),
    must("name", sa.Text),
    must("family", sa.Text),  # the name without shard and runner, presumed: see bot.ci.collect.job_names
    must("base_name", sa.Text),
    must("config", sa.Text),
    column("shard", sa.Integer),
    column("shards", sa.Integer),
    must("rerun_disabled", sa.Boolean),  # runs disabled tests over and over: counted nowhere else
    must("tests", sa.Integer),
    must("passed", sa.Integer),
    must("failed", sa.Integer),
    must("errors", sa.Integer),
    must("skipped", sa.Integer),
    must("xfailed", sa.Integer),
    must("xpassed", sa.Integer),
    must("flaky", sa.Integer),
    must("crashed", sa.Integer),  # files that gave no report
    must("left_out", sa.Integer),  # failures without a row: there are too many
    must("time_ms", Big),
    must("files", sa.Integer),  # reports that were read
    column("flags", Json),  # of its run report, as texts by name: see bot.ci.test_results.parse.properties
    column("properties", Json),  # likewise
    must("unreadable", Json),  # [{member, reason}]
    must("at", Big),  # when the job began, by GitHub's word
    must("received_at", Big),
    must("counted", Big),  # the generation that the daily sums hold; 0: none
    column("counted_day", sa.Integer),  # where they hold it, in days since 1970
    column("counted_group", sa.Text),  # and for which group of environments
    column("counted_block", sa.LargeBinary),  # of that generation, where it is no longer the one shown
    column("block", sa.LargeBinary),  # see bot.ci.test_results.parse.block
    sa.PrimaryKeyConstraint(*JOB_KEY, name="pk_test_job"),
    sa.Index("ix_test_job_generation", "generation", unique=True),
    sa.Index("ix_test_job_head_sha", "repository_id", "head_sha"),
    sa.Index("ix_test_job_upstream_sha", "upstream_sha"),
    sa.Index("ix_test_job_at", "at"),
)
BASELINE = sa.and_(test_job.c.trusted, sa.not_(test_job.c.rerun_disabled))
UNCOUNTED = sa.or_(  # the daily sums do not hold what they should; literals, for SQLite to use the index
    sa.and_(BASELINE, test_job.c.counted != test_job.c.generation),
    sa.and_(sa.not_(BASELINE), test_job.c.counted != sa.literal_column("0")),
)
partial_index(
    "ix_test_job_family",
    test_job.c.repository_id,
    test_job.c.family,
    test_job.c.at,
    where=BASELINE,
)
partial_index("ix_test_job_uncounted", test_job.c.repository_id, test_job.c.at, where=UNCOUNTED)

test_part = sa.Table(  # one artifact or upload of a job: jobs of several are made of all of them
    "test_part",
    metadata,
    must("repository_id", Big),
    must("run_id", Big),
    must("run_attempt", sa.Integer),
    must("job_id", Big),
    must("object_id", Big),  # as that of ci_fetch
    must("kind", sa.Text),
    must("name", sa.Text),  # of the artifact, or of the upload's job
    column("blob", sa.Text),  # None: no longer kept
    must("unreadable", Json),  # [{member, reason}]
    must("received_at", Big),
    sa.PrimaryKeyConstraint(*JOB_KEY, "object_id", name="pk_test_part"),
    sa.Index("ix_test_part_object", "repository_id", "object_id"),
    sa.Index("ix_test_part_received_at", "received_at"),
)

test_exclusion = sa.Table(  # files of tests that a job left out on purpose, as one artifact says
    "test_exclusion",
    metadata,
    must("repository_id", Big),
    must("run_id", Big),
    must("run_attempt", sa.Integer),
    must("job_id", Big),
    must("object_id", Big),  # as that of ci_fetch
    must("files", Json),  # without `.py`
    must("received_at", Big),
    sa.PrimaryKeyConstraint(*JOB_KEY, "object_id", name="pk_test_exclusion"),
    sa.Index("ix_test_exclusion_received_at", "received_at"),
)

test_summary = sa.Table(  # a suite in a job of a trusted run or of a backend
    "test_summary",
    metadata,
    must("generation", Big),
    must("class_id", Big),
    must("invoking_file", sa.Text),  # that launched it; empty: its own
    must("at", Big),
    must("tests", sa.Integer),
    must("failures", sa.Integer),
    must("errors", sa.Integer),
    must("skipped", sa.Integer),
    must("successes", sa.Integer),
    must("flaky", sa.Integer),
    must("time_ms", Big),
    sa.PrimaryKeyConstraint("generation", "class_id", "invoking_file", name="pk_test_summary"),
    sa.Index("ix_test_summary_class_id", "class_id", "at"),
)

test_failure = sa.Table(  # a case that failed, or was flaky
    "test_failure",
    metadata,
    must("generation", Big),
    must("test_id", Big),
    must("invoking_file", sa.Text),
    must("outcome", sa.SmallInteger),  # see bot.ci.test_results.parse.block; a flaky one that passed: PASSED
    must("flaky", sa.Boolean),  # some attempt passed and another one failed
    must("attempts", sa.Integer),
    must("failed_attempts", sa.Integer),
    column("time_ms", Big),
    must("type", sa.Text),
    must("message", sa.Text),
    must("stack", sa.Text),
    must("output", sa.Text),
    column("source_file", sa.Text),  # where it failed: see bot.ci.test_results.source_lines
    column("line", sa.Integer),
    column("signature", sa.Text),  # the same for failures that say the same
    column("verdict", sa.Text),  # see bot.ci.test_results.verdict; None: not judged yet
    column("evidence", Json),  # commits that prove it; across: see bot.ci.test_results.across_devices
    column("properties", Json),  # of the failed attempt, as those of a job
    must("repository_id", Big),
    must("head_sha", sa.Text),  # the commit that was tested: of upstream where a backend tests it
    must("trusted", sa.Boolean),
    must("at", Big),
    sa.PrimaryKeyConstraint("generation", "test_id", "invoking_file", name="pk_test_failure"),
    sa.Index("ix_test_failure_test_id", "test_id", "at"),
    sa.Index("ix_test_failure_signature", "signature", "at"),
    sa.Index("ix_test_failure_head_sha", "head_sha"),
    sa.Index("ix_test_failure_at", "repository_id", "at"),
)

test_day = sa.Table(  # what trusted runs of a day said of tests, of 4,096 with neighbouring ids together
    "test_day",
    metadata,
    must("repository_id", Big),
    must("page", Big),  # of the ids
    must("day", sa.Integer),  # since 1970, UTC
    must("counts", sa.LargeBinary),  # see bot.ci.test_results.day_counts
    sa.PrimaryKeyConstraint("repository_id", "page", "day", name="pk_test_day"),
    sa.Index("ix_test_day_day", "day"),
)

test_loss = sa.Table(  # what a complete run has less of than the trusted run before it
    "test_loss",
    metadata,
    must("repository_id", Big),
    must("run_id", Big),
    must("family", sa.Text),
    must("class_id", Big),  # 0: the jobs as a whole
    must("kind", sa.Text),  # see bot.ci.test_results.losses
    column("backend", sa.Text),
    must("head_sha", sa.Text),  # that was tested: of upstream where a backend tests it
    must("base_sha", sa.Text),
    must("tests_before", sa.Integer),
    must("tests", sa.Integer),
    must("skipped_before", sa.Integer),
    must("skipped", sa.Integer),
    must("gone", sa.Integer),
    must("examples", Json),  # ids of tests that are gone
    must("at", Big),
    sa.PrimaryKeyConstraint("repository_id", "run_id", "family", "class_id", "kind", name="pk_test_loss"),
    sa.Index("ix_test_loss_at", "repository_id", "at"),
    sa.Index("ix_test_loss_head_sha", "head_sha"),
)

test_state = sa.Table(  # a test that is not simply healthy, in a group of environments
    "test_state",
    metadata,
    must("repository_id", Big),
    must("test_id", Big),
    must("env_group", sa.Text),
    must("state", sa.Text),  # healthy | flaky | broken | quarantined
    must("since", Big),
    must("evidence", Json),
    column("issue", sa.Text),
    must("by", sa.Text),  # bot, or who reset it
    must("at", Big),  # of the evidence
    sa.PrimaryKeyConstraint("repository_id", "test_id", "env_group", name="pk_test_state"),
    sa.Index("ix_test_state_state", "repository_id", "state", "since"),
)
