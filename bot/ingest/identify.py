"""Task identify: asks GitHub about the repositories that the settings name, until id and visibility are known.

Until then upstream and the allowlist's repository count as private.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from bot.core.errors import GitHubRefused, RetryLater
from bot.ingest import pinned, record_writer
from bot.ingest.records import REPOSITORY, from_payload
from bot.ingest.watched import names_of_unknown_visibility, watched

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bot.context import Context
    from bot.queue.tasks import Task

log = structlog.get_logger("bot.ingest.identify")

AGAIN = 60.0  # seconds until GitHub is asked again about what it did not tell


async def identify_unknown(context: Context, _task: Task) -> None:
    """Ask about every repository whose visibility is unknown."""
    async with context.store.read() as tx:
        named = (await watched(context, tx)).named
        unknown = await names_of_unknown_visibility(tx, named)
    await identify(context, unknown)


async def identify_at_start(context: Context) -> None:
    """Ask about every repository that the settings name: much may have changed while we were away."""
    async with context.store.transaction() as tx:
        named = (await watched(context, tx)).named
        await pinned.keep(tx, named)
    await identify(context, named)


async def identify(context: Context, repos: Iterable[str]) -> None:
    """Record what GitHub says about some repositories; raises RetryLater when it says nothing about one of them."""
    failures = []
    for repo in sorted(repos):
        try:
            found = await context.app_for(repo).by_name(repo, metadata="read").repository()
        except (GitHubRefused, RetryLater) as error:  # the others can still be asked about
            failures.append(f"{repo}: {error}")
            continue
        async with context.store.transaction() as tx:
            mine = await pinned.pin(tx, repo, found["id"])
            if mine != found["id"]:
                log.error(
                    "another repository has this name now", problem=pinned.other(repo, mine, found["id"])
                )
                continue
            payload = {"action": "read", "repository": found}
            record_writer.record(tx, from_payload(REPOSITORY, payload, guid="", received_at=tx.now))
    if failures:
        raise RetryLater("; ".join(failures), after=AGAIN)
