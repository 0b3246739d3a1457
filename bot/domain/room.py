"""What is left out of a comment that would not fit? A ladder of ever less room, to one line."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from bot.domain import failures

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, kw_only=True)
class Room:
    """How much of a pull request is told, and what is left out, in words."""

    left_out: str = ""
    passing: bool = True
    lists: bool = True  # of running, stopped and watching backends
    sections: str = "all"  # all | blocking | none: which failing backends get one
    detail: failures.Detail = field(default_factory=failures.Detail)
    rows: int = 200  # of the table


def ladder() -> Iterator[Room]:
    """Yield ever less room, the least important gone first."""
    yield (room := Room())
    yield (room := replace(room, passing=False, left_out="passing backends"))
    bare = replace(room.detail, traces=False)
    yield (room := replace(room, detail=bare, left_out=f"{room.left_out}, stack traces"))
    bare = replace(bare, messages=False)
    yield (room := replace(room, detail=bare, left_out=f"{room.left_out}, messages"))
    bare = replace(bare, tests=0)
    yield (room := replace(room, detail=bare, left_out=f"{room.left_out}, failed tests"))
    yield (room := replace(room, detail=replace(bare, jobs=5), left_out=f"{room.left_out}, most jobs"))
    left_out = f"{room.left_out}, non-blocking failures"
    yield (room := replace(room, sections="blocking", left_out=left_out))
    yield (room := replace(room, sections="none", lists=False, left_out="all but the table"))
    yield replace(room, rows=20)
    yield replace(room, rows=0, left_out="all backends")
