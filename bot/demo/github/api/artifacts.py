"""Endpoints of what runs leave behind: artifacts and logs; the content is on another host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from bot.demo.github.api.actions import ACTIONS, READ, RUN
from bot.demo.github.api.call import ApiCall, Route, json_response, paginated_with_total
from bot.demo.github.faults import ApiError, not_found
from bot.demo.github.serializers import actions as serializers
from bot.demo.github.workflows import log_of

if TYPE_CHECKING:
    from bot.demo.github.models import Artifact

LOGS_KEPT = 90 * 24 * 3_600_000  # milliseconds


async def list_artifacts(call: ApiCall) -> web.Response:
    """List the artifacts of all attempts of a run, newest first."""
    run = call.repo.runs.get(call.path_number("run"))
    if run is None:
        raise not_found()
    rows = [artifact for artifact in reversed(call.repo.artifacts.values()) if artifact.run is run]
    name = call.query("name")
    rows = [artifact for artifact in rows if name in {"", artifact.name}]
    return paginated_with_total(call, "artifacts", rows, serializers.artifact)


async def get_artifact(call: ApiCall) -> web.Response:
    """Show one artifact."""
    return json_response(serializers.artifact(call.state, _artifact(call)))


async def download_artifact(call: ApiCall) -> web.Response:
    """Send the caller to the archive."""
    artifact = _artifact(call)
    if call.path_text("format") != "zip":
        raise not_found()
    if artifact.expires_at <= call.now:
        raise ApiError(410, "Artifact has expired")
    name = f"artifacts/{artifact.id}.zip"
    return _answer_download(call, name, artifact.content, "application/zip")


async def download_log(call: ApiCall) -> web.Response:
    """Send the caller to the log of a finished job."""
    job = call.repo.jobs.get(call.path_number("job"))
    if job is None or job.status != "completed" or job.completed_at is None or job.runner is None:
        raise not_found()  # while it runs, and for ever where it never began
    if job.completed_at + LOGS_KEPT <= call.now:
        raise ApiError(410, "Gone")
    return _answer_download(call, f"logs/{job.id}.txt", log_of(job), "text/plain; charset=utf-8")


def _artifact(call: ApiCall) -> Artifact:
    artifact = call.repo.artifacts.get(call.path_number("artifact"))
    if artifact is None:
        raise not_found()
    return artifact


def _answer_download(call: ApiCall, name: str, content: bytes, kind: str) -> web.Response:
    address = call.workflows.blob_host.signed(name, content, kind)
    return web.Response(status=302, headers={"Location": address})


ARTIFACT = ACTIONS + "/artifacts/{artifact}"
ROUTES = (
    Route(method="GET", path=RUN + "/artifacts", handler=list_artifacts, needs=READ),
    Route(method="GET", path=ARTIFACT, handler=get_artifact, needs=READ),
    Route(method="GET", path=ARTIFACT + "/{format}", handler=download_artifact, needs=READ),
    Route(method="GET", path=ACTIONS + "/jobs/{job}/logs", handler=download_log, needs=READ),
)
