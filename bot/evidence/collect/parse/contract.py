"""What a parser gets, returns and may raise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from pathlib import Path


class NotRead(Exception):
    """Nothing of the file can be used; people read the reason.

    An answer is stored by the kind's receiver all the same, so that it knows what is missing.
    """

    def __init__(self, reason: str, *, answer: Any = None) -> None:
        super().__init__(reason)
        self.answer = answer


class Refused(NotRead):
    """The file is hostile: over a limit, encrypted, a bomb. The message says which limit."""


class Broken(NotRead):
    """The file cannot be read. The message says where it ends or what is wrong."""


@dataclass(frozen=True, kw_only=True)
class ParserInput:
    """One file to be parsed. Nothing in it can be trusted."""

    path: Path  # the file as downloaded
    blob: Path  # the parser may write a file here: it becomes the blob of what was fetched
    members: tuple[str, ...]  # globs of the members that were fetched; empty: all
    options: Any  # what the kind's receiver prepared: plain values


class Request(msgspec.Struct, kw_only=True):
    """A request to the child."""

    parser: str  # module:function
    path: str
    blob: str
    answer: str  # the file for what the parser returns
    options: Any = None
    members: tuple[str, ...] = ()
    most_written: int  # bytes of one file: the answer, or the blob


class Reply(msgspec.Struct, kw_only=True):
    """How a request ended."""

    state: str  # parsed | refused | broken | unable: the machine's fault, worth another try
    reason: str = ""
    answered: bool = False  # there is an answer
    seconds: float = 0.0  # that it took, as the parent measured
    ends: bool = False  # the child ends now: another one has to serve the next file


class Ranges(msgspec.Struct, kw_only=True):
    """What has to be downloaded of an archive whose end is there."""

    # the part of the directory that is missing; then the child is asked again
    directory: tuple[int, int] | None = None
    members: list[tuple[int, int]] = []  # where the wanted members lie, in order
