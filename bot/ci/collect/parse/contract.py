"""What a parser gets, returns and may raise.

A parser is a function `(Given) -> value`, named under `parsers` of a feature by the kind of file it reads. It runs in
the parser child: its module imports `bot.core`, this module, `zip_members` and other pure modules only. What it
returns is encoded as MessagePack and handed to the kind's receiver (see `bot.ci.collect.receiving`), in the process
with the database.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from pathlib import Path


class Refused(Exception):
    """The file is hostile: over a limit, encrypted, a bomb. The message says which limit."""


class Broken(Exception):
    """The file cannot be read. The message says where it ends or what is wrong."""


@dataclass(frozen=True, kw_only=True)
class Given:
    """One file to be parsed. Nothing in it can be trusted."""

    path: Path  # the file as downloaded
    blob: Path  # the parser may write a file here: it becomes the blob of what was fetched
    members: tuple[str, ...]  # globs of the members that were fetched; empty: all
    options: Any  # what the kind's receiver prepared: plain values


class Request(msgspec.Struct, kw_only=True):
    """What the child is asked for."""

    parser: str  # module:function
    path: str
    blob: str
    answer: str  # the file for what the parser returns
    options: Any = None
    members: tuple[str, ...] = ()
    most_written: int  # bytes of one file: the answer, or the blob


class Reply(msgspec.Struct, kw_only=True):
    """How that ended."""

    state: str  # parsed | refused | broken | unable: the machine's fault, worth another try
    reason: str = ""
    ends: bool = False  # the child ends now: another one has to serve the next file
