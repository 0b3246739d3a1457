"""Parsed deliveries as handlers get them: events of gidgethub's router, and recording what they show."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec
from gidgethub.sansio import Event

from bot.core.json_fields import Kind, as_text, read_member
from bot.db.transaction import Slot
from bot.ingest import record_writer
from bot.ingest.inbox import Incoming
from bot.ingest.records import REPOSITORY, from_payload

if TYPE_CHECKING:
    from bot.db.transaction import Transaction
    from bot.ingest.records import RecordType

V = TypeVar("V")
# repositories by id: what this transaction last recorded of each, and when that was received
RECORDED: Slot[dict[str, tuple[dict[str, Any], int]]] = Slot("recorded repositories", dict)


class Delivery(Event):
    """A delivery: gidgethub's event (`data`, `event`, `delivery_id`) with what our handlers need."""

    def __init__(
        self,
        data: dict[str, Any],
        *,
        event: str,
        delivery_id: str,
        received_at: int,
        admitted_for: str | None = None,
    ) -> None:
        super().__init__(data, event=event, delivery_id=delivery_id)
        self.received_at = received_at  # epoch milliseconds
        self.admitted_for = admitted_for  # the repository that its sender may speak of, if it is not GitHub

    @property
    def action(self) -> str:
        """The body's action, empty when it has none."""
        return as_text(self.data.get("action")) or ""

    @property
    def repo(self) -> str:
        """The full name of its repository, empty when there is none."""
        repository = self.data.get("repository")
        name = repository.get("full_name") if isinstance(repository, dict) else None
        return as_text(name) or ""


def is_from_github(event: str) -> bool:
    """Whether an event is one of GitHub's, by its name: those of other senders have a dot in it."""
    return "." not in event


def record(tx: Transaction, event: Delivery, kind: RecordType[V], *, deleted: bool = False) -> V:
    """Have one record of the delivery merged into its table, and return the values read.

    The delivery's repository is recorded too: its visibility decides who may see the record.
    """
    row = from_payload(
        kind, event.data, guid=event.delivery_id, received_at=event.received_at, deleted=deleted
    )
    record_writer.record(tx, row)
    if kind is not REPOSITORY:
        record_repository(tx, event, event.data.get("repository"))
    return cast("V", row.values)


def record_repository(tx: Transaction, event: Delivery, repository: object) -> None:
    """Record a repository that a delivery mentions; the same again within a transaction costs nothing.

    One without its visibility is ignored. It comes with any delivery, and is not tied to the first of them.
    """
    if not isinstance(repository, dict) or "id" not in repository or "private" not in repository:
        return
    key = str(repository["id"])
    recorded = tx.slot(RECORDED)
    last, at = recorded.get(key, ({}, 0))
    if last == repository and at <= event.received_at:
        return
    recorded[key] = (repository, event.received_at)
    record_writer.record(
        tx,
        from_payload(REPOSITORY, {"repository": repository}, guid="", received_at=event.received_at),
    )


CONTENT = {  # fields in which two answers about one object agree when nothing has changed
    "workflow_run": "{id} {run_attempt} {status} {updated_at}",
    "workflow_job": "{id} {status} {conclusion} {started_at} {completed_at}",
    "check_run": "{id} {status} {conclusion} {started_at} {completed_at}",
}


def delivery_of_answer(event: str, found: dict[str, Any], repository: dict[str, Any]) -> Incoming:
    """Return an API answer about a run, job or check run as the delivery of that event."""
    body = {"action": found["status"], event: found, "repository": repository}
    content = f"{event} {repository['id']} {CONTENT[event].format_map(found)}"
    return as_incoming(guid(content), event, body, source="api")


def guid(content: str) -> str:
    """Return a GUID made from the content, so that the same change is stored once."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, content))


def as_incoming(
    guid: str,
    event: str,
    payload: dict[str, Any],
    *,
    source: str,
    app_id: int | None = None,
    headers: str | None = None,
) -> Incoming:
    """Return a body that was not received as a webhook as the delivery it would have been."""
    return Incoming(
        guid=guid,
        event=event,
        source=source,
        action=read_member(payload, ("action",), Kind.TEXT),
        repo=read_member(payload, ("repository", "full_name"), Kind.TEXT),
        repository_id=read_member(payload, ("repository", "id"), Kind.INT),
        installation_id=read_member(payload, ("installation", "id"), Kind.INT),
        app_id=app_id,
        headers=headers,
        body=msgspec.json.encode(payload),
    )
