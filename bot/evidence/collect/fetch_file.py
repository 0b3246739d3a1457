"""Fetching one log or artifact: ask GitHub where it is, download, parse in the child, store what came of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import msgspec
import structlog

from bot.core import metrics
from bot.core.errors import GitHubRefused, NotInstalled, OverBudget, RetryLater
from bot.core.feature import load
from bot.core.json_fields import clean
from bot.evidence.collect import fetches
from bot.evidence.collect.blobs import BLOBS
from bot.evidence.collect.parse.contract import Broken, Ranges, Refused, Request
from bot.evidence.collect.parser_pool import WORKSPACE
from bot.evidence.collect.receivers import Fetched
from bot.github.download import DownloadRefused, Gone, TooLarge
from bot.jobs import collection
from bot.jobs.collection import FetchState, over_limit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.context import Context
    from bot.evidence.collect.parser_pool import ParserPool
    from bot.evidence.collect.receivers import Receiver
    from bot.evidence.collect.tables import FetchRow
    from bot.github.client import Location
    from bot.github.download import Downloads

WORTH_FROM = 8 * 1024 * 1024  # bytes of an archive
TAIL = 128 * 1024  # bytes: the end record with the longest comment, and almost every directory
PIECE = 4 * 1024 * 1024  # bytes of one request
MOST_RANGES = 200  # with more the whole archive is downloaded
MOST_ANSWER = 1024 * 1024  # bytes
RANGES = msgspec.msgpack.Decoder(Ranges)
MIB = 1024 * 1024
LARGEST_FILE = 512 * MIB  # bytes of a log, or of an artifact's archive
MOST_TRIES = 12  # of what breaks off or comes wrong
RETRY_DAILY = 86_400.0  # seconds until what is forbidden is asked for again
DISK_WAIT = 600.0
EMPTY_WAIT = 600.0  # until GitHub is asked again for what came empty

# (where to write it) -> what is known of the file then; raises NotThere, or what `Downloads.fetch` does
Download = Callable[[Path], Awaitable[Fetched]]

log = structlog.get_logger("bot.evidence.collect")


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What is to be fetched, and from where."""

    fetched: Fetched  # size and digest are filled in afterwards
    path: str  # of the API, inside the repository
    size: int | None  # as GitHub has it
    digest: str | None  # sha256:..., as GitHub has it
    blob: str  # the key of its blob, if the parser makes one


class NotThere(Exception):
    """GitHub answered that there is no such file; the caller has to find out why."""

    def __init__(self, status: int) -> None:
        super().__init__(str(status))
        self.status = status


@dataclass(frozen=True, kw_only=True)
class Reader:
    """What reads one kind of file: the name of the parser in the child, and the receiver of its answer."""

    parser: str
    receiver: Receiver


@dataclass(frozen=True, kw_only=True)
class RangedDownload:
    """A download of some members of an archive, to a file in a folder of its own."""

    downloads: Downloads
    parsers: ParserPool
    owner: str  # whose turn it is
    location: Location
    into: Path
    members: Sequence[str]  # globs
    most: int  # bytes

    async def fetch(self) -> int | None:
        """Fetch the members; returns the bytes downloaded, None where ranges are not served or are too many.

        Raises what `Downloads.fetch` raises, and Refused or Broken for an archive that cannot be read.
        """
        tail = await self.downloads.fetch_range(self.location, -TAIL, 0)
        if tail is None:
            return None
        content, size = tail
        came, there = len(content), size - len(content)
        await asyncio.to_thread(_directory_place, self.into, there, content, size)
        ranges = await self._plan(there)
        if ranges.directory:
            came += await self._fetch(ranges.directory)
            ranges = await self._plan(ranges.directory[0])
        if ranges.directory or len(ranges.members) > MOST_RANGES:
            return None
        wanted = sum(end - begin for begin, end in ranges.members)
        if came + wanted > self.most:
            raise Refused(f"the wanted members have {wanted:,} bytes, limit {self.most:,}")
        for part in ranges.members:
            came += await self._fetch(part)
        return came

    async def _plan(self, there: int) -> Ranges:
        """Return what is missing of an archive whose end, from a byte on, is there."""
        answer = self.into.with_name("ranges")
        request = Request(
            parser="bot.evidence.collect.parse.archives:plan_ranges",
            path=str(self.into.absolute()),
            blob=str(self.into.with_name("no-blob").absolute()),
            answer=str(answer.absolute()),
            options=there,
            members=tuple(self.members),
            most_written=MOST_ANSWER,
        )
        reply = await self.parsers.parse(request, self.owner)
        if reply.state == "refused":
            raise Refused(reply.reason)
        if reply.state == "unable":
            raise RetryLater(reply.reason)
        if reply.state != "parsed":
            raise Broken(reply.reason)
        return RANGES.decode(await asyncio.to_thread(answer.read_bytes))

    async def _fetch(self, part: tuple[int, int]) -> int:
        start, end = part
        for at in range(start, end, PIECE):
            until = min(at + PIECE, end)
            fetched = await self.downloads.fetch_range(self.location, at, until)
            if fetched is None or len(fetched[0]) != until - at:
                raise Broken(f"the store sent another part than the one from byte {at:,}")
            await asyncio.to_thread(_directory_place, self.into, at, fetched[0], None)
        return end - start


