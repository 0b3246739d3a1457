"""Metrics of other CIs: their events, refusals, and projects that are mapped to no repository."""

from __future__ import annotations

from functools import cache

from prometheus_client import Counter

EVENTS = Counter(
    "ootbot_provider_events_total", "Events of other CIs that were stored.", ["provider", "event"]
)
REFUSED = Counter(
    "ootbot_provider_refused_total", "Requests of other CIs that were refused.", ["provider", "reason"]
)
UNMAPPED = Counter(
    "ootbot_provider_unmapped_total",
    "Events of projects that the settings map to no repository.",
    ["provider"],
)


def count_event(event: str) -> None:
    """Count an event, given as provider and name with a dot between them: one of a few."""
    _event_counter(event).inc()


@cache
def _event_counter(event: str) -> Counter:
    provider, _, name = event.partition(".")
    return EVENTS.labels(provider, name)
