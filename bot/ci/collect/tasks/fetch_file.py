"""Fetching one log or artifact: ask GitHub where it is, download, parse in the child, store what came of it.

Every end is a state with its reason. A crash in between leaves the fetch as it was: all of it may be done again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import structlog

from bot.ci.collect import budget
from bot.ci.collect.blobs import BLOBS
from bot.ci.collect.parse.contract import Broken, Refused, Request
from bot.ci.collect.receiving import Fetched
from bot.ci.collect.states import State, over_limit
from bot.ci.collect.store import fetches
from bot.ci.collect.tasks import ranged_zip
from bot.ci.collect.workspace import WORKSPACE
from bot.core import metrics
from bot.core.errors import GitHubRefused, NotInstalled, OverBudget, RetryLater
from bot.core.feature import load
from bot.core.json_fields import clean
from bot.github.download import Gone, TooLarge
from bot.github.download_address import DownloadRefused

if TYPE_CHECKING:
    from bot.ci.collect.receiving import Receiver
    from bot.ci.collect.tables import FetchRow
    from bot.context import Context

MIB = 1024 * 1024
MOST = 512 * MIB  # bytes of a log, or of an artifact's archive
MOST_TRIES = 12  # of what breaks off or comes wrong
DAILY = 86_400.0  # seconds until what is forbidden is asked for again
DISK_WAIT = 600.0
EMPTY_WAIT = 600.0  # until GitHub is asked again for what came empty

# (where to write it) -> what is known of the file then; raises NotThere, or what `Downloads.fetch` does
Download = Callable[[Path], Awaitable[Fetched]]

log = structlog.get_logger("bot.ci.collect")


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What is to be fetched, and from where."""

    fetched: Fetched  # size and digest are filled in afterwards
    path: str  # of the API, inside the repository
    size: int | None  # as GitHub has it
    digest: str | None  # sha256:..., as GitHub has it
    blob: str  # the key of its blob, if the parser makes one


class NotThere(Exception):
    """GitHub answered that there is none; why, the caller has to find out."""

    def __init__(self, status: int) -> None:
        super().__init__(str(status))
        self.status = status


