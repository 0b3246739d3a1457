"""Conditions: notices report when one begins and, for some events, when it is over.

Capabilities say what holds now; `bot.notify` compares that with what was told, so nothing depends on having been
there when it began.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bot.web.access import Hidden

# the event that tells of a beginning -> the one that tells of the end; "": the end is not told
EVENTS = {
    "backend_red": "backend_recovered",
    "backend_silent": "backend_reporting",
    "trunk_broken": "trunk_repaired",
    "gate_waiting": "",
    "culprit_found": "",
}


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What a condition is about; receivers choose by it what they are told."""

    repo: str = ""  # upstream
    branch: str = ""
    backend: str = ""  # owner/name
    oncalls: tuple[str, ...] = ()
    path: str = ""  # the page on this bot


@dataclass(frozen=True, kw_only=True)
class Condition:
    """A condition that holds or is known to be over. What is neither is unknown: it stays as it was told.

    Conditions of one event and subject that begin together are told in one notice, under one heading.
    """

    event: str  # of EVENTS
    key: str  # the same for as long as it holds
    holds: bool
    heading: str  # texts may come from outside: they are escaped where they are shown
    lines: tuple[str, ...] = ()
    since: int | None = None  # epoch milliseconds
    subject: Subject


@dataclass(frozen=True, kw_only=True)
class Scope:
    """What conditions are wanted for: some readers may not see all repositories."""

    hidden: Hidden
    told: Mapping[str, frozenset[str]]  # keys of the conditions that were told and are not over, by event

    def told_of(self, event: str) -> frozenset[str]:
        """Return the keys of an event's conditions that were told and are not over."""
        return self.told.get(event, frozenset())
