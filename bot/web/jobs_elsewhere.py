"""Jobs of a repository that ran elsewhere than on GitHub Actions, as the features know them that keep such jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.core.feature import sections

if TYPE_CHECKING:
    from bot.core.feature import Features
    from bot.db.transaction import Transaction


@dataclass(frozen=True, kw_only=True)
class JobElsewhere:
    """A job of another CI, or one that only a commit status tells of, at its newest attempt."""

    id: int  # its number in cells of the grid: below 0
    workflow: str
    name: str
    status: str
    conclusion: str | None
    attempt: int
    queued_at: int | None
    started_at: int | None
    completed_at: int | None
    url: str | None


async def read_jobs_elsewhere(features: Features, tx: Transaction, repo: str, sha: str) -> list[JobElsewhere]:
    """Return the jobs on a commit that features know of."""
    return [job for read in sections(features, "elsewhere") for job in await read(tx, repo, sha)]
