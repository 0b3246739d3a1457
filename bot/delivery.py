"""What does a handler get? One stored webhook, parsed, as gidgethub's router knows events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gidgethub.sansio import Event

from bot.domain.merging import from_payload
from bot.domain.reading import as_text
from bot.domain.records import REPOSITORY

if TYPE_CHECKING:
    from bot.domain.records import RecordType
    from bot.store import Transaction


class Delivery(Event):
    """A delivery: gidgethub's event (`data`, `event`, `delivery_id`) with what our handlers ask of it."""

    def __init__(self, data: dict[str, Any], *, event: str, delivery_id: str, received_at: int) -> None:
        super().__init__(data, event=event, delivery_id=delivery_id)
        self.received_at = received_at  # epoch milliseconds

    @property
    def action(self) -> str:
        """The body's action, empty when it has none."""
        return as_text(self.data.get("action")) or ""

    @property
    def repo(self) -> str:
        """The full name of the repository it is about, empty when there is none."""
        repository = self.data.get("repository")
        name = repository.get("full_name") if isinstance(repository, dict) else None
        return as_text(name) or ""


def record(tx: Transaction, event: Delivery, kind: RecordType, *, deleted: bool = False) -> dict[str, Any]:
    """Have one record of the delivery merged into its table, and return the values read.

    The repository it is about is kept along with it: its visibility decides who may see the record.
    """
    row = from_payload(
        kind, event.data, guid=event.delivery_id, received_at=event.received_at, deleted=deleted
    )
    tx.record(row)
    if kind is not REPOSITORY:
        record_repository(tx, event, event.data.get("repository"))
    return row.values


def record_repository(tx: Transaction, event: Delivery, repository: object) -> None:
    """Keep a repository that a delivery shows in passing; the same again within a transaction costs nothing.

    One that does not say whether it is private is no news of the repository.
    """
    if not isinstance(repository, dict) or "id" not in repository or "private" not in repository:
        return
    key = str(repository["id"])
    seen, at = tx.repositories_seen.get(key, ({}, 0))
    if seen == repository and at <= event.received_at:
        return
    tx.repositories_seen[key] = (repository, event.received_at)
    shown = {"repository": repository}
    tx.record(from_payload(REPOSITORY, shown, guid=event.delivery_id, received_at=event.received_at))
