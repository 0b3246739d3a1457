"""The views of collecting in the order of the OpenAPI document, and what they need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.ci.collect import job_reads
from bot.ci.collect.tables import ci_artifact
from bot.ci.collect.views import artifacts, job, receive_upload, run, storage, upload
from bot.web.body_capacity import BodyCapacity

if TYPE_CHECKING:
    from aiohttp import web

    from bot.web.asked import Asked

VIEWS = (*receive_upload.ENDPOINTS, job.VIEW, artifacts.VIEW, storage.VIEW, run.VIEW, upload.VIEW)


def setup(app: web.Application) -> None:
    """Add the limits of uploads that arrive."""
    app[receive_upload.ARRIVING] = BodyCapacity(receive_upload.LIMITS)


async def has_artifacts(asked: Asked, repo: str) -> bool:
    """Whether artifacts of a repository are known."""
    return await job_reads.has_rows(asked, repo, ci_artifact.c.repository_id)
