"""What GitHub notes beside a failed job and its log may not say: that its time was over, or its runner lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog

from bot.ci.collect import budget
from bot.core.errors import GitHubRefused, OverBudget, RetryLater

if TYPE_CHECKING:
    from bot.ci.collect.receiving import Fetched
    from bot.context import Context

ANNOTATIONS_MOST = 20  # of one job
MESSAGE_MOST = 1_000  # characters

log = structlog.get_logger("bot.ci.logs.annotations")


async def read_annotations(context: Context, fetched: Fetched) -> tuple[str, ...]:
    """Return the errors that GitHub notes beside a job; none where it does not answer, or the budget is used up.

    A job's check run has the job's id.
    """
    if fetched.source != "log":
        return ()
    client = context.app_for(fetched.repo).client(fetched.repo, checks="read")
    path = client.path("check-runs/{job}/annotations{?per_page}")
    values = {"job": str(fetched.object_id), "per_page": str(ANNOTATIONS_MOST)}
    try:
        await budget.spend_call(context, fetched.repo)
        found = await client.getitem(path, values)
    except (GitHubRefused, OverBudget, RetryLater) as error:
        log.debug("annotations are not read", repo=fetched.repo, job=fetched.object_id, error=str(error))
        return ()
    return tuple(filter(None, map(_error, found[:ANNOTATIONS_MOST] if isinstance(found, list) else ())))


def _error(annotation: Any) -> str:
    message = annotation.get("message") if isinstance(annotation, dict) else None
    if not isinstance(message, str) or annotation.get("annotation_level") != "failure":
        return ""
    return message.strip().split("\n", 1)[0][:MESSAGE_MOST]