def reader_of(context: Context, kind: str) -> Reader | None:
    """Return what reads a kind of file, None where no feature does."""
    for feature in context.features:
        if kind in feature.parsers and kind in feature.receivers:
            return Reader(parser=feature.parsers[kind], receiver=load(feature.receivers[kind]))
    return None


async def fetch_file(
    context: Context, row: FetchRow, wanted: Wanted, *, download: Download | None = None
) -> None:
    """Fetch, parse and store one file, and settle its state; raises NotThere, or RetryLater to be run again.

    `download` fetches a file that is not on GitHub.
    """
    reader = reader_of(context, wanted.fetched.kind)
    if reader is None:
        await end_fetch(context, row, FetchState.SKIPPED, f"nothing reads {wanted.fetched.kind} yet")
        return
    if wanted.size is not None and wanted.size > LARGEST_FILE:
        await end_fetch(context, row, FetchState.TOO_LARGE, over_limit(wanted.size, LARGEST_FILE))
        return
    if context.resource(WORKSPACE).disk_full():
        await _note(context, row, "disk full", DISK_WAIT)
        raise RetryLater("the disk of DATA_DIR is nearly full: nothing is collected", after=DISK_WAIT)
    try:
        await _download_and_parse(
            context, row, wanted, reader, download or partial(_download, context, wanted, reader.receiver)
        )
    except NotInstalled:
        await forbid_fetch(context, row, wanted.fetched.repo, installed=False)
    except GitHubRefused as error:
        if error.status != 403:
            raise NotThere(error.status) from error
        await forbid_fetch(context, row, wanted.fetched.repo, installed=True)
    except OverBudget as error:
        await _note(context, row, None, error.after or 0)
        raise
    except RetryLater as error:
        await retry_later(context, row, error)


async def parse_file(context: Context, row: FetchRow, wanted: Wanted, reader: Reader, folder: Path) -> None:
    """Parse the file, keep what the parser wrote, and hand its answer to the receiver."""
    fetched, receiver = wanted.fetched, reader.receiver
    paths = {name: folder / name for name in ("file", "blob", "answer")}
    request = Request(
        parser=reader.parser,
        path=str(paths["file"].absolute()),
        blob=str(paths["blob"].absolute()),
        answer=str(paths["answer"].absolute()),
        options=await receiver.options(context, fetched),
        members=receiver.members,
        most_written=receiver.most_written,
    )
    workspace = context.resource(WORKSPACE)
    reply = await workspace.parsers.parse(request, fetched.repo.casefold())
    workspace.shares.spend(fetched.repo.casefold(), reply.seconds)
    known = {"size": fetched.size, "sha256": fetched.sha256 or None, "parser": fetched.kind}
    if reply.state == "unable":
        raise RetryLater(reply.reason, after=DISK_WAIT)
    if not reply.answered:
        await end_fetch(context, row, FetchState(reply.state), reply.reason, **known)
        return
    blob = wanted.blob if paths["blob"].exists() else None
    if blob:
        await context.resource(BLOBS).put(blob, paths["blob"])
    answer = receiver.decoder.decode(paths["answer"].read_bytes())
    parsed = FetchState.STORED if fetched.kind == "log" else FetchState.PARSED
    done = parsed if reply.state == "parsed" else FetchState(reply.state)
    reason = clean(reply.reason)[:500] or None
    async with context.store.transaction() as tx:
        await receiver.store(tx, context, fetched, answer, blob)
        await fetches.settle_fetch(tx, row, done, error=reason, blob=blob, **known)
    _ended_fetch(row, done, reason)


async def end_fetch(
    context: Context, row: FetchRow, state: FetchState, reason: str | None, **values: object
) -> None:
    """Settle a fetch."""
    async with context.store.transaction() as tx:
        await fetches.settle_fetch(tx, row, state, error=reason and clean(reason)[:500], **values)
    _ended_fetch(row, state, reason)


