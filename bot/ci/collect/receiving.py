"""What becomes of a parsed file: each kind names a receiver beside its parser.

The parser runs in the child and sees one hostile file; the receiver runs in the process with the database and sees the
parser's answer and GitHub's own word about where the file came from.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import msgspec

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bot.context import Context
    from bot.db.transaction import Transaction

MIB = 1024 * 1024


class ToldJob(TypedDict):
    """A job of another CI of a repository, as that CI tells of it; names come from outside."""

    repo: str
    workflow: str
    name: str
    conclusion: str | None
    head_sha: str
    branch: str | None
    pull: int | None
    trusted: bool
    began_at: int | None  # epoch milliseconds, as the next
    ended_at: int | None


@dataclass(frozen=True, kw_only=True)
class Fetched:
    """A fetched file, as our rows and GitHub describe it; nothing here was read from the file."""

    repository_id: int
    repo: str
    source: Literal["artifact", "log", "upload", "provider"]
    kind: str  # of the file: log, junit, usage, ...
    # GitHub's id of the artifact, or of the job whose log it is; below 0: of an upload, or of another CI's job
    object_id: int
    run_id: int
    run_attempt: int
    job_id: int | None  # None: of the run, not attributed to a job
    name: str  # of the artifact, or of the job; from outside
    head_sha: str
    trusted: bool  # may feed baselines
    private: bool  # its repository is private: nothing of it may be shown publicly
    size: int  # bytes as downloaded
    sha256: str
    failed: bool | None = None  # whether its job failed; None: GitHub's record of the job says
    workflow: str | None = None  # of its job, where GitHub has no record of that
    told: ToldJob | None = None  # its job, where another CI tells of it


async def no_options(_context: Context, _fetched: Fetched) -> Any:
    """Give the parser no options."""
    return None


@dataclass(frozen=True, kw_only=True)
class Receiver:
    """How the files of one kind are parsed and stored.

    `store(tx, context, fetched, answer, blob)` writes rows by natural keys, at most a few hundred, in the transaction
    in which the file counts as parsed. `answer` is what the parser returned; `blob` names what it wrote, None where it
    wrote nothing.
    """

    store: Callable[[Transaction, Context, Fetched, Any, str | None], Awaitable[None]]
    answer: Any = Any  # the type of what the parser returns, as msgspec decodes it
    options: Callable[[Context, Fetched], Awaitable[Any]] = no_options
    most_written: int = 64 * MIB  # bytes of the answer, and of the blob
    members: tuple[str, ...] = ()  # globs of the members the parser reads; empty: all of them
    absent: Callable[[Context, Fetched], Awaitable[None]] | None = None  # done where GitHub has no such file
    blob_prefix: str = ""  # first word of the blob's key; empty: the kind has no blobs
    decoder: msgspec.msgpack.Decoder[Any] = field(init=False)  # of the answer

    def __post_init__(self) -> None:
        object.__setattr__(self, "decoder", msgspec.msgpack.Decoder(self.answer))
