"""Handling of stored events of other CIs: their records, and the cells of the grid made of them.

Events wait here whose repository is not known yet, or whose project is mapped to none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import structlog

from bot.core import escaping
from bot.core.errors import Rejected
from bot.core.json_fields import Unreadable
from bot.db.transaction import Slot
from bot.ingest import inbox, record_store, repositories
from bot.ingest.repositories import Watched
from bot.jobs import grid_columns, job_cells
from bot.jobs.grid import DID_NOT_START
from bot.jobs.job_cells import OtherJob
from bot.providers import admission, buildkite, circleci, statuses, tables
from bot.providers.admission import peek_buildkite, peek_circleci
from bot.providers.feature import BUILDKITE, CIRCLECI, KINDS, providers_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.context import Context
    from bot.core.settings import Settings
    from bot.db.transaction import Changed, Transaction
    from bot.ingest.deliveries import Delivery
    from bot.ingest.tables import DeliveryRow
    from bot.providers.tables import JsonObject, ProviderJobRow, ProviderRunRow
    from bot.queue.tasks import Task

IDS: Slot[dict[str, int]] = Slot("ids of repositories", dict)  # by name, once they are read
log = structlog.get_logger("bot.providers.deliveries")
BATCH = 100  # events looked at in one transaction
STATUSES = "statuses"  # begins the names of the columns of commit statuses
HELD = "waiting"  # status of a job that waits for more than a runner
UNRUN = "error"  # state of a workflow of CircleCI that could not be run: no job tells of it


class UnknownRepository(Unreadable):
    """GitHub has not told the id of a repository of the settings yet; see `bot.providers.deliveries`."""


async def record_circleci_job(event: Delivery, tx: Transaction) -> None:
    """Record a job of CircleCI that ended."""
    record_store.add_record(tx, circleci.read_job(event.data, await _start(tx, event)))


async def record_circleci_workflow(event: Delivery, tx: Transaction) -> None:
    """Record a workflow of CircleCI that ended."""
    record_store.add_record(tx, circleci.read_workflow(event.data, await _start(tx, event)))


async def record_buildkite_job(event: Delivery, tx: Transaction) -> None:
    """Record a job of Buildkite, but for steps that run no command."""
    job = buildkite.read_job(event.data, await _start(tx, event))
    if job is not None:
        record_store.add_record(tx, job)


async def record_buildkite_build(event: Delivery, tx: Transaction) -> None:
    """Record a build of Buildkite."""
    record_store.add_record(tx, buildkite.read_build(event.data, await _start(tx, event)))


async def record_buildkite_agent(event: Delivery, tx: Transaction) -> None:
    """Record an agent of Buildkite."""
    name = event.event.partition(".")[2]
    await tables.store_agent(tx, buildkite.read_agent(event.data, name, received_at=event.received_at))


async def handle_waiting(context: Context, _task: Task) -> None:
    """Requeue parked events of every repository whose id is known by now."""
    mapped = mapped_repositories(context.settings)
    if not mapped:
        return
    async with context.store.transaction() as tx:
        known = mapped & (await repositories.read_repository_ids(tx)).keys()
        done = await tables.requeue_parked(tx, known, KINDS) if known else 0
    if done:
        log.info("events of other CIs that waited for their repository are handled", events=done)


async def watch_mapped_repositories(_tx: Transaction, settings: Settings) -> Watched:
    """Return the repositories that other CIs are mapped to: GitHub is asked for their ids, and who may see them."""
    return Watched(repositories=frozenset(), accounts=frozenset(), named=mapped_repositories(settings))


def mapped_repositories(settings: Settings) -> frozenset[str]:
    """Return the repositories, case folded."""
    return frozenset(repo.casefold() for ci in providers_of(settings) for repo in ci.projects.values())


async def take_up_events(context: Context) -> int:
    """Requeue every stored event whose project has been mapped since; returns how many."""
    taken = last = 0
    while True:
        async with context.store.read() as tx:
            batch = await tables.read_foreign_deliveries(tx, after=last, limit=BATCH)
        if not batch:
            return taken
        mapped = [
            (row["id"], subject.repo)
            for row in batch
            if (subject := _subject(context.settings, row)) and not subject.ignored
        ]
        async with context.store.transaction() as tx:
            await tables.requeue_foreign(tx, mapped)
        taken, last = taken + len(mapped), batch[-1]["id"]


async def write_cells(tx: Transaction, changed: Changed) -> None:
    """Before a commit: write the cells of changed jobs, and of workflows that could not be run."""
    jobs = cast("Sequence[ProviderJobRow]", changed.get("provider_job", ()))
    runs = cast("Sequence[ProviderRunRow]", changed.get("provider_run", ()))
    rows = [_job_cell(job) for job in jobs if job["head_sha"]]
    rows += [
        _run_cell(run)
        for run in runs
        if run["head_sha"] and run["provider"] == CIRCLECI and run["raw_state"] == UNRUN
    ]
    await job_cells.write_other_jobs(tx, rows)


def workflow_name(job: ProviderJobRow) -> str:
    """Return what the workflow or pipeline of a job is called in the grid."""
    return f"{job['provider']} / {job['workflow_name'] or escaping.NAMELESS}"


async def _start(tx: Transaction, event: Delivery) -> JsonObject:
    """Return what every record of an event begins with; raises UnknownRepository."""
    repo = event.admitted_for or ""
    known = tx.slot(IDS)
    if not known:
        known.update(await repositories.read_repository_ids(tx))
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
    """Return the only repository that ever had a name, according to GitHub's webhooks; None for none or several.

    Where deliveries are replayed into an empty database, GitHub is not asked.
    """
    ids = await repositories.read_ids(tx, repo)
    return ids.pop() if len(ids) == 1 else None


def _subject(settings: Settings, row: DeliveryRow) -> admission.Subject | None:
    """Return what an event is about by today's settings, None if it can no longer be read."""
    kind, _, event = row["event"].partition(".")
    body, trusted = inbox.read_body(row), providers_of(settings, kind)
    try:
        if kind == CIRCLECI:
            return admission.circleci_subject(peek_circleci(body), event, trusted)
        return admission.buildkite_subject(peek_buildkite(body), event, trusted)
    except Rejected:
        return None


