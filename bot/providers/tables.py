"""What other CIs said of their jobs, workflows and agents: one form for all, its tables and statements."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypedDict

import sqlalchemy as sa

from bot.core import escaping
from bot.core.json_fields import Kind, Unreadable, as_commit, as_time, read_member
from bot.db.rows import Big, Bool, Json, Millis, Text, partial_index, select, table
from bot.ingest.record_rows import RecordStart
from bot.ingest.retention import delete_rows
from bot.ingest.tables import (
    FROM_OTHERS,
    DeliveryRow,
    Record,
    RecordType,
    Rule,
    delivery,
    record_table,
    version_of,
)
from bot.jobs.settings import is_trusted_branch
from bot.queue.sums import DAY

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from bot.context import Context
    from bot.db.transaction import Transaction

ID_MOST, NAME_MOST, WORD_MOST = 200, 500, 60  # characters
ATTEMPTS_MOST = 1_000_000
PULL = re.compile(r"pull/([1-9][0-9]{0,9})(?:/head|/merge)?")
UTC = " UTC"  # ends Buildkite's older form of a time: 2026-01-31 12:00:00 UTC
JsonObject = dict[str, Any]


class ProviderPlace(RecordStart):
    """Where it is at its provider."""

    provider: Text  # circleci | buildkite | status
    project: Text


class ProviderSubject(TypedDict):
    """What it ran on."""

    head_sha: Text | None
    branch: Text | None
    tag: Text | None
    pr_number: Big | None


class ProviderProgress(TypedDict):
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


class ProviderJobRow(ProviderPlace, ProviderSubject, ProviderProgress):
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


class ProviderRunRow(ProviderPlace, ProviderSubject, ProviderProgress):
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
    version: Text  # see bot.providers.buildkite


provider_agent = table(
    "provider_agent",
    ProviderAgentRow,
    sa.Index("ix_provider_agent_at", "organization", "at"),
    key=("organization", "agent_id"),
)

AGENT, JOB = provider_agent.c, provider_job.c
FOREIGN = delivery.c.state == "foreign"


class UnmappedRow(TypedDict):
    """A project of another CI that is mapped to no repository."""

    repo: str  # provider:project
    events: int
    last: int


class QueueRow(TypedDict):
    """Agents of one queue in one state."""

    queue: str
    state: str
    agents: int
    last: int


def read_text(data: object, *path: str, most: int = NAME_MOST) -> str | None:
    """Return a text, shortened; None where there is none, or an empty one."""
    text = read_member(data, path, Kind.TEXT)
    return text[:most] if text else None


def read_number(data: object, *path: str) -> int | None:
    """Return a whole number, also of digits in a text."""
    number = read_member(data, path, Kind.INT)
    text = read_member(data, path, Kind.TEXT) or ""
    return int(text) if number is None and text.isascii() and text.isdigit() and len(text) < 16 else number


def read_time(data: object, *path: str) -> int | None:
    """Return a time in epoch milliseconds."""
    text = read_member(data, path, Kind.TEXT)
    return as_time(text.removesuffix(UTC)) if text else None


def read_flag(data: object, *path: str) -> bool | None:
    """Return true or false, None if it is missing."""
    flag: bool | None = read_member(data, path, Kind.BOOL)
    return flag


def read_commit(data: object, *path: str) -> str | None:
    """Return the full SHA of a commit, None for a name such as HEAD."""
    return as_commit(read_member(data, path, Kind.TEXT))


def read_url(data: object, *path: str) -> str | None:
    """Return a link, None if it is unsafe or no link."""
    return escaping.url(read_member(data, path, Kind.TEXT))


def read_id(data: object, *path: str) -> str:
    """Return what identifies something; raises Unreadable without it."""
    identifier = read_text(data, *path, most=ID_MOST)
    if identifier is None:
        raise Unreadable(f"{'.'.join(path)} is missing or no text")
    return identifier


def number_of_pull(branch: str | None) -> int | None:
    """Return the pull request that a branch is named after, as CircleCI does."""
    match = PULL.fullmatch(branch or "")
    return int(match[1]) if match else None


def make_record(kind: RecordType[Any], values: Mapping[str, Any]) -> Record:
    """Make a record; columns that are not given are null.

    Of two that are as far, the SHA-256 of what is read decides; a body is many times as long.
    """
    whole = dict.fromkeys(kind.names) | dict(values) | {"deleted_at": None}
    told = {name: value for name, value in values.items() if name != "received_at"}
    version = version_of(kind, told, whole, None)
    return Record(type=kind, values=whole, version=version, guid=str(whole["delivery_guid"]))


async def store_agent(tx: Transaction, row: ProviderAgentRow) -> None:
    """Store an agent, unless something later is known of it."""
    insert = tx.insert(provider_agent).values(dict(row))
    changes = {name: insert.excluded[name] for name in row if name not in {"organization", "agent_id"}}
    later = insert.excluded.version > AGENT.version
    keys = ["organization", "agent_id"]
    tx.note_changed("provider_agent", [row])
    await tx.run(insert.on_conflict_do_update(index_elements=keys, set_=changes, where=later))


async def read_queues(tx: Transaction, organizations: Collection[str], *, since: int) -> list[QueueRow]:
    """Return how many agents of some organizations are in each state, by queue; those heard of since a time."""
    count, last = sa.func.count().label("agents"), sa.func.max(AGENT.at).label("last")
    query = (
        sa.select(AGENT.queue, AGENT.state, count, last)
        .where(AGENT.organization.in_(sorted(organizations)), AGENT.at >= since)
        .group_by(AGENT.queue, AGENT.state)
        .order_by(AGENT.queue, AGENT.state)
    )
    return await tx.rows_as(QueueRow, query)


async def read_newest_events(tx: Transaction, *, limit: int) -> list[DeliveryRow]:
    """Return the newest events of other CIs, without their bodies."""
    query = select(DeliveryRow, delivery, body=sa.null()).where(FROM_OTHERS)
    return await tx.fetch(query.order_by(delivery.c.received_at.desc()).limit(limit))


async def read_last_events(tx: Transaction) -> dict[str, int]:
    """Return when the last event of each other CI was received, apart from foreign ones."""
    query = sa.select(delivery.c.source, sa.func.max(delivery.c.received_at)).where(FROM_OTHERS, ~FOREIGN)
    rows = await tx.run(query.group_by(delivery.c.source))
    return {row.source: row[1] for row in rows}


async def read_unmapped(tx: Transaction, *, since: int, limit: int) -> list[UnmappedRow]:
    """Return the projects with events since a time that were mapped to no repository."""
    count, last = sa.func.count().label("events"), sa.func.max(delivery.c.received_at).label("last")
    query = (
        sa.select(delivery.c.repo, count, last)
        .where(FROM_OTHERS, FOREIGN, delivery.c.received_at >= since)
        .group_by(delivery.c.repo)
        .order_by(count.desc(), delivery.c.repo)
        .limit(limit)
    )
    return await tx.rows_as(UnmappedRow, query)


async def requeue_parked(tx: Transaction, names: Collection[str], sources: Collection[str]) -> int:
    """Requeue events that were parked because the ids of their repositories (case folded) were unknown."""
    change = {"state": "stored", "attempts": 0, "error": None}  # due since it came
    parked = sa.update(delivery).where(
        delivery.c.state == "parked",
        delivery.c.source.in_(sorted(sources)),
        sa.func.lower(delivery.c.repo).in_(sorted(names)),
        delivery.c.error.like("UnknownRepository:%"),
    )
    done = (await tx.run(parked.values(change))).rowcount
    tx.wakes_workers = tx.wakes_workers or done > 0
    return done


async def read_foreign_deliveries(tx: Transaction, *, after: int, limit: int) -> list[DeliveryRow]:
    """Return events that are mapped to no repository, in the order received; `after` is the last id seen."""
    query = select(DeliveryRow, delivery).where(FROM_OTHERS, FOREIGN, delivery.c.id > after)
    return await tx.fetch(query.order_by(delivery.c.id).limit(limit))


async def requeue_foreign(tx: Transaction, mapped: Sequence[tuple[int, str | None]]) -> None:
    """Requeue foreign events, by id, with the repositories that their projects are mapped to now."""
    tx.wakes_workers = tx.wakes_workers or bool(mapped)
    for identifier, repo in mapped:
        change = {"repo": repo, "state": "stored", "attempts": 0, "error": None}  # due since it came
        await tx.run(sa.update(delivery).where(delivery.c.id == identifier, FOREIGN).values(change))


async def find_job(
    tx: Transaction, repository_id: int, provider: str, project: str, job_id: str
) -> ProviderJobRow | None:
    """Return a job of another CI."""
    query = select(ProviderJobRow, provider_job).where(
        JOB.repository_id == repository_id,
        JOB.provider == provider,
        JOB.project == project,
        JOB.job_id == job_id,
    )
    return await tx.fetch_first(query)


async def read_open_statuses(
    tx: Transaction, repo: str, *, received: tuple[int, int], limit: int
) -> list[ProviderJobRow]:
    """Return commit statuses of a repository without an end, first received in a period; in random order."""
    query = select(ProviderJobRow, provider_job).where(
        JOB.provider == "status",
        JOB.status != "completed",
        JOB.received_at >= received[0],
        JOB.received_at < received[1],
        sa.func.lower(JOB.repo) == repo.lower(),
    )
    return await tx.fetch(query.order_by(sa.func.random()).limit(limit))


def is_trusted(job: ProviderSubject, *, default_branch: str | None, patterns: Sequence[str]) -> bool:
    """Whether a job ran on a trusted branch, and for no pull request: a fork may call its branch `main`."""
    if job["pr_number"] is not None or not job["branch"] or ":" in job["branch"]:  # owner:branch is a fork's
        return False
    return is_trusted_branch(job["branch"], default_branch=default_branch, patterns=patterns)


async def delete_old_rows(context: Context) -> dict[str, int]:
    """Delete what is past the retention of records."""
    before = context.clock.now() - context.settings.record_retention_days * DAY
    return {
        "jobs of other CIs": await delete_rows(context, provider_job, provider_job.c.received_at < before),
        "runs of other CIs": await delete_rows(context, provider_run, provider_run.c.received_at < before),
        "agents": await delete_rows(context, provider_agent, provider_agent.c.at < before),
    }
