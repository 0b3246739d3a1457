"""Parsed deliveries as handlers get them: events of gidgethub's router, and recording what they show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

from gidgethub.sansio import Event

from bot.core.json_fields import as_text
from bot.db.transaction import Slot
from bot.ingest import record_writer
from bot.ingest.merging import from_payload
from bot.ingest.records import REPOSITORY

if TYPE_CHECKING:
    from bot.db.transaction import Transaction
    from bot.ingest.records import RecordType

V = TypeVar("V")
# repositories by id: what this transaction last recorded of each, and when that was received
RECORDED: Slot[dict[str, tuple[dict[str, Any], int]]] = Slot("recorded repositories", dict)


class Delivery(Event):
    """A delivery: gidgethub's event (`data`, `event`, `delivery_id`) with what our handlers need."""

    def __init__(self, data: dict[str, Any], *, event: str, delivery_id: str, received_at: int) -> None:
        super().__init__(data, event=event, delivery_id=delivery_id)
        self.received_at = received_at  # epoch milliseconds

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

    One without its visibility is ignored.
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
        from_payload(
            REPOSITORY, {"repository": repository}, guid=event.delivery_id, received_at=event.received_at
        ),
    )