def _job_cell(job: ProviderJobRow) -> OtherJob:
    if job["provider"] == statuses.STATUS:
        return _status_cell(job)
    provider, workflow = job["provider"], job["workflow_name"] or escaping.NAMELESS
    name = job["job_name"] or escaping.NAMELESS
    waits = job["provider"] == BUILDKITE and job["raw_state"] in buildkite.WAITING
    allowed = job["soft_failed"] and job["conclusion"] == "neutral"
    return OtherJob(
        repository_id=job["repository_id"],
        head_sha=job["head_sha"] or "",
        source=provider,
        workflow=workflow_name(job),
        name=name,
        # what they call the commit statuses that they set on GitHub: CircleCI one for a job, Buildkite for a pipeline
        shown_as=f"ci/circleci: {name}" if provider == CIRCLECI else f"buildkite/{workflow}",
        id=job["job_id"],
        run=job["workflow_id"] or job["job_id"],
        status=HELD if waits else job["status"] or "queued",
        conclusion=job_cells.ALLOWED if allowed else job["conclusion"] or "",
        attempt=job["attempt"] or 1,
        shard=job["shard"] or 0,
        shards=job["shards"] or 0,
        queued_at=job["runnable_at"] or job["created_at"],
        started_at=job["started_at"],
        completed_at=job["completed_at"],
        held=job["runnable_at"] is None,  # since when only a runner was missing is not known
        runner=job["runner"] or provider,
        line=job["reason"],
        kind=job["failure_kind"],
        url=job["url"],
    )


def _status_cell(job: ProviderJobRow) -> OtherJob:
    """Return a commit status as a job, which has neither runners nor a queue time."""
    context = statuses.context_of(job["job_id"])
    return OtherJob(
        repository_id=job["repository_id"],
        head_sha=job["head_sha"] or "",
        source=grid_columns.STATUS,
        workflow=STATUSES,
        name=context,
        shown_as=context,
        id=job["job_id"],
        run=job["job_id"],
        status=job["status"] or "in_progress",
        conclusion=job["conclusion"] or "",
        started_at=None if job["conclusion"] else job["created_at"],
        completed_at=job["completed_at"],
        line=job["reason"],
        url=job["url"],
    )


def _run_cell(run: ProviderRunRow) -> OtherJob:
    name = run["name"] or escaping.NAMELESS
    return OtherJob(
        repository_id=run["repository_id"],
        head_sha=run["head_sha"] or "",
        source=run["provider"],
        workflow=f"{run['provider']} / {name}",
        name=DID_NOT_START,
        shown_as=None,
        id=f"workflow {run['run_id']}",
        run=run["run_id"],
        status="completed",
        conclusion=run["conclusion"] or "failure",
        queued_at=run["created_at"],
        completed_at=run["completed_at"],
        held=True,
        line="the workflow could not be run",
        url=run["url"],
    )
