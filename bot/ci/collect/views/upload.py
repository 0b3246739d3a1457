"""GET /{owner}/{repo}/upload/{id}: a file that a backend uploaded: what it is of, and what was read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bot.ci.collect import job_reads
from bot.ci.collect.states import State
from bot.oot.results.store import dispatches
from bot.web import blocks
from bot.web import view_parameters as declare
from bot.web.view import Page, View
from bot.web.view_parameters import REPO

if TYPE_CHECKING:
    from bot.ci.collect.job_reads import LogState
    from bot.ci.collect.tables import UploadRow
    from bot.oot.results.tables import DispatchRow
    from bot.web.asked import Asked
    from bot.web.blocks import Block

RUNNING = 30  # seconds until the page of a file that is not read yet is reloaded


@dataclass(frozen=True, kw_only=True)
class FoundUpload:
    """An uploaded file, and what is known of it."""

    upload: UploadRow
    state: LogState
    dispatch: DispatchRow | None
    blocks: list[Block]


UPLOAD = declare.identifier("id", "the upload's id")


async def read_upload(asked: Asked) -> FoundUpload:
    """Read an upload; raises Rejected 404."""
    tx, repo = asked.tx, asked[REPO]
    owners = await job_reads.visible_to(asked, repo)
    upload = await job_reads.shown_upload(asked.request, tx, owners, repo, asked[UPLOAD])
    dispatch = (await dispatches.get_by_id(tx, [upload["dispatch_id"]])).get(upload["dispatch_id"])
    if dispatch and asked.hidden.has(dispatch["upstream_repo"]):
        dispatch = None  # pull requests of a private upstream are not shown with a public backend's log
    subject = job_reads.upload_subject(asked.request, upload)
    return FoundUpload(
        upload=upload,
        state=await job_reads.upload_state(tx, upload),
        dispatch=dispatch,
        blocks=await blocks.gather(asked.context.features, "job", tx, subject),
    )


def show(found: FoundUpload) -> dict[str, Any]:
    """Return what the page shows."""
    return {
        "upload": found.upload,
        "state": found.state,
        "dispatch": found.dispatch,
        "blocks": found.blocks,
    }


def _refresh(found: FoundUpload) -> int:
    return RUNNING if found.state.state == State.WANTED else 0


VIEW = View(
    read=read_upload,
    parameters=(REPO, UPLOAD),
    page=Page(path=r"/{owner}/{repo}/upload/{id:\d+}", template="upload.html", values=show, refresh=_refresh),
)
