"""Runs, jobs and check runs in progress, compared with GitHub.

What our records show as running is looked up one by one; upstream's runs are listed for those no delivery reported.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
import structlog

from bot.core.errors import GitHubRefused, GitHubUnavailable, RetryLater
from bot.core.json_fields import as_time
from bot.db.rows import select
from bot.ingest import delivery, inbox
from bot.ingest.records import TYPES
from bot.ingest.rows import CheckRunRow, WorkflowJobRow, WorkflowRunRow
from bot.ingest.tables import records
from bot.ingest.watched import watched

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from bot.context import Context
    from bot.db.rows import Query
    from bot.db.transaction import Transaction

log = structlog.get_logger("bot.ingest.in_flight")

QUIET = 15 * 60_000  # milliseconds something may run before GitHub is asked
LONGEST = 36 * 86_400_000  # milliseconds: no run lasts longer than 35 days
MOST_LOOKUPS = 50  # of each kind, each time
MOST_UNANSWERED = 3  # of each kind: then GitHub is unavailable, and each try may take half a minute
MOST_LISTED = 100  # runs of each status and repository
UNFINISHED = ("in_progress", "queued")


OpenRow = WorkflowRunRow | WorkflowJobRow | CheckRunRow


@dataclass(frozen=True, kw_only=True)
class Resource:
    """One kind of thing that runs; its event, its record table and the payload's member share one name."""

    name: str
    path: str
    permission: str


RESOURCES = (
    Resource(name="workflow_run", path="actions/runs/{id}/attempts/{run_attempt}", permission="actions"),
    Resource(name="workflow_job", path="actions/jobs/{id}", permission="actions"),
    Resource(name="check_run", path="check-runs/{id}", permission="checks"),
)


async def check_known(context: Context) -> int:
    """Look up everything of ours that has run for long; returns how many records were behind."""
    return sum([await _check_all(context, resource) for resource in RESOURCES])


async def _check_all(context: Context, resource: Resource) -> int:
    """Look up what runs of one kind, until GitHub leaves MOST_UNANSWERED of them without an answer."""
    now, found, unanswered = context.clock.now(), 0, 0
    async with context.store.read() as tx:
        rows = await _open_records(
            tx,
            resource.name,
            repos=(await watched(context, tx)).repositories,
            first_received=(now - LONGEST, now - QUIET),
            limit=MOST_LOOKUPS,
            app_id=context.github.app_id if resource.name == "check_run" else None,
        )
    for row in rows:
        try:
            found += await _check(context, resource, row)
        except RetryLater as error:
            log.info("no answer", kind=resource.name, repo=row["repo"], id=row["id"], reason=str(error))
            unanswered += isinstance(error, GitHubUnavailable)
        if unanswered == MOST_UNANSWERED:
            break
    return found


async def _check(context: Context, resource: Resource, row: OpenRow) -> bool:
    """Store GitHub's state of one of them if it has changed; raises RetryLater when GitHub has no answer."""
    client = context.app_for(row["repo"]).client(
        row["repo"], since=row["received_at"], **{resource.permission: "read"}
    )
    try:
        found = await client.getitem(client.path(resource.path.format_map(row)))
    except GitHubRefused as error:
        log.info(
            "cannot be asked about", kind=resource.name, repo=row["repo"], id=row["id"], reason=str(error)
        )
        if error.gone:
            async with context.store.transaction() as tx:
                await _mark_gone(tx, resource.name, row)
        return False
    if found["status"] == row["status"]:
        return False
    repository = {"id": row["repository_id"], "full_name": row["repo"]}
    return await _store(context, resource, found, repository | found.get("repository", {}))


async def find_unknown(context: Context, repo: str, _window: object = None) -> int:
    """Store the unfinished runs of a repository that have no record; returns how many.

    Raises GitHubRefused when they cannot be listed, RetryLater when GitHub has no answer.
    """
    client, found = context.github.client(repo, actions="read"), 0
    for status in UNFINISHED:
        url = client.path("actions/runs{?status,per_page}")
        answer = await client.getitem(url, {"status": status, "per_page": str(MOST_LISTED)})
        runs = [run for run in answer["workflow_runs"] if _is_late(run, context.clock.now())]
        async with context.store.read() as tx:
            known = await _known_runs(tx, [run["id"] for run in runs])
        for run in runs:
            if (run["id"], run["run_attempt"]) not in known:
                found += await _store(context, RESOURCES[0], run, run["repository"])
    return found


def _is_late(run: dict[str, Any], now: int) -> bool:
    """Whether a run's own delivery should have come by now."""
    return (as_time(run["updated_at"]) or 0) < now - QUIET


async def _store(
    context: Context, resource: Resource, found: dict[str, Any], repository: dict[str, Any]
) -> bool:
    """Store GitHub's answer as the delivery that should have come."""
    async with context.store.transaction() as tx:
        return await inbox.put(tx, delivery.delivery_of_answer(resource.name, found, repository))


async def _open_records(
    tx: Transaction,
    table: str,
    *,
    repos: Collection[str],
    first_received: tuple[int, int],
    limit: int,
    app_id: int | None = None,
) -> list[OpenRow]:
    """Return incomplete records of some repositories (lower case), first received in a period; with `app_id`, its own.

    Only watched repositories: nothing strangers send makes us call GitHub. The order is random, so that records without
    news do not keep the others from being looked up.
    """
    columns = records[table].c
    query: Query[OpenRow] = select(TYPES[table].row, records[table]).where(
        columns.status != "completed",
        columns.received_at >= first_received[0],
        columns.received_at < first_received[1],
        columns.deleted_at.is_(None),
        sa.func.lower(columns.repo).in_(sorted(repos)),
    )
    if app_id is not None:
        query = query.where(columns.app_id == app_id)
    return await tx.fetch(query.order_by(sa.func.random()).limit(limit))


async def _known_runs(tx: Transaction, ids: Sequence[int]) -> set[tuple[int, int]]:
    """Return (id, run_attempt) of the workflow runs recorded among some ids."""
    columns = records["workflow_run"].c
    rows = await tx.run(sa.select(columns.id, columns.run_attempt).where(columns.id.in_(ids)))
    return {tuple(row) for row in rows}


async def _mark_gone(tx: Transaction, table: str, row: Mapping[str, object]) -> None:
    """Note that GitHub no longer has a record's object: it is not looked up again."""
    columns = records[table].c
    same = [columns[name] == row[name] for name in ("repository_id", *TYPES[table].key)]
    await tx.run(sa.update(records[table]).where(*same).values(deleted_at=tx.now))
