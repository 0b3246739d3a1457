"""GET /{owner}/{repo}/storage: what fills a repository's artifact storage, by workflow and day."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from bot.ci.collect import artifact_reads, job_reads
from bot.core.errors import Rejected
from bot.web import parameters
from bot.web.app_keys import CONTEXT
from bot.web.charts import chart
from bot.web.html import page, render

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aiohttp import web

    from bot.ci.collect.artifact_reads import StorageRow
    from bot.web.charts import Chart

DAY = 86_400_000  # milliseconds
WORKFLOWS = 100


class Share(NamedTuple):
    """What one workflow left behind in the window."""

    workflow: str
    artifacts: int
    size: str
    share: float  # of all bytes, 0 to 1


@page
async def storage(request: web.Request) -> web.Response:
    """Show what was uploaded in the window; when it expires is GitHub's business."""
    repo, days = parameters.repo(request), parameters.days(request)
    async with request.app[CONTEXT].store.read() as tx:
        owners = await job_reads.visible(request, tx, repo)
        if not owners:
            raise Rejected(404, "not_found", f"nothing of {repo} may be shown")
        today = tx.now // DAY
        found = await artifact_reads.storage(tx, owners, since=tx.now - (days - 1) * DAY)
    shares = _shares(found)
    return render(
        request,
        "storage.html",
        repo=repo,
        days=days,
        windows=parameters.windows(days),
        fresh=parameters.of(request),
        size=artifact_reads.size_in_words(sum(row["bytes"] for row in found)),
        artifacts=sum(row["artifacts"] for row in found),
        shares=shares[:WORKFLOWS],
        more=max(len(shares) - WORKFLOWS, 0),
        charts=_charts(found, range(today - days + 1, today + 1)),
        json_url=f"/api/ci/storage/{repo}?days={days}",
    )


def _shares(found: Iterable[StorageRow]) -> list[Share]:
    """Return what each workflow left behind, the largest first."""
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for row in found:
        sums[row["workflow"]][0] += row["artifacts"]
        sums[row["workflow"]][1] += row["bytes"]
    whole = sum(size for _, size in sums.values()) or 1
    return [
        Share(name, count, artifact_reads.size_in_words(size), size / whole)
        for name, (count, size) in sorted(sums.items(), key=lambda one: (-one[1][1], one[0]))
    ]


def _charts(found: Iterable[StorageRow], days: Sequence[int]) -> list[Chart]:
    sizes: dict[int, list[float]] = {day: [0, 0] for day in days}
    for row in found:
        of_day = sizes.setdefault(row["day"], [0, 0])
        of_day[0] += row["bytes"]
        of_day[1] += row["artifacts"]
    labels = [f"{datetime.fromtimestamp(day * 86_400, UTC):%b %d}" for day in days]
    return [
        chart("Uploaded", labels, [("uploaded", [sizes[day][0] for day in days])], show=_words),
        chart("Artifacts", labels, [("artifacts", [sizes[day][1] for day in days])], show="{:,.0f}".format),
    ]


def _words(size: float) -> str:
    return artifact_reads.size_in_words(round(size))
