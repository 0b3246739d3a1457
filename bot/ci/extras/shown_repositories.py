"""Which repositories a page of the extras shows: the one in its path, and beside an upstream its backends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.ci.collect import job_reads
from bot.oot.allowlist import rows as allowlists
from bot.web.refusals import UNKNOWN_REPOSITORY
from bot.web.view_parameters import REPO

if TYPE_CHECKING:
    from bot.web.asked import Asked

BACKENDS_MOST = 50


async def owners(asked: Asked) -> set[int]:
    """Return the repositories in the path; raises Rejected 404, the same for private and unknown."""
    found = await job_reads.visible_to(asked, asked[REPO])
    if not found:
        raise UNKNOWN_REPOSITORY.because(f"nothing of {asked[REPO]} may be shown here")
    return found


async def backends(asked: Asked, repo: str) -> list[tuple[str, set[int]]]:
    """Return the backends of an upstream that may be shown, each with its ids; none where it is no upstream."""
    if not asked.settings.is_upstream(repo):
        return []
    allowlist = await allowlists.in_force(asked.tx)
    found = []
    for entry in (allowlist.entries if allowlist else ())[:BACKENDS_MOST]:
        ids = await job_reads.visible(asked.request, asked.tx, entry.repo)
        if ids:
            found.append((entry.repo, ids))
    return found


async def labels(asked: Asked) -> dict[str, str]:
    """Return what backends are called, by their names in lower case."""
    allowlist = await allowlists.in_force(asked.tx)
    return {entry.key: entry.label for entry in allowlist.entries} if allowlist else {}


async def visible(asked: Asked, repo: str) -> set[int]:
    """Return the ids of another repository that may be shown."""
    return await job_reads.visible(asked.request, asked.tx, repo)