@dataclass(frozen=True, kw_only=True)
class Reader:
    """What reads one kind of file: the parser in the child, by name, and the receiver of its answer."""

    parser: str
    receiver: Receiver


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

    `download` writes a file that is not at GitHub.
    """
    reader = reader_of(context, wanted.fetched.kind)
    if reader is None:
        await end_fetch(context, row, State.SKIPPED, f"nothing reads {wanted.fetched.kind} yet")
        return
    if wanted.size is not None and wanted.size > MOST:
        await end_fetch(context, row, State.TOO_LARGE, over_limit(wanted.size, MOST))
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
        await end_fetch(context, row, State.TOO_LARGE, over_limit(error.size, MOST))
    except (DownloadRefused, Refused) as error:
        await end_fetch(context, row, State.REFUSED, str(error))
    except Broken as error:
        await end_fetch(context, row, State.BROKEN, str(error))
    except Gone as error:
        raise RetryLater(str(error)) from error


async def _require_twice_if_empty(context: Context, row: FetchRow, fetched: Fetched) -> None:
    """Raise RetryLater where nothing came for the first time: it may be so while the file is still being stored."""
    if fetched.size or row["size"] == 0:
        return
    async with context.store.transaction() as tx:
        await fetches.settle_fetch(tx, row, State.WANTED, size=0)
    raise RetryLater("nothing came; it is asked for once more", after=EMPTY_WAIT)


async def _download(context: Context, wanted: Wanted, receiver: Receiver, into: Path) -> Fetched:
    """Download the file, or of a large archive the members that are read; returns what is known of it then."""
    fetched = wanted.fetched
    client = context.app_for(fetched.repo).client(fetched.repo, actions="read")
    downloads = context.resource(WORKSPACE).downloads
    await budget.spend_call(context, fetched.repo)
    location = await client.location(client.path(wanted.path))
    if receiver.members and (wanted.size or 0) >= ranged_zip.WORTH_FROM:
        ranged = ranged_zip.RangedDownload(
            downloads=downloads,
            parsers=context.resource(WORKSPACE).parsers,
            owner=fetched.repo.casefold(),
            location=location,
            into=into,
            members=receiver.members,
            most=MOST,
        )
        if (came := await ranged.fetch()) is not None:
            await budget.spend_bytes(context, fetched.repo, came)
            return replace(fetched, size=wanted.size or came, sha256="")
    got = await downloads.fetch(location, into, most=MOST)
    await budget.spend_bytes(context, fetched.repo, got.size)
    metrics.CI_BYTES.labels(fetched.source).inc(got.size)
    if wanted.digest and wanted.digest.startswith("sha256:") and wanted.digest[7:].lower() != got.sha256:
        raise RetryLater("what came has another digest than GitHub says")
    return replace(fetched, size=got.size, sha256=got.sha256)


async def parse_file(context: Context, row: FetchRow, wanted: Wanted, reader: Reader, folder: Path) -> None:
    """Have the file parsed, keep what the parser wrote, and hand its answer to the receiver."""
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
        await end_fetch(context, row, State(reply.state), reply.reason, **known)
        return
    blob = wanted.blob if paths["blob"].exists() else None
    if blob:
        await context.resource(BLOBS).put(blob, paths["blob"])
    answer = receiver.decoder.decode(paths["answer"].read_bytes())
    parsed = State.STORED if fetched.kind == "log" else State.PARSED
    done = parsed if reply.state == "parsed" else State(reply.state)
    reason = clean(reply.reason)[:500] or None
    async with context.store.transaction() as tx:
        await receiver.store(tx, context, fetched, answer, blob)
        await fetches.settle_fetch(tx, row, done, error=reason, blob=blob, **known)
    _ended(row, done, reason)


async def end_fetch(
    context: Context, row: FetchRow, state: State, reason: str | None, **values: object
) -> None:
    """Settle a fetch."""
    async with context.store.transaction() as tx:
        await fetches.settle_fetch(tx, row, state, error=reason and clean(reason)[:500], **values)
    _ended(row, state, reason)


def _ended(row: FetchRow, state: State, reason: str | None) -> None:
    metrics.CI_FETCHES.labels(row["kind"], state.value).inc()
    log.debug("fetched", kind=row["kind"], id=row["object_id"], state=state.value, reason=reason)


async def forbid_fetch(context: Context, row: FetchRow, repo: str, *, installed: bool) -> None:
    """Settle a fetch that the App may not make; the sweep asks again every day."""
    due_at = context.clock.now() + round(DAILY * 1000)
    await end_fetch(
        context, row, State.FORBIDDEN, describe_forbidden(repo, installed=installed), due_at=due_at
    )


def describe_forbidden(repo: str, *, installed: bool) -> str:
    """Return what people read where the App may not look."""
    if installed:
        return f"the App may not read Actions in {repo}: grant actions: read"
    return f"the App is not installed on {repo}, or may not read Actions there: grant actions: read"


async def retry_later(context: Context, row: FetchRow, error: RetryLater) -> None:
    """Note why a try failed and raise, to be run again; after many tries the fetch is over."""
    if row["tries"] >= MOST_TRIES:
        await end_fetch(context, row, State.BROKEN, f"{error}; {row['tries']} tries")
        return
    await _note(context, row, None, error.after or 0)
    raise error


async def wait_for_next_try(context: Context, row: FetchRow, reason: str, seconds: float) -> NoReturn:
    """Note when the next try is due, and raise RetryLater."""
    await _note(context, row, None, seconds)
    raise RetryLater(reason, after=seconds)


async def _note(context: Context, row: FetchRow, reason: str | None, seconds: float) -> None:
    async with context.store.transaction() as tx:
        await fetches.settle_fetch(tx, row, State.WANTED, error=reason, due_at=tx.now + round(seconds * 1000))
