"""How is what GitHub's API says stored as the delivery that should have come?"""

from __future__ import annotations

import uuid
from typing import Any

import msgspec

from bot.domain.reading import Kind, read
from bot.store.inbox import Incoming

SAME_NEWS = {  # what two answers about one thing agree in when the second says nothing new
    "workflow_run": "{id} {run_attempt} {status} {updated_at}",
    "workflow_job": "{id} {status} {conclusion} {started_at} {completed_at}",
    "check_run": "{id} {status} {conclusion} {started_at} {completed_at}",
}


def of(event: str, found: dict[str, Any], repository: dict[str, Any]) -> Incoming:
    """Return what the API says of something that runs as the delivery of that event."""
    body = {"action": found["status"], event: found, "repository": repository}
    news = f"{event} {repository['id']} {SAME_NEWS[event].format_map(found)}"
    return as_incoming(guid(news), event, body, source="api")


def guid(news: str) -> str:
    """Return the GUID of a delivery that GitHub gave none: the same news is stored once."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, news))


def as_incoming(guid: str, event: str, payload: dict[str, Any], *, source: str, **known: Any) -> Incoming:
    """Return a body that did not come through the door as the delivery it would have been."""
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
