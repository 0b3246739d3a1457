"""Labels of a pull request: the devices they ask for, and whether our record of them is current.

GitHub's times are in whole seconds, and labels come in bursts. It keeps the case a label was created with, but compares
names without case.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from bot.ingest.pull_records import LabelEventRow
    from bot.ingest.rows import PullRow


def asks_for(device: str | None, labels: Collection[str], prefixes: Sequence[str]) -> bool:
    """Return whether a pull request with these labels asks for a device."""
    return any(is_label(label, prefix + (device or "")) for label in labels for prefix in prefixes)


def is_label(name: str, wanted: str) -> bool:
    """Return whether both names are the same label to GitHub."""
    return name.casefold() == wanted.casefold()


def in_doubt(record: PullRow | None, events: Sequence[LabelEventRow]) -> bool:
    """Return whether GitHub should be asked for the labels; `events` are the newest label events, newest first.

    Of deliveries within one second any can be the last. That matters when two of them changed labels, or when the
    record, made by another delivery of that second, contradicts the one that did.
    """
    if record is None or not events:
        return False
    second = events[0]["updated_at"]
    if (record["updated_at"] or 0) > (second or 0):
        return False  # a later delivery has listed all labels
    last = [event for event in events if event["updated_at"] == second]
    added = events[0]["action"] == "labeled"
    return len(last) > 1 or added != (events[0]["label_name"] in (record["labels"] or ()))
