"""One file of a job at Buildkite: fetched with its API token, read and stored as files of GitHub's jobs are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from bot.ci.collect import budget
from bot.ci.collect.states import State
from bot.ci.collect.store import fetches
from bot.ci.collect.tasks import fetch_file
from bot.ci.collect.tasks.fetch_file import NotThere, Wanted
from bot.ci.collect.workspace import WORKSPACE
from bot.core import metrics
from bot.github.download import Gone
from bot.providers.buildkite_api import BUILDKITE_API, TokenRefused

if TYPE_CHECKING:
    from pathlib import Path

    from bot.ci.collect.receiving import Fetched
    from bot.ci.collect.tables import FetchRow
    from bot.context import Context
    from bot.providers.settings import Provider


@dataclass(frozen=True, kw_only=True)
class ProviderFile:
    """A file, where it is, and what it is of."""

    provider: Provider
    path: str  # in the API
    fetched: Fetched  # size and digest are filled in afterwards
    blob: str  # the key of its blob, if the parser makes one
    size: int | None = None  # as Buildkite has it


def check_turn(context: Context, provider: Provider, repo: str) -> None:
    """Raise NotYet while the parser or the API token is to be left alone."""
    context.resource(WORKSPACE).shares.check(repo.casefold())
    context.resource(BUILDKITE_API).check_pause(provider)


async def begin_try(context: Context, provider: Provider, fetched: Fetched) -> FetchRow | None:
    """Note that a file is wanted, count a try, and return the fetch; None where it is over. Raises NotYet."""
    names = ("repository_id", "object_id", "run_id", "run_attempt", "job_id")
    kind = "log" if fetched.kind == "log" else "artifact"
    intent: dict[str, Any] = {"kind": kind} | {name: getattr(fetched, name) for name in names}
    async with context.store.transaction() as tx:
        await fetches.want_fetches(tx, [intent])
    check_turn(context, provider, fetched.repo)
    async with context.store.transaction() as tx:
        return await fetches.begin_try(tx, fetched.repository_id, kind, fetched.object_id)


async def fetch(context: Context, row: FetchRow, file: ProviderFile) -> None:
    """Fetch, parse and store a file, and settle its state; raises NotThere, or RetryLater to be run again."""

    async def download(into: Path) -> Fetched:
        api = context.resource(BUILDKITE_API)
        try:
            got = await api.fetch(file.provider, file.path, into, most=fetch_file.MOST)
        except Gone as error:
            raise NotThere(404) from error
        await budget.spend_bytes(context, file.fetched.repo, got.size)
        metrics.CI_BYTES.labels(file.fetched.source).inc(got.size)
        return replace(file.fetched, size=got.size, sha256=got.sha256)

    wanted = Wanted(fetched=file.fetched, path="", size=file.size, digest=None, blob=file.blob)
    try:
        await fetch_file.fetch_file(context, row, wanted, download=download)
    except TokenRefused as error:
        due_at = context.clock.now() + round((error.after or 0) * 1000)
        await fetch_file.end_fetch(context, row, State.FORBIDDEN, str(error), due_at=due_at)
        raise
