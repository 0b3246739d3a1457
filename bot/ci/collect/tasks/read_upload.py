"""upload: reads a file that a backend uploaded. Key: the upload's id.

The log of a job waits for the report that says whether the job failed: only those that failed are classified.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.ci.collect.blob_store import copy_to
from bot.ci.collect.blobs import BLOBS
from bot.ci.collect.receiving import Fetched
from bot.ci.collect.states import State
from bot.ci.collect.store import fetches, runs, trusted_runs, uploads
from bot.ci.collect.tasks import fetch_file
from bot.ci.collect.tasks.fetch_file import Wanted
from bot.ci.collect.workspace import WORKSPACE
from bot.core.errors import GiveUp, NotYet
from bot.oot.results.store import dispatches

if TYPE_CHECKING:
    from bot.ci.collect.tables import UploadRow
    from bot.context import Context
    from bot.core.settings import Settings
    from bot.db.transaction import Changed, Transaction
    from bot.queue.tasks import Task

DAY = 86_400_000  # milliseconds: so long a report is waited for
LOOK = 600.0  # seconds between looks; the report itself has the file read at once


async def request_waiting(tx: Transaction, changed: Changed) -> None:
    """Before a commit: have the files read that waited for these reports."""
    reported = changed.get("oot_workflow_job", ())
    ended = {str(row["dispatch_id"]) for row in reported if row.get("dispatch_id") and row.get("conclusion")}
    for identifier in await uploads.uploads_waiting_for(tx, ended) if ended else ():
        tx.enqueue("upload", str(identifier))


async def read_upload(context: Context, task: Task) -> None:
    """Read an uploaded file; the file itself is deleted afterwards."""
    if not task.key.isdigit():
        raise GiveUp(f"{task.key!r} names no upload")
    async with context.store.transaction() as tx:
        found = await uploads.find_upload(tx, int(task.key))
        if found:
            context.resource(WORKSPACE).shares.check(found["backend"].casefold())
        failed = await uploads.job_failed(tx, found) if found else None
        waits = (
            found is not None
            and found["kind"] == "log"
            and failed is None
            and tx.now - found["received_at"] < DAY
        )
        begun = (
            found and not waits and await fetches.begin_try(tx, found["repository_id"], "upload", found["id"])
        )
        fetched = await _fetched(tx, context.settings, found, failed=bool(failed)) if found else None
    if waits:
        raise NotYet("the job of the upload has not been reported as ended", after=LOOK)
    if not found or not begun or not fetched:
        return
    reader = fetch_file.reader_of(context, found["kind"])
    prefix = (reader and reader.receiver.blob_prefix) or "upload-of"
    blob = f"{prefix}/{found['repository_id']}/upload-{found['id']}"
    wanted = Wanted(fetched=fetched, path="", size=found["size"], digest=None, blob=blob)
    if reader is None:
        await fetch_file.end_fetch(context, begun, State.SKIPPED, f"nothing reads {found['kind']}")
    else:
        async with context.resource(WORKSPACE).folder() as folder:
            await copy_to(context.resource(BLOBS), found["blob"], folder / "file")
            await fetch_file.parse_file(context, begun, wanted, reader, folder)
    await context.resource(BLOBS).delete(found["blob"])


async def _fetched(tx: Transaction, settings: Settings, found: UploadRow, *, failed: bool) -> Fetched:
    facts = await runs.repository_facts(tx, found["repository_id"])
    dispatch = (await dispatches.get_by_id(tx, [found["dispatch_id"]])).get(found["dispatch_id"])
    head = (dispatch and dispatch["head_sha"]) or ""
    return Fetched(
        repository_id=found["repository_id"],
        repo=found["backend"],
        source="upload",
        kind=found["kind"],
        object_id=-found["id"],  # never one of GitHub's ids
        run_id=0,
        run_attempt=found["run_attempt"],
        job_id=None,
        name=found["job"],
        head_sha=head,
        trusted=await trusted_runs.is_trusted_dispatch(tx, settings, dispatch),
        private=facts.private is not False,
        size=found["size"],
        sha256=found["sha256"],
        failed=failed,
        workflow=found["workflow"],
    )
