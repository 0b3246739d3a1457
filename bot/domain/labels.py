"""What do a pull request's labels ask for, and can our record of them be trusted?

GitHub's times have seconds, and labels come in bursts. It keeps the case in which a label was created, and holds two
that differ in nothing else for one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

Row = dict[str, Any]


def asks_for(device: str | None, labels: Collection[str], prefixes: Sequence[str]) -> bool:
    """Return whether a pull request with these labels asks for a device."""
    return any(is_label(label, prefix + (device or "")) for label in labels for prefix in prefixes)


def is_label(name: str, wanted: str) -> bool:
    """Return whether GitHub would take both names for one label."""
    return name.casefold() == wanted.casefold()


def in_doubt(record: Row | None, events: Sequence[Row]) -> bool:
    """Return whether GitHub should be asked for the labels; `events` are the newest label events, newest first.

    Of deliveries within one second any may be the last. That matters when two of them changed labels, or when the one
    that did is contradicted by the record, which something else of that second made.
    """
    if record is None or not events:
        return False
    second = events[0]["updated_at"]
    if (record["updated_at"] or 0) > (second or 0):
        return False  # something later has shown all labels
    last = [event for event in events if event["updated_at"] == second]
    put_on = events[0]["action"] == "labeled"
    return len(last) > 1 or put_on != (events[0]["label_name"] in (record["labels"] or ()))
