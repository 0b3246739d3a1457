"""The log of a job given by its address: the stored one, else as GitHub has it."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, NamedTuple

from bot.ci.collect import budget
from bot.ci.collect.blob_store import BlobMissing
from bot.ci.collect.blobs import BLOBS
from bot.ci.collect.store import runs as collect_rows
from bot.ci.collect.tasks.fetch_file import MOST
from bot.ci.collect.workspace import WORKSPACE
from bot.ci.logs.parse.blocks import PlainLog
from bot.ci.logs.parse.stored import StoredLog
from bot.ci.logs.store import log_rows, ruleset_rows
from bot.ingest import watched

if TYPE_CHECKING:
    from bot.ci.logs.parse.blocks import Source
    from bot.ci.logs.parse.rules import Ruleset
    from bot.context import Context

# a page of GitHub's, of any host, or one of ours
ADDRESS = re.compile(
    r"https?://[^/\s]+/([\w.-]+/[\w.-]+)/(?:actions/runs/\d{1,18}/)?job/(\d{1,18})(?:[/?#].*)?"
)


class JobAddress(NamedTuple):
    """A job, as its page's address names it."""

    repo: str
    job_id: int


def parse_address(text: str) -> JobAddress | None:
    """Return the job of an address, None where it is none."""
    found = ADDRESS.fullmatch(text)
    return JobAddress(found[1], int(found[2])) if found else None


async def read_job_log(context: Context, address: JobAddress) -> tuple[Source, Ruleset]:
    """Return a job's log, and the rules in force for it; raises GitHubRefused where the App cannot read it."""
    async with context.store.read() as tx:
        owners = await watched.ids(tx, address.repo)
        job = await collect_rows.find_job(tx, owners, address.job_id)
        row = await log_rows.find_log(tx, job["repository_id"], job["id"]) if job else None
        ruleset = await ruleset_rows.rules_in_force(tx, context.settings, address.repo)
    chosen = ruleset.applied_to(address.repo, job["workflow_name"] if job else None)
    if row and row["blob"]:
        try:
            return _stored(await context.resource(BLOBS).get(row["blob"])), chosen
        except BlobMissing:
            pass  # deleted by now: GitHub may still have it
    return await _fetched(context, address), chosen


def _stored(content: bytes) -> StoredLog:
    return StoredLog(lambda start, length: content[start : start + length], len(content))


async def _fetched(context: Context, address: JobAddress) -> PlainLog:
    client = context.app_for(address.repo).client(address.repo, actions="read")
    await budget.spend_call(context, address.repo)
    location = await client.location(client.path(f"actions/jobs/{address.job_id}/logs"))
    workspace = context.resource(WORKSPACE)
    async with workspace.folder() as folder:
        await workspace.downloads.fetch(location, folder / "log", most=MOST)
        return PlainLog(io.BytesIO((folder / "log").read_bytes()))