async def forbid_fetch(context: Context, row: FetchRow, repo: str, *, installed: bool) -> None:
    """Settle a fetch that the App is not allowed; the sweep asks again every day."""
    due_at = context.clock.now() + round(RETRY_DAILY * 1000)
    await end_fetch(
        context, row, FetchState.FORBIDDEN, describe_forbidden(repo, installed=installed), due_at=due_at
    )


def describe_forbidden(repo: str, *, installed: bool) -> str:
    """Explain that the App may not read the file."""
    if installed:
        return f"the App may not read Actions in {repo}: grant actions: read"
    return f"the App is not installed on {repo}, or may not read Actions there: grant actions: read"


async def retry_later(context: Context, row: FetchRow, error: RetryLater) -> None:
    """Note why a try failed and raise RetryLater; after many tries, end the fetch."""
    if row["tries"] >= MOST_TRIES:
        await end_fetch(context, row, FetchState.BROKEN, f"{error}; {row['tries']} tries")
        return
    await _note(context, row, None, error.after or 0)
    raise error


async def wait_for_next_try(context: Context, row: FetchRow, reason: str, seconds: float) -> NoReturn:
    """Note when the next try is due, and raise RetryLater."""
    await _note(context, row, None, seconds)
    raise RetryLater(reason, after=seconds)


def _directory_place(path: Path, at: int, content: bytes, size: int | None) -> None:
    """Write bytes at their place; with `size`, into a new file of that size."""
    with path.open("wb" if size is not None else "r+b") as file:
        if size is not None:
            file.truncate(size)
        file.seek(at)
        file.write(content)


async def _download_and_parse(
    context: Context, row: FetchRow, wanted: Wanted, reader: Reader, download: Download
) -> None:
    """Download and parse; an error of the file becomes its state."""
    try:
        async with context.resource(WORKSPACE).folder() as folder:
            fetched = await download(folder / "file")
            await _require_twice_if_empty(context, row, fetched)
            await parse_file(context, row, replace(wanted, fetched=fetched), reader, folder)
    except TooLarge as error:
        await end_fetch(context, row, FetchState.TOO_LARGE, over_limit(error.size, LARGEST_FILE))
    except (DownloadRefused, Refused) as error:
        await end_fetch(context, row, FetchState.REFUSED, str(error))
    except Broken as error:
        await end_fetch(context, row, FetchState.BROKEN, str(error))
    except Gone as error:
        raise RetryLater(str(error)) from error


async def _require_twice_if_empty(context: Context, row: FetchRow, fetched: Fetched) -> None:
    """Raise RetryLater for a file that comes empty the first time: it may still be being stored."""
    if fetched.size or row["size"] == 0:
        return
    async with context.store.transaction() as tx:
        await fetches.settle_fetch(tx, row, FetchState.WANTED, size=0)
    raise RetryLater("nothing came; it is asked for once more", after=EMPTY_WAIT)


async def _download(context: Context, wanted: Wanted, receiver: Receiver, into: Path) -> Fetched:
    """Download the file, or the members that are read of a large archive; returns what is then known of it."""
    fetched = wanted.fetched
    client = context.app_for(fetched.repo).client(fetched.repo, actions="read")
    downloads = context.resource(WORKSPACE).downloads
    await collection.spend_call(context, fetched.repo)
    location = await client.location(client.path(wanted.path))
    if receiver.members and (wanted.size or 0) >= WORTH_FROM:
        ranged = RangedDownload(
            downloads=downloads,
            parsers=context.resource(WORKSPACE).parsers,
            owner=fetched.repo.casefold(),
            location=location,
            into=into,
            members=receiver.members,
            most=LARGEST_FILE,
        )
        if (came := await ranged.fetch()) is not None:
            await collection.spend_bytes(context, fetched.repo, came)
            return replace(fetched, size=wanted.size or came, sha256="")
    got = await downloads.fetch(location, into, most=LARGEST_FILE)
    await collection.spend_bytes(context, fetched.repo, got.size)
    metrics.CI_BYTES.labels(fetched.source).inc(got.size)
    if wanted.digest and wanted.digest.startswith("sha256:") and wanted.digest[7:].lower() != got.sha256:
        raise RetryLater("what came has another digest than GitHub says")
    return replace(fetched, size=got.size, sha256=got.sha256)


def _ended_fetch(row: FetchRow, state: FetchState, reason: str | None) -> None:
    metrics.CI_FETCHES.labels(row["kind"], state.value).inc()
    log.debug("fetched", kind=row["kind"], id=row["object_id"], state=state.value, reason=reason)


async def _note(context: Context, row: FetchRow, reason: str | None, seconds: float) -> None:
    async with context.store.transaction() as tx:
        await fetches.settle_fetch(
            tx, row, FetchState.WANTED, error=reason, due_at=tx.now + round(seconds * 1000)
        )
