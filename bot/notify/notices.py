"""Notices: what begins and ends of the conditions, compared with what was told."""

from __future__ import annotations

import uuid
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.core.conditions import EVENTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bot.core.conditions import Condition
    from bot.notify.tables import NoticeRow

MOST_LINES = 20  # of a notice
LONGEST = 500  # characters of a line


@dataclass(frozen=True, kw_only=True)
class Notice:
    """What people are to be told, and the conditions that it is about."""

    row: NoticeRow
    keys: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Changes:
    """What has begun and what is over since people were last told."""

    begun: tuple[Condition, ...]
    over: tuple[Condition, ...]

    @property
    def any(self) -> bool:
        """Whether there is anything."""
        return bool(self.begun or self.over)


def compare(found: Iterable[Condition], told: Mapping[str, frozenset[str]]) -> Changes:
    """Compare conditions with those that were told and are not over."""
    begun: dict[tuple[str, str], Condition] = {}
    over: dict[tuple[str, str], Condition] = {}
    for one in found:
        known = one.key in told.get(one.event, frozenset())
        if one.holds and not known:
            begun.setdefault((one.event, one.key), one)
        elif known and not one.holds:
            over.setdefault((one.event, one.key), one)
    return Changes(begun=tuple(begun.values()), over=tuple(over.values()))


def notices_of(conditions: Sequence[Condition], *, audience: str, now: int) -> list[Notice]:
    """Return the notices of conditions that began or are over: one for all that share a heading."""
    together: defaultdict[tuple[object, ...], list[Condition]] = defaultdict(list)
    for one in conditions:
        event = one.event if one.holds else EVENTS[one.event]
        together[event, one.heading, one.subject].append(one)
    return [_notice(str(event), some, audience, now) for (event, *_), some in together.items()]


def _notice(event: str, conditions: Sequence[Condition], audience: str, now: int) -> Notice:
    subject = conditions[0].subject
    lines = [line[:LONGEST] for one in conditions for line in one.lines]
    more = len(lines) - MOST_LINES
    row: NoticeRow = {
        "event": event,
        "at": now,
        "began_at": min((one.since for one in conditions if one.since is not None), default=None),
        "heading": conditions[0].heading[:LONGEST],
        "lines": [*lines[:MOST_LINES], f"and {more} more"] if more > 0 else lines,
        "repo": subject.repo,
        "branch": subject.branch,
        "backend": subject.backend,
        "oncalls": list(subject.oncalls),
        "path": subject.path,
        "id": str(uuid.uuid4()),
        "audience": audience,
    }
    return Notice(row=row, keys=tuple(one.key for one in conditions))
