"""The `events` of an entry as the parser of PyTorch's relay reads them, where DEFAULT_EVENTS includes pushes.

To it `pull_request` means pushes too, it knows no word for them alone, and an entry of any level may be there for its
nightlies only.
"""

from __future__ import annotations

RELAY_EVENTS = frozenset({"pull_request", "nightly"})  # all that its parser knows


def reads_as_relay(default_events: frozenset[str]) -> bool:
    """Whether entries are read as the relay's parser reads them."""
    return "push" in default_events


def meant_events(written: frozenset[str] | None, default_events: frozenset[str]) -> frozenset[str]:
    """Return the events an entry takes part in; `written` None: it names none."""
    if written is None:
        return default_events
    of_relay = reads_as_relay(default_events) and written <= RELAY_EVENTS
    return written | {"push"} if of_relay and "pull_request" in written else written
