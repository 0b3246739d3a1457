"""Can our record of a pull request's labels be trusted? GitHub's times have seconds, and labels come in bursts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

Row = dict[str, Any]


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
