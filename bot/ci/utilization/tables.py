"""Tables of utilization: what a machine did while a job ran, and sums of that by day and week."""

from __future__ import annotations

import sqlalchemy as sa

from bot.db.columns import Big, Float, Json, column, metadata, must

MEASURES = ("cpu", "mem", "gpu", "gpu_bw", "gpu_alloc")  # each with _avg, _p90 and _max; percent

utilization_job = sa.Table(
    "utilization_job",
    metadata,
    must("repository_id", Big),
    must("run_id", Big),
    must("run_attempt", sa.Integer),
    must("job_id", Big),  # below 0: of no job that is known, minus the artifact's id
    must("repo", sa.Text),
    must("workflow_name", sa.Text),
    must("job_name", sa.Text),
    must("base_name", sa.Text),  # without shard and runner: the same for all shards
    must("config", sa.Text),
    must("runner_label", sa.Text),
    must("head_sha", sa.Text),
    must("head_branch", sa.Text),
    must("trusted", sa.Boolean),
    must("source_id", Big),  # GitHub's id of the artifact that is used; below 0: of an upload
    must("digest", sa.Text),  # of the records that are kept
    must("status", sa.Text),  # ok | no_records | legacy | refused
    must("reason", sa.Text),
    must("flags", Json),
    column("collect_interval", Float),  # seconds
    column("model_version", sa.Text),
    column("gpu_count", sa.Integer),
    column("cpu_count", sa.Integer),
    column("gpu_type", sa.Text),
    must("start_at", Big),  # seconds, as all times of the log
    must("end_at", Big),  # of the last valid record
    must("records", sa.Integer),  # valid ones
    must("error_records", sa.Integer),
    *(column(f"{name}_{part}", Float) for name in MEASURES for part in ("avg", "p90", "max")),
    must("observed_s", Float),
    must("idle_gpu_s", Float),
    must("gpu_s", Float),  # observed, of all accelerators together
    must("no_data_s", Float),
    must("saturated_s", Float),
    must("oom_risk", sa.Boolean),
    column("peak", Json),  # of memory: at (seconds), percent, commands
    must("segments", Json),  # [name, start, end], seconds
    must("histograms", sa.LargeBinary),  # see bot.ci.utilization.histogram; what this job adds to sums
    must("totals", Json),
    must("machine_s", Big),  # how long the job had its runner
    must("day", sa.Integer),  # days since 1970, on which the job ended
    column("blob", sa.Text),
    must("received_at", Big),  # milliseconds
    sa.PrimaryKeyConstraint("repository_id", "run_id", "run_attempt", "job_id", name="pk_utilization_job"),
    sa.Index("ix_utilization_job_job", "repository_id", "job_id"),
    sa.Index("ix_utilization_job_head_sha", "head_sha", "repository_id"),
    sa.Index("ix_utilization_job_run", "run_id", "run_attempt"),
    sa.Index("ix_utilization_job_day", "day"),
    sa.Index("ix_utilization_job_newest", "repository_id", "received_at"),
)

utilization_day = sa.Table(  # sums over the jobs of a group that ended on a day, or in a week
    "utilization_day",
    metadata,
    must("repository_id", Big),
    must("kind", sa.Text),  # job | workflow | runner
    must("span", sa.Integer),  # days: 1, or 7 from a Monday on
    must("day", sa.Integer),  # the first; days since 1970
    must("group_key", sa.Text),
    must("parent", sa.Text),  # of a job: its workflow
    must("trusted", sa.Boolean),
    must("jobs", sa.Integer),
    must("records", Big),
    must("histograms", sa.LargeBinary),  # bins of all metrics, see bot.ci.utilization.histogram
    *(must(f"{name}_sum", Big) for name in MEASURES),  # of the values in them, hundredths of a percent
    must("idle_gpu_s", Big),
    must("gpu_s", Big),
    must("seconds", Json),  # of machines: label -> [seconds, those of jobs with accelerators]
    sa.PrimaryKeyConstraint(
        "repository_id", "kind", "span", "day", "group_key", "parent", "trusted", name="pk_utilization_day"
    ),
    sa.Index("ix_utilization_day_day", "day"),
)
