"""Statements on what other CIs said: jobs, agents, and their deliveries in the inbox."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

import sqlalchemy as sa

from bot.db.rows import select
from bot.ingest.tables import FROM_OTHERS, DeliveryRow, delivery
from bot.providers.tables import ProviderAgentRow, ProviderJobRow, provider_agent, provider_job

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from bot.db.transaction import Transaction

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


async def store_agent(tx: Transaction, row: ProviderAgentRow) -> None:
    """Store an agent, unless something later is known of it."""
    insert = tx.insert(provider_agent).values(dict(row))
    changes = {name: insert.excluded[name] for name in row if name not in {"organization", "agent_id"}}
    later = insert.excluded.version > AGENT.version
    keys = ["organization", "agent_id"]
    tx.note_changed("provider_agent", [row])
    await tx.run(insert.on_conflict_do_update(index_elements=keys, set_=changes, where=later))


async def queues(tx: Transaction, organizations: Collection[str], *, since: int) -> list[QueueRow]:
    """Return how many agents of some organizations are in each state, by queue; those heard of since a time."""
    count, last = sa.func.count().label("agents"), sa.func.max(AGENT.at).label("last")
    query = (
        sa.select(AGENT.queue, AGENT.state, count, last)
        .where(AGENT.organization.in_(sorted(organizations)), AGENT.at >= since)
        .group_by(AGENT.queue, AGENT.state)
        .order_by(AGENT.queue, AGENT.state)
    )
    return await tx.rows_as(QueueRow, query)


async def last_seen(tx: Transaction, *, limit: int) -> list[DeliveryRow]:
    """Return the newest events of other CIs, without their bodies."""
    query = select(DeliveryRow, delivery, body=sa.null()).where(FROM_OTHERS)
    return await tx.fetch(query.order_by(delivery.c.received_at.desc()).limit(limit))


async def last_of_each(tx: Transaction) -> dict[str, int]:
    """Return when an event of each other CI was received last, other than those that are foreign."""
    query = sa.select(delivery.c.source, sa.func.max(delivery.c.received_at)).where(FROM_OTHERS, ~FOREIGN)
    rows = await tx.run(query.group_by(delivery.c.source))
    return {row.source: row[1] for row in rows}


async def unmapped(tx: Transaction, *, since: int, limit: int) -> list[UnmappedRow]:
    """Return the projects that events came of since a time and that were mapped to no repository."""
    count, last = sa.func.count().label("events"), sa.func.max(delivery.c.received_at).label("last")
    query = (
        sa.select(delivery.c.repo, count, last)
        .where(FROM_OTHERS, FOREIGN, delivery.c.received_at >= since)
        .group_by(delivery.c.repo)
        .order_by(count.desc(), delivery.c.repo)
        .limit(limit)
    )
    return await tx.rows_as(UnmappedRow, query)


async def handle_waiting(tx: Transaction, names: Collection[str], sources: Collection[str]) -> int:
    """Have events handled that were parked since nothing was known of their repositories (case folded)."""
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


async def foreign_deliveries(tx: Transaction, *, after: int, limit: int) -> list[DeliveryRow]:
    """Return events that are mapped to no repository, in the order received; `after` is the last id seen."""
    query = select(DeliveryRow, delivery).where(FROM_OTHERS, FOREIGN, delivery.c.id > after)
    return await tx.fetch(query.order_by(delivery.c.id).limit(limit))


async def take_up(tx: Transaction, mapped: Sequence[tuple[int, str | None]]) -> None:
    """Have events handled that are mapped to a repository by now, given by their ids."""
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


async def open_statuses(
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
