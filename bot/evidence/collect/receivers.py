"""Which job of a run an artifact belongs to, and what becomes of a parsed file: each kind names a receiver."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict

import msgspec

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping

    from bot.context import Context
    from bot.db.transaction import Transaction

_JOB_ID = re.compile(r"[_-](\d{1,19})(?:\.zip)?$")
_ATTEMPT = re.compile(r"(?:^|-)runattempt(\d{1,6})(?=-|_|$)")
_PARTIAL = re.compile(r"-partial(\d{1,6})(?:\.zip)?$")
_WORD = re.compile(r"[^0-9a-z]+")
# smaller numbers at the end of a name are shards and the like, never ids of GitHub's
LEAST_JOB_ID = 1_000_000
KIND_WORDS = frozenset(
    {
        "artifact", "artifacts", "benchmark", "benchmarks", "debug", "json", "jsons", "junit", "log", "logs", "metrics",
        "pytest", "report", "reports", "result", "results", "runattempt", "sccache", "stats", "surefire", "test",
        "tests", "torchci", "usage", "utilization", "xml", "zip",
    }
)  # fmt: skip
MIB = 1024 * 1024


class Job(NamedTuple):
    """A job of the run that left the artifact."""

    id: int
    name: str
    attempt: int


class Attribution(NamedTuple):
    """The job that an artifact belongs to, and what in its name does not fit."""

    job_id: int | None
    flags: tuple[str, ...]


class ReportedJob(TypedDict):
    """A job of another CI, as that CI reports it; names come from outside."""

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
    told: ReportedJob | None = None  # its job, where another CI tells of it


def attribute_artifact(name: str, jobs: Collection[Job], *, attempt: int, run_id: int) -> Attribution:
    """Return the job of the run that an artifact belongs to, None where its name does not tell."""
    flags = []
    name = _PARTIAL.sub("", name)
    named = _ATTEMPT.search(name)
    if named and int(named[1]) != attempt:
        flags.append("foreign_attempt")
    match = _JOB_ID.search(name)
    number = int(match[1]) if match else 0
    if number in {job.id for job in jobs}:  # however small, as on a new GitHub Enterprise Server
        return Attribution(number, tuple(flags))
    if number >= LEAST_JOB_ID and number != run_id:
        flags.append("foreign_job")
        return Attribution(None, tuple(flags))
    return Attribution(_by_words(name, jobs, attempt=attempt, run_id=run_id), tuple(flags))


def partial_number(name: str) -> int | None:
    """Return the number of an artifact that a job leaves while it runs, `...-partial3`; None for any other.

    >>> partial_number("test-reports_123-partial3"), partial_number("test-reports_123")
    (3, None)
    """
    match = _PARTIAL.search(name)
    return int(match[1]) if match else None


def reported_job(given: object, jobs: Collection[Job]) -> Attribution:
    """Return the job that a file names as its own; only a job of the run is believed."""
    if given is None or given == "":
        return Attribution(None, ())
    text = str(given)
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0
    known = number in {job.id for job in jobs}
    return Attribution(number, ()) if known else Attribution(None, ("foreign_job",))


def attempt_of(created_at: int | None, started: Mapping[int, int | None]) -> int:
    """Return the attempt that made an artifact: the last that had begun when it was created.

    `started` holds when each known attempt of the run began. Artifacts of all attempts are listed together.
    """
    begun = [
        attempt for attempt, at in started.items() if at is None or created_at is None or at <= created_at
    ]
    return max(begun) if begun else min(started, default=1)


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


def _by_words(name: str, jobs: Collection[Job], *, attempt: int, run_id: int) -> int | None:
    """Return the attempt's only job whose name has all words of the artifact's name."""
    wanted = _words(_ATTEMPT.sub("", name.lower())) - KIND_WORDS - {str(run_id), str(attempt)}
    if not wanted:
        return None
    fitting = [job.id for job in jobs if job.attempt == attempt and wanted <= _words(job.name)]
    return fitting[0] if len(fitting) == 1 else None


def _words(text: str) -> set[str]:
    return {word for word in _WORD.split(text.lower()) if word}
