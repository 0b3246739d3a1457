"""Handling of stored events of other CIs: their records, in the transaction that marks them as handled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.core.json_fields import Unreadable
from bot.db.transaction import Slot
from bot.ingest import pinned, record_writer, watched
from bot.providers import agents, buildkite, circleci, rows

if TYPE_CHECKING:
    from bot.db.transaction import Transaction
    from bot.ingest.delivery import Delivery
    from bot.providers.normal_form import Json

IDS: Slot[dict[str, int]] = Slot("ids of repositories", dict)  # by name, once they are read


class UnknownRepository(Unreadable):
    """Nothing of GitHub says yet which repository the settings mean; see `bot.providers.waiting`."""


async def record_circleci_job(event: Delivery, tx: Transaction) -> None:
    """Record a job of CircleCI that ended."""
    record_writer.record(tx, circleci.read_job(event.data, await _start(tx, event)))


async def record_circleci_workflow(event: Delivery, tx: Transaction) -> None:
    """Record a workflow of CircleCI that ended."""
    record_writer.record(tx, circleci.read_workflow(event.data, await _start(tx, event)))


async def record_buildkite_job(event: Delivery, tx: Transaction) -> None:
    """Record a job of Buildkite, but for steps that run no command."""
    job = buildkite.read_job(event.data, await _start(tx, event))
    if job is not None:
        record_writer.record(tx, job)


async def record_buildkite_build(event: Delivery, tx: Transaction) -> None:
    """Record a build of Buildkite."""
    record_writer.record(tx, buildkite.read_build(event.data, await _start(tx, event)))


async def record_buildkite_agent(event: Delivery, tx: Transaction) -> None:
    """Record an agent of Buildkite."""
    name = event.event.partition(".")[2]
    await rows.store_agent(tx, agents.read_agent(event.data, name, received_at=event.received_at))


async def _start(tx: Transaction, event: Delivery) -> Json:
    """Return what every record of an event begins with; raises UnknownRepository."""
    repo = event.admitted_for or ""
    known = tx.slot(IDS)
    if not known:
        known.update(await pinned.pinned_ids(tx))
    repository_id = known.get(repo.casefold()) or await _of_webhooks(tx, repo)
    if repository_id is None:
        raise UnknownRepository(
            f"GitHub has not said which repository {repo} is: is the App installed there?"
        )
    return {
        "repository_id": repository_id,
        "repo": repo,
        "received_at": event.received_at,
        "delivery_guid": event.delivery_id,
    }


async def _of_webhooks(tx: Transaction, repo: str) -> int | None:
    """Return the one repository that ever had a name by GitHub's webhooks; None if several had it, or none.

    Where deliveries are replayed into an empty database, GitHub is not asked.
    """
    found = await watched.ids(tx, repo)
    return found.pop() if len(found) == 1 else None
