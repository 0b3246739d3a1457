"""Is what our records show as running still running? Runs, jobs and our own check runs, asked about one by one."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog

from bot.errors import GitHubRefused
from bot.store import inbox, unsettled
from bot.tasks.delivery_log import as_incoming

if TYPE_CHECKING:
    from bot.context import Context

log = structlog.get_logger("bot.tasks.in_flight")

Row = dict[str, Any]
QUIET = 15 * 60_000  # milliseconds something may run before we ask
LONGEST = 36 * 86_400_000  # milliseconds: no run lasts longer than 35 days
MOST = 50  # questions a kind and run


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of thing that runs; its event, its record table and the payload's member have one name."""

    name: str
    path: str
    permission: str
    told: str  # what makes two answers the same news; a run's is that of bot.tasks.confirm


KINDS = (
    Kind(
        name="workflow_run",
        path="actions/runs/{id}/attempts/{run_attempt}",
        permission="actions",
        told="{id} {run_attempt} {status} {updated_at}",
    ),
    Kind(
        name="workflow_job",
        path="actions/jobs/{id}",
        permission="actions",
        told="{id} {status} {conclusion} {started_at} {completed_at}",
    ),
    Kind(
        name="check_run",
        path="check-runs/{id}",
        permission="checks",
        told="{id} {status} {conclusion} {started_at} {completed_at}",
    ),
)


async def ask(context: Context) -> int:
    """Ask GitHub about everything that runs for long; returns how many records were behind."""
    found = 0
    for kind in KINDS:
        now = context.clock.now()
        ours = context.github.app_id if kind.name == "check_run" else None
        async with context.store.read() as tx:
            rows = await unsettled.in_flight(
                tx, kind.name, first_heard=(now - LONGEST, now - QUIET), limit=MOST, app_id=ours
            )
        found += sum([await _ask_about(context, kind, row) for row in rows])
    return found


async def _ask_about(context: Context, kind: Kind, row: Row) -> bool:
    """Store what GitHub says of one of them, if that is news."""
    app = context.github if context.settings.is_upstream(row["repo"]) else context.relay
    client = app.client(row["repo"], **{kind.permission: "read"})
    try:
        found = await client.getitem(client.path(kind.path.format_map(row)))
    except GitHubRefused as error:
        log.info("cannot be asked about", kind=kind.name, repo=row["repo"], id=row["id"], reason=str(error))
        return False
    if found["status"] == row["status"]:
        return False
    body = {
        "action": found["status"],
        kind.name: found,
        "repository": {"id": row["repository_id"], "full_name": row["repo"]} | found.get("repository", {}),
    }
    told = f"{kind.name} {row['repository_id']} {kind.told.format_map(found)}"
    guid = str(uuid.uuid5(uuid.NAMESPACE_OID, told))
    async with context.store.transaction() as tx:
        return await inbox.put(tx, as_incoming(guid, kind.name, body, source="api"))
