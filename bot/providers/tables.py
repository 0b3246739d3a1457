"""What other CIs said of their jobs, workflows and agents: one form for all of them."""

from __future__ import annotations

from typing import TypedDict

import sqlalchemy as sa

from bot.db.columns import partial_index
from bot.db.rows import Big, Bool, Json, Millis, Text, table
from bot.ingest.records import RecordType, Rule
from bot.ingest.rows import RecordStart
from bot.ingest.tables import record_table


class Place(RecordStart):
    """Where it is at its provider."""

    provider: Text  # circleci | buildkite | status
    project: Text


class About(TypedDict):
    """What it ran on."""

    head_sha: Text | None
    branch: Text | None
    tag: Text | None
    pr_number: Big | None


class Course(TypedDict):
    """How far it is, and how it ended."""

    status: Text | None  # queued | in_progress | completed
    conclusion: Text | None  # GitHub's words; other: see raw_state
    raw_state: Text | None  # the provider's word
    url: Text | None
    created_at: Millis | None
    started_at: Millis | None
    completed_at: Millis | None
    updated_at: Millis | None
    delivery_guid: Text | None


class ProviderJobRow(Place, About, Course):
    """A job of another CI."""

    job_id: Text
    pipeline_id: Text | None
    workflow_id: Text | None
    workflow_name: Text | None
    job_name: Text | None
    number: Big | None
    attempt: Big | None
    shard: Big | None
    shards: Big | None
    runner: Text | None
    runnable_at: Millis | None  # when nothing but a runner was missing
    exit_status: Big | None
    soft_failed: Bool | None  # it may fail
    retried_in_job_id: Text | None
    reason: Text | None  # why it failed
    failure_kind: Text | None  # infra, where the CI itself failed
    log_url: Text | None


class ProviderRunRow(Place, About, Course):
    """A workflow or build of another CI."""

    run_id: Text
    pipeline_id: Text | None
    name: Text | None
    number: Big | None
    source: Text | None  # what it was started by


JOB_KEY = ("provider", "project", "job_id")
RECEIVED = ("received_at", "job_id")
PROVIDER_JOB = RecordType(
    table="provider_job", row=ProviderJobRow, at="job", key=JOB_KEY, rule=Rule.FURTHEST, order=RECEIVED
)
# one status of a commit replaces the one before: there is no end that it could not come back from
STATUS_JOB = RecordType(
    table="provider_job", row=ProviderJobRow, at="", key=JOB_KEY, rule=Rule.NEWEST, order=RECEIVED
)
PROVIDER_RUN = RecordType(
    table="provider_run",
    row=ProviderRunRow,
    at="build",
    key=("provider", "project", "run_id"),
    rule=Rule.FURTHEST,
    order=("received_at", "run_id"),
)
provider_job = record_table(PROVIDER_JOB)
provider_run = record_table(PROVIDER_RUN)
for _table in (provider_job, provider_run):
    sa.Index(f"ix_{_table.name}_received_at", _table.c.received_at)
partial_index(
    "ix_provider_job_open_status",
    provider_job.c.received_at,
    where=sa.and_(provider_job.c.provider == "status", provider_job.c.status != "completed"),
)


class AgentKey(TypedDict):
    """An agent: a program that runs jobs on a machine, until it is stopped."""

    organization: Text
    agent_id: Text


class ProviderAgentRow(AgentKey):
    """An agent of Buildkite as it was last heard of."""

    name: Text | None
    queue: Text
    tags: Json[list[str]] | None
    state: Text  # connected | stopping | lost | stopped | disconnected | blocked
    at: Millis  # when that was received
    version: Text  # see bot.providers.agents


provider_agent = table(
    "provider_agent",
    ProviderAgentRow,
    sa.Index("ix_provider_agent_at", "organization", "at"),
    key=("organization", "agent_id"),
)
