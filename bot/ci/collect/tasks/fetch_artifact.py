"""collect: fetches an artifact of a kind that some feature reads. Key: `owner/repo#artifact_id`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from bot.ci.collect import keys
from bot.ci.collect.receiving import Fetched
from bot.ci.collect.states import State
from bot.ci.collect.store import artifacts, fetches, runs
from bot.ci.collect.tasks import fetch_file
from bot.ci.collect.tasks.fetch_file import NotThere, Wanted
from bot.ci.collect.workspace import WORKSPACE
from bot.github import refusals

if TYPE_CHECKING:
    from bot.ci.collect.receiving import Receiver
    from bot.ci.collect.tables import ArtifactRow
    from bot.context import Context
    from bot.queue.tasks import Task


async def fetch_artifact(context: Context, task: Task) -> None:
    """Fetch, parse and store an artifact."""
    repo, artifact_id = keys.parse_object_key(task.key)
    context.resource(WORKSPACE).shares.check(repo.casefold())
    async with context.store.transaction() as tx:
        artifact = await artifacts.find_artifact(tx, repo, artifact_id)
        if artifact is None:
            return
        row = await fetches.begin_try(tx, artifact["repository_id"], "artifact", artifact_id)
        facts = await runs.repository_facts(tx, artifact["repository_id"])
    if row is None:
        return
    reader = fetch_file.reader_of(context, artifact["kind"])
    private = facts.private is not False
    if artifact["expired"] or (artifact["expires_at"] or context.clock.now() + 1) <= context.clock.now():
        await fetch_file.end_fetch(context, row, State.EXPIRED, describe_expiry(artifact))
        return
    try:
        await fetch_file.fetch_file(
            context, row, _wanted(artifact, repo, reader.receiver if reader else None, private=private)
        )
    except NotThere as error:
        if error.status == 410:
            await fetch_file.end_fetch(context, row, State.EXPIRED, describe_expiry(artifact))
        elif error.status == 404 and _is_young(artifact, context.clock.now()):
            await fetch_file.wait_for_next_try(context, row, "GitHub does not have it yet", refusals.LATEST)
        elif error.status == 404:
            await fetch_file.end_fetch(context, row, State.ABSENT, "GitHub no longer has it")
        else:
            await fetch_file.end_fetch(context, row, State.BROKEN, f"GitHub answered {error.status}")


def _is_young(artifact: ArtifactRow, now: int) -> bool:
    """Whether GitHub may not know an artifact yet that it has just listed."""
    return artifact["created_at"] is not None and now - artifact["created_at"] < refusals.YOUNG


def describe_expiry(artifact: ArtifactRow) -> str:
    """Return when GitHub deleted an artifact."""
    if artifact["expires_at"] is None:
        return "GitHub has deleted it"
    return f"GitHub deleted it on {datetime.fromtimestamp(artifact['expires_at'] / 1000, UTC):%Y-%m-%d}"


def _wanted(artifact: ArtifactRow, repo: str, receiver: Receiver | None, *, private: bool) -> Wanted:
    prefix = (receiver.blob_prefix if receiver else "") or "artifact"
    run = f"{artifact['repository_id']}/{artifact['run_id']}/{artifact['run_attempt']}"
    return Wanted(
        fetched=Fetched(
            repository_id=artifact["repository_id"],
            repo=repo,
            source="artifact",
            kind=artifact["kind"],
            object_id=artifact["id"],
            run_id=artifact["run_id"],
            run_attempt=artifact["run_attempt"],
            job_id=artifact["job_id"],
            name=artifact["name"],
            head_sha=artifact["head_sha"],
            trusted=artifact["trusted"],
            private=private,
            size=0,
            sha256="",
        ),
        path=f"actions/artifacts/{artifact['id']}/zip",
        size=artifact["size_in_bytes"],
        digest=artifact["digest"],
        blob=f"{prefix}/{run}/{artifact['id']}",
    )
