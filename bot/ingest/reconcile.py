"""Reconciliation: asking GitHub what no delivery said of runs in progress and of the repositories of the settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
import structlog

from bot.core.errors import GitHubRefused, GitHubUnavailable, RetryLater
from bot.core.feature import load_each
from bot.core.json_fields import as_time
from bot.db.rows import select
from bot.ingest import deliveries, inbox, record_store, redeliver, repositories, retention
from bot.ingest.record_rows import CheckRunRow, WorkflowJobRow, WorkflowRunRow
from bot.ingest.repositories import read_names_of_unknown_visibility, read_watched
from bot.ingest.tables import REPOSITORY, TYPES, from_payload, records

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from bot.context import Context
    from bot.db.rows import TypedSelect
    from bot.db.transaction import Transaction
    from bot.queue.tasks import Task

log = structlog.get_logger("bot.ingest.reconcile")

RECONCILE = "reconcile"
MARGIN = 5 * 60_000  # milliseconds a delivery about a pull request may take before we ask GitHub ourselves
LOG_BROKEN = 3_600_000  # milliseconds without a complete sweep of the log until it is no longer waited for
QUIET = 15 * 60_000  # milliseconds something may run before GitHub is asked
LONGEST = 36 * 86_400_000  # milliseconds: no run lasts longer than 35 days
MOST_LOOKUPS = 50  # of each kind, each time
MOST_UNANSWERED = 3  # of each kind: then GitHub is unavailable, and each try may take half a minute
MOST_LISTED = 100  # runs of each status and repository
UNFINISHED = ("in_progress", "queued")

OpenRow = WorkflowRunRow | WorkflowJobRow | CheckRunRow
IDENTIFY_AGAIN = 60.0  # seconds until GitHub is asked again about what it did not tell


@dataclass(frozen=True, kw_only=True)
class Window:
    """The period of GitHub's lists that may be compared with our records; epoch milliseconds."""

    since: int  # when this bot first reconciled: what is older is not news
    complete_until: int  # every delivery before this has come in or is lost


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


async def reconcile_records(context: Context, _task: Task) -> None:
    """Compare every upstream repository, and everything in flight, with our records."""
    async with context.store.transaction() as tx:
        since = (await redeliver.begin_sweep(tx, context.github.app_id, RECONCILE))["created_at"]
        window = Window(since=since, complete_until=await _complete_until(context, tx))
    behind, failures = await check_open_runs(context), []
    comparisons = (*load_each(context.features, "reconcile"), find_unknown_runs)
    for repo in context.settings.upstream_repo:
        refused: str | None = None
        for compare in comparisons:
            try:
                behind += await compare(context, repo, window)
            except (GitHubRefused, RetryLater) as error:  # the others can still be compared
                log.warning("what is open and running cannot be listed", repo=repo, reason=str(error))
                failures.append(error)
                refused = refused or (str(error) if isinstance(error, GitHubRefused) else None)
        async with context.store.transaction() as tx:
            await repositories.note_reached(tx, repo, refused)
    if behind:
        log.warning("records were behind", repaired=behind)
    if failures:
        raise failures[0]  # not finished: its age shows the operator
    async with context.store.transaction() as tx:
        await redeliver.finish_sweep(
            tx, context.github.app_id, RECONCILE, reached=window.complete_until, found=behind
        )


async def check_open_runs(context: Context) -> int:
    """Look up all watched runs, jobs and checks that have run for long; returns how many records were behind."""
    return sum([await _look_up_all(context, resource) for resource in RESOURCES])


async def find_unknown_runs(context: Context, repo: str, _window: object = None) -> int:
    """Store the unfinished runs of a repository that have no record; returns how many.

    Raises GitHubRefused when they cannot be listed, RetryLater when GitHub has no answer.
    """
    client, unknown = context.github.client(repo, actions="read"), 0
    for status in UNFINISHED:
        url = client.path("actions/runs{?status,per_page}")
        listing = await client.getitem(url, {"status": status, "per_page": str(MOST_LISTED)})
        runs = [run for run in listing["workflow_runs"] if _is_late(run, context.clock.now())]
        async with context.store.read() as tx:
            known = await _known_runs(tx, [run["id"] for run in runs])
        for run in runs:
            if (run["id"], run["run_attempt"]) not in known:
                unknown += await _store_answer(context, RESOURCES[0], run, run["repository"])
    return unknown


async def identify_unknown(context: Context, _task: Task) -> None:
    """Ask about every repository whose visibility is unknown."""
    async with context.store.read() as tx:
        named = (await read_watched(context, tx)).named
        unknown = await read_names_of_unknown_visibility(tx, named)
    await identify_repositories(context, unknown)


async def identify_at_start(context: Context) -> None:
    """Ask about every repository that the settings name: much may have changed while the bot was down."""
    async with context.store.transaction() as tx:
        named = (await read_watched(context, tx)).named
        await repositories.forget_unnamed(tx, named)
    await identify_repositories(context, named)


