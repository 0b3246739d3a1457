"""The files a pull request changes, asked of GitHub once per head, whatever the number of backends."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import structlog

from bot.core.errors import GitHubRefused
from bot.oot.dispatch import rows_commits

if TYPE_CHECKING:
    from typing import Any

    from bot.context import Context
    from bot.github.client import Client
    from bot.oot.dispatch.tables import ChangedFilesRow

log = structlog.get_logger("bot.oot.dispatch.changed_files")

MOST_FILES = 3000  # GitHub lists no more files of a pull request


class Head(NamedTuple):
    """A head of a pull request, and the branch it is meant for."""

    repo: str
    number: int
    sha: str
    base_ref: str


async def read_changed_files(
    context: Context, head: Head, *, since: int | None, certain: bool
) -> tuple[list[str], bool]:
    """Return the files a head changes, old names of renamed ones too, and whether these are certainly all.

    With `certain` GitHub is asked whether it is still the head after they were listed: a list is of the newest one.
    Raises GitHubRefused, RetryLater.
    """
    async with context.store.read() as tx:
        known = await rows_commits.get_changed_files(
            tx, head.repo, head.number, head.sha, base_ref=head.base_ref
        )
    if known is not None and (known["complete"] is not None or not certain):
        return known["paths"], bool(known["complete"])
    client = context.github.client(head.repo, since=since, pull_requests="read")
    paths, counted = await _list(client, head.number)
    complete = await _is_all(client, head, counted) if certain else None
    async with context.store.transaction() as tx:
        await rows_commits.store_changed_files(
            tx, head.repo, head.number, head.sha, paths, base_ref=head.base_ref, complete=complete
        )
    return paths, bool(complete)


def all_paths(row: ChangedFilesRow | None) -> list[str] | None:
    """Return the files of a head; None where they are not known, or not all of them."""
    return row["paths"] if row is not None and row["complete"] else None


async def _list(client: Client, number: int) -> tuple[list[str], int]:
    """Return the listed files and how many there are, without those of former names."""
    url = client.path(f"pulls/{number}/files{{?per_page}}")
    paths: list[str] = []
    counted = 0
    async for one in client.getiter(url, {"per_page": "100"}):
        paths += _names(one)
        counted += 1
        if counted == MOST_FILES:
            break
    return paths, counted


def _names(one: dict[str, Any]) -> list[str]:
    """Return the names of a changed file, as they can be stored: a name need not be UTF-8."""
    names = [one["filename"], one.get("previous_filename")]
    return [name.encode("utf-8", "replace").decode() for name in names if isinstance(name, str)]


async def _is_all(client: Client, head: Head, counted: int) -> bool:
    """Return whether the files that were listed are all of this head."""
    try:
        pull = await client.getitem(client.path(f"pulls/{head.number}"))
    except GitHubRefused as error:
        log.info("whose files these are is unknown", pull=head.number, reason=str(error))
        return False
    total = pull.get("changed_files")
    at_head = (pull["head"]["sha"], pull["base"]["ref"]) == (head.sha, head.base_ref)
    return at_head and (total == counted if isinstance(total, int) else counted < MOST_FILES)
