"""GET /{owner}/{repo}/storage and its JSON: what fills a repository's artifact storage, by workflow and day."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from msgspec import Meta

from bot.ci.collect import artifact_text, job_reads
from bot.ci.collect.store import artifacts
from bot.ci.collect.tables import WorkflowDay
from bot.ci.collect.views.artifacts import NOTHING
from bot.web import operations as op
from bot.web import parameters
from bot.web import view_parameters as declare
from bot.web.answers import Answer, fill
from bot.web.charts import chart, commits_of_days
from bot.web.row_answers import RowAnswer
from bot.web.view import Json, Page, View
from bot.web.view_parameters import REPO

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bot.web.asked import Asked
    from bot.web.charts import Chart

DAY = 86_400_000  # milliseconds
WORKFLOWS = 100


class StorageDay(RowAnswer, row=WorkflowDay, frozen=True, kw_only=True):
    """What one workflow left behind on one day."""

    day: Annotated[str, Meta(description="of creation, UTC", examples=["2026-01-31"])]


class Storage(Answer, frozen=True, kw_only=True):
    """What fills a repository's artifact storage, newest day first"""

    days: int
    storage: list[StorageDay]


class Share(NamedTuple):
    """What one workflow left behind in the window."""

    workflow: str
    artifacts: int
    size: str
    share: float  # of all bytes, 0 to 1


@dataclass(frozen=True, kw_only=True)
class FoundStorage:
    """What was left behind in a window."""

    repo: str
    days: int
    today: int  # days since 1970
    storage: list[WorkflowDay]
    has_grid: bool  # whether its commits have a page


DAYS = declare.days()


async def read_storage(asked: Asked) -> FoundStorage:
    """Read what was uploaded in the window; when it expires is GitHub's business. Raises Rejected 404."""
    tx, repo, days = asked.tx, asked[REPO], asked[DAYS]
    owners = await job_reads.visible_to(asked, repo)
    if not owners:
        raise NOTHING.because(f"nothing of {repo} may be shown")
    since = tx.now - (days - 1 if asked.for_page else days) * DAY
    found = await artifacts.storage_by_workflow(tx, owners, since=since)
    has_grid = asked.settings.is_upstream(repo)
    return FoundStorage(repo=repo, days=days, today=tx.now // DAY, storage=found, has_grid=has_grid)


def show(found: FoundStorage) -> dict[str, Any]:
    """Return what the page shows."""
    shares, days = _shares(found.storage), found.days
    return {
        "repo": found.repo,
        "days": days,
        "windows": parameters.windows(days),
        "size": artifact_text.size_in_words(sum(row["bytes"] for row in found.storage)),
        "artifacts": sum(row["artifacts"] for row in found.storage),
        "shares": shares[:WORKFLOWS],
        "more": max(len(shares) - WORKFLOWS, 0),
        "charts": _charts(found, range(found.today - days + 1, found.today + 1)),
    }


def answer(found: FoundStorage) -> Storage:
    """Return the same by day."""
    rows = [
        fill(StorageDay, row, day=f"{datetime.fromtimestamp(row['day'] * 86_400, UTC):%Y-%m-%d}")
        for row in found.storage
    ]
    return Storage(days=found.days, storage=rows)


def _shares(found: Iterable[WorkflowDay]) -> list[Share]:
    """Return what each workflow left behind, the largest first."""
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for row in found:
        sums[row["workflow"]][0] += row["artifacts"]
        sums[row["workflow"]][1] += row["bytes"]
    whole = sum(size for _, size in sums.values()) or 1
    return [
        Share(name, count, artifact_text.size_in_words(size), size / whole)
        for name, (count, size) in sorted(sums.items(), key=lambda one: (-one[1][1], one[0]))
    ]


def _charts(found: FoundStorage, days: Sequence[int]) -> list[Chart]:
    sizes: dict[int, list[float]] = {day: [0, 0] for day in days}
    for row in found.storage:
        of_day = sizes.setdefault(row["day"], [0, 0])
        of_day[0] += row["bytes"]
        of_day[1] += row["artifacts"]
    labels = [f"{datetime.fromtimestamp(day * 86_400, UTC):%Y-%m-%d}" for day in days]
    links = commits_of_days(found.repo, labels) if found.has_grid else ()
    draw = partial(chart, labels=labels, links=links)
    return [
        draw("Uploaded", series=[("uploaded", [sizes[day][0] for day in days])], show=_words),
        draw("Artifacts", series=[("artifacts", [sizes[day][1] for day in days])], show="{:,.0f}".format),
    ]


def _words(size: float) -> str:
    return artifact_text.size_in_words(round(size))


VIEW = View(
    read=read_storage,
    parameters=(REPO, DAYS),
    page=Page(path="/{owner}/{repo}/storage", template="storage.html", values=show),
    json=Json(
        path="/api/ci/storage/{owner}/{repo}",
        answer=answer,
        content=Storage,
        name="ciStorage",
        summary="What fills a repository's artifact storage",
        topic=op.CI,
        refusals=(NOTHING,),
        link=lambda found: {"repo": found.repo, "days": found.days},
    ),
)