async def identify_repositories(context: Context, repos: Iterable[str]) -> None:
    """Record what GitHub says about some repositories; raises RetryLater when it says nothing about one of them."""
    failures = []
    for repo in sorted(repos):
        try:
            repository = await context.app_for(repo).by_name(repo, metadata="read").repository()
        except (GitHubRefused, RetryLater) as error:  # the others can still be asked about
            failures.append(f"{repo}: {error}")
            continue
        async with context.store.transaction() as tx:
            stored = await repositories.set_id(tx, repo, repository["id"])
            if stored != repository["id"]:
                log.error(
                    "another repository has this name now",
                    problem=repositories.describe_other_id(repo, stored, repository["id"]),
                )
                continue
            payload = {"action": "read", "repository": repository}
            record_store.add_record(tx, from_payload(REPOSITORY, payload, guid="", received_at=tx.now))
    if failures:
        raise RetryLater("; ".join(failures), after=IDENTIFY_AGAIN)


async def _complete_until(context: Context, tx: Transaction) -> int:
    """Return the time (epoch milliseconds) before which everything in GitHub's delivery log has come in or is lost.

    Newer changes are left to their deliveries: dispatching both now and when the delivery comes would run every
    backend twice.
    """
    app_id, accounts = context.github.app_id, await redeliver.watched_accounts(context, tx)
    swept = await redeliver.read_sweep(tx, app_id, redeliver.REDELIVER)
    reached = (swept["reached"] or 0) if swept else 0
    if swept and swept["tried_at"] is not None and swept["tried_at"] < tx.now - LOG_BROKEN:
        reached = max(reached, tx.now - LOG_BROKEN)
    pending = (
        await redeliver.read_oldest_missing(
            tx, app_id, most_requests=redeliver.MOST_WAITED, accounts=accounts
        ),
        await retention.oldest_unhandled(tx),
    )
    return min([reached, *(at for at in pending if at is not None)]) - MARGIN


async def _look_up_all(context: Context, resource: Resource) -> int:
    """Look up the open records of one kind until GitHub has left MOST_UNANSWERED requests without an answer."""
    now, behind, unanswered = context.clock.now(), 0, 0
    async with context.store.read() as tx:
        rows = await _open_records(
            tx,
            resource.name,
            repos=(await read_watched(context, tx)).repositories,
            first_received=(now - LONGEST, now - QUIET),
            limit=MOST_LOOKUPS,
            app_id=context.github.app_id if resource.name == "check_run" else None,
        )
    for row in rows:
        try:
            behind += await _look_up(context, resource, row)
        except RetryLater as error:
            log.info("no answer", kind=resource.name, repo=row["repo"], id=row["id"], reason=str(error))
            unanswered += isinstance(error, GitHubUnavailable)
        if unanswered == MOST_UNANSWERED:
            break
    return behind


async def _look_up(context: Context, resource: Resource, row: OpenRow) -> bool:
    """Store GitHub's state of one object if it has changed; raises RetryLater when GitHub has no answer."""
    client = context.app_for(row["repo"]).client(
        row["repo"], since=row["received_at"], **{resource.permission: "read"}
    )
    try:
        newest = await client.getitem(client.path(resource.path.format_map(row)))
    except GitHubRefused as error:
        log.info(
            "cannot be asked about", kind=resource.name, repo=row["repo"], id=row["id"], reason=str(error)
        )
        if error.gone:
            async with context.store.transaction() as tx:
                await _mark_gone(tx, resource.name, row)
        return False
    if newest["status"] == row["status"]:
        return False
    repository = {"id": row["repository_id"], "full_name": row["repo"]}
    return await _store_answer(context, resource, newest, repository | newest.get("repository", {}))


def _is_late(run: dict[str, Any], now: int) -> bool:
    """Whether a run's own delivery should have come by now."""
    return (as_time(run["updated_at"]) or 0) < now - QUIET


async def _store_answer(
    context: Context, resource: Resource, newest: dict[str, Any], repository: dict[str, Any]
) -> bool:
    """Store GitHub's answer as the delivery that should have come."""
    async with context.store.transaction() as tx:
        return await inbox.store_delivery(
            tx, deliveries.delivery_of_answer(resource.name, newest, repository)
        )


async def _open_records(
    tx: Transaction,
    table: str,
    *,
    repos: Collection[str],
    first_received: tuple[int, int],
    limit: int,
    app_id: int | None = None,
) -> list[OpenRow]:
    """Return open records of some repositories (lower case), first received in a period; with `app_id`, that App's.

    Only watched repositories: nothing strangers send makes us call GitHub. The order is random, so that records without
    news do not keep the others from being looked up.
    """
    columns = records[table].c
    query: TypedSelect[OpenRow] = select(TYPES[table].row, records[table]).where(
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
