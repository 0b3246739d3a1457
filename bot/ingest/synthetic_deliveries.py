"""Deliveries made from answers of GitHub's API, in place of those that should have come."""

from __future__ import annotations

import uuid
from typing import Any

import msgspec

from bot.core.json_fields import Kind, read
from bot.ingest.inbox import Incoming

CONTENT = {  # fields in which two answers about one object agree when nothing has changed
    "workflow_run": "{id} {run_attempt} {status} {updated_at}",
    "workflow_job": "{id} {status} {conclusion} {started_at} {completed_at}",
    "check_run": "{id} {status} {conclusion} {started_at} {completed_at}",
}


def of(event: str, found: dict[str, Any], repository: dict[str, Any]) -> Incoming:
    """Return an API answer about a run, job or check run as the delivery of that event."""
    body = {"action": found["status"], event: found, "repository": repository}
    content = f"{event} {repository['id']} {CONTENT[event].format_map(found)}"
    return as_incoming(guid(content), event, body, source="api")


def guid(content: str) -> str:
    """Return a GUID made from the content, so that the same change is stored once."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, content))


def as_incoming(guid: str, event: str, payload: dict[str, Any], *, source: str, **known: Any) -> Incoming:
    """Return a body that was not received as a webhook as the delivery it would have been."""
    return Incoming(
        guid=guid,
        event=event,
        source=source,
        action=read(payload, ("action",), Kind.TEXT),
        repo=read(payload, ("repository", "full_name"), Kind.TEXT),
        repository_id=read(payload, ("repository", "id"), Kind.INT),
        installation_id=read(payload, ("installation", "id"), Kind.INT),
        body=msgspec.json.encode(payload),
        **known,
    )
