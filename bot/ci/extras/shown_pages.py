"""Which pages of the extras have something to show of a repository: only these are in its bar of links."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.ci.collect import job_reads
from bot.ci.collect.store import runs
from bot.ci.extras.benchmarks.tables import benchmark_trend
from bot.ci.extras.caches.tables import ci_cache_day
from bot.ci.extras.contributions.tables import contribution_day
from bot.ci.extras.metrics.tables import ci_metric_day
from bot.ci.extras.stable.tables import stable_push

if TYPE_CHECKING:
    import sqlalchemy as sa

    from bot.web.asked import Asked


async def has_benchmarks(asked: Asked, repo: str) -> bool:
    """Whether benchmarks of a repository are known."""
    return await _has_rows(asked, repo, benchmark_trend)


async def has_builds(asked: Asked, repo: str) -> bool:
    """Whether compiler caches of a repository's builds are known."""
    return await _has_rows(asked, repo, ci_cache_day)


async def has_contributions(asked: Asked, repo: str) -> bool:
    """Whether contributions of outside people were counted."""
    return await _has_rows(asked, repo, contribution_day)


async def has_metrics(asked: Asked, repo: str) -> bool:
    """Whether a repository's CI has written metrics of its own."""
    return await _has_rows(asked, repo, ci_metric_day)


async def has_stable(asked: Asked, repo: str) -> bool:
    """Whether the newest good commit of a branch has been recorded."""
    return await _has_rows(asked, repo, stable_push)


async def _has_rows(asked: Asked, repo: str, table: sa.Table) -> bool:
    ids = await job_reads.visible_to(asked, repo)
    return bool(ids) and await runs.has_rows(asked.tx, table.c.repository_id, ids)
