"""Is what our records show as running still running? Runs, jobs and our own check runs, asked about one by one.

And is anything running that no delivery told of? Upstream's runs are listed for that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog

from bot.domain.reading import as_time
from bot.errors import GitHubAway, GitHubRefused, NotInstalled, RetryLater
from bot.store import inbox, unsettled
from bot.tasks import told

if TYPE_CHECKING:
    from bot.context import Context

log = structlog.get_logger("bot.tasks.in_flight")

Row = dict[str, Any]
QUIET = 15 * 60_000  # milliseconds something may run before we ask
LONGEST = 36 * 86_400_000  # milliseconds: no run lasts longer than 35 days
MOST = 50  # questions a kind and run
MOST_UNANSWERED = 3  # questions of a kind: then it is GitHub that is away, and each may take half a minute
MOST_LISTED = 100  # runs of a status and repository
GOING_ON = ("in_progress", "queued")
GONE = frozenset({404, 410})


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of thing that runs; its event, its record table and the payload's member have one name."""

    name: str
    path: str
    permission: str


KINDS = (
    Kind(name="workflow_run", path="actions/runs/{id}/attempts/{run_attempt}", permission="actions"),
    Kind(name="workflow_job", path="actions/jobs/{id}", permission="actions"),
    Kind(name="check_run", path="check-runs/{id}", permission="checks"),
)


async def ask(context: Context) -> int:
    """Ask GitHub about everything of ours that runs for long; returns how many records were behind."""
    return sum([await _ask_about_all(context, kind) for kind in KINDS])


async def _ask_about_all(context: Context, kind: Kind) -> int:
    """Ask about what runs of one kind; one GitHub has no answer for keeps the others from theirs only this time."""
    now, found, unanswered = context.clock.now(), 0, 0
    async with context.store.read() as tx:
        rows = await unsettled.in_flight(
            tx,
            kind.name,
            upstreams=context.settings.upstream_repo,
            first_heard=(now - LONGEST, now - QUIET),
            limit=MOST,
            app_id=context.github.app_id if kind.name == "check_run" else None,
        )
    for row in rows:
        try:
            found += await _ask_about(context, kind, row)
        except RetryLater as error:
            log.info("no answer", kind=kind.name, repo=row["repo"], id=row["id"], reason=str(error))
            unanswered += isinstance(error, GitHubAway)
        if unanswered == MOST_UNANSWERED:
            break
    return found


async def _ask_about(context: Context, kind: Kind, row: Row) -> bool:
    """Store what GitHub says of one of them, if that is news; raises RetryLater when it says nothing."""
    client = context.app_for(row["repo"]).client(row["repo"], **{kind.permission: "read"})
    try:
        found = await client.getitem(client.path(kind.path.format_map(row)))
    except GitHubRefused as error:
        log.info("cannot be asked about", kind=kind.name, repo=row["repo"], id=row["id"], reason=str(error))
        if error.status in GONE and not isinstance(error, NotInstalled):
            async with context.store.transaction() as tx:
                await unsettled.gone(tx, kind.name, row)
        return False
    if found["status"] == row["status"]:
        return False
    repository = {"id": row["repository_id"], "full_name": row["repo"]}
    return await _store(context, kind, found, repository | found.get("repository", {}))


async def find(context: Context, repo: str) -> int:
    """Store the runs of a repository that go on and of which we know nothing; returns how many.

    Raises GitHubRefused when they cannot be listed, RetryLater when GitHub has no answer.
    """
    client, found = context.github.client(repo, actions="read"), 0
    for status in GOING_ON:
        url = client.path("actions/runs{?status,per_page}")
        answer = await client.getitem(url, {"status": status, "per_page": str(MOST_LISTED)})
        runs = [run for run in answer["workflow_runs"] if _is_late(run, context.clock.now())]
        async with context.store.read() as tx:
            known = await unsettled.known_runs(tx, [run["id"] for run in runs])
        for run in runs:
            if (run["id"], run["run_attempt"]) not in known:
                found += await _store(context, KINDS[0], run, run["repository"])
    return found


def _is_late(run: Row, now: int) -> bool:
    """Whether a run's own delivery should have come by now."""
    return (as_time(run["updated_at"]) or 0) < now - QUIET


async def _store(context: Context, kind: Kind, found: Row, repository: Row) -> bool:
    """Store what GitHub says of one as the delivery that should have come."""
    async with context.store.transaction() as tx:
        return await inbox.put(tx, told.of(kind.name, found, repository))
