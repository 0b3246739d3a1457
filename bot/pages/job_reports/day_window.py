"""What pages of a repository with a window of days share: days, backends, numbers as texts, and which have content."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from bot.job_reports.tables import benchmark_trend, ci_cache_day, ci_metric_day, contribution_day, stable_push
from bot.jobs import runs
from bot.oot.allowlist import versions as allowlists
from bot.pages import job_reads
from bot.queue import sums
from bot.queue.sums import DAY
from bot.web import addresses
from bot.web import openapi as op
from bot.web import parameters as declare
from bot.web.charts import chart, commits_of_days
from bot.web.openapi import NOT_FOUND, UNKNOWN_REPOSITORY
from bot.web.parameters import REPO, REPOSITORY
from bot.web.view import Json, Page, View

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    import sqlalchemy as sa
    from msgspec import Struct

    from bot.queue.sums import Sum
    from bot.web.charts import Chart
    from bot.web.parameters import Parameter, Query

NO_VALUE = "–"  # noqa: RUF001 - a dash stands for no value
SECONDS = 86_400
DECIMALS_FROM, WHOLE_FROM = 100, 1_000  # values from here on are shown with fewer decimals
BACKENDS_MOST = 50
R = TypeVar("R")
DAYS = declare.days()


def iso_day(day: int) -> str:
    """Return a day as a date."""
    return f"{datetime.fromtimestamp(day * SECONDS, UTC):%Y-%m-%d}"


def day_labels(first: int, last: int) -> list[str]:
    """Return the dates of days, both ends included."""
    return [iso_day(day) for day in range(first, last + 1)]


def format_share(value: float | None) -> str:
    """Return a share in percent, such as 94 %."""
    return NO_VALUE if value is None else f"{value * 100:.0f}\N{NO-BREAK SPACE}%"


def format_number(value: float | None) -> str:
    """Return a number for people, with its significant digits.

    >>> [format_number(value) for value in (0.01234, 12.5, 8430, 3086359081.0, 0)]
    ['0.01234', '12.5', '8,430', '3,086,359,081', '0']
    """
    if value is None:
        return NO_VALUE
    size = abs(value)
    if size >= WHOLE_FROM or value == int(value):
        return f"{value:,.0f}" if size < 1e15 else f"{value:.4g}"
    return f"{value:,.1f}" if size >= DECIMALS_FROM else f"{value:.4g}"


def format_change(by: float | None) -> str:
    """Return a relative change with its sign, such as +1.1 %."""
    if by is None:
        return NO_VALUE
    percent = abs(by) * 100
    digits = 1 if percent < 10 else 0
    sign = "\N{MINUS SIGN}" if by < 0 else "+"
    return f"{sign}{percent:,.{digits}f}\N{NO-BREAK SPACE}%"


async def require_repository(query: Query) -> set[int]:
    """Return the ids of the repository in the path; raises Rejected 404, the same for private and unknown ones."""
    ids = await job_reads.visible_ids_of(query, query[REPO])
    if not ids:
        raise UNKNOWN_REPOSITORY.because(f"nothing of {query[REPO]} may be shown here")
    return ids


async def visible_backends(query: Query, repo: str) -> list[tuple[str, set[int]]]:
    """Return the visible backends of an upstream, each with its ids; none for other repositories."""
    if not query.settings.is_upstream(repo):
        return []
    allowlist = await allowlists.read_in_force(query.tx)
    backends = []
    for entry in (allowlist.entries if allowlist else ())[:BACKENDS_MOST]:
        ids = await job_reads.visible_ids(query.request, query.tx, entry.repo)
        if ids:
            backends.append((entry.repo, ids))
    return backends


async def backend_labels(query: Query) -> dict[str, str]:
    """Return the labels of backends, by their names in lower case."""
    allowlist = await allowlists.read_in_force(query.tx)
    return {entry.key: entry.label for entry in allowlist.entries} if allowlist else {}


async def visible_ids(query: Query, repo: str) -> set[int]:
    """Return the visible ids of another repository."""
    return await job_reads.visible_ids(query.request, query.tx, repo)


@dataclass(frozen=True, kw_only=True)
class DayWindow:
    """The days of a repository that are shown."""

    repo: str
    owners: set[int]  # the ids of the repository
    size: int  # days
    first: int  # days since 1970
    last: int
    counted_until: int | None  # None: all changes are counted
    has_grid: bool  # whether commits of its days have a page

    @property
    def since(self) -> int:
        """When the first of them began."""
        return self.first * DAY

    @property
    def page(self) -> dict[str, Any]:
        """What each template of such a page shows."""
        return {
            "repo": self.repo,
            "window": self.size,
            "windows": addresses.windows(self.size),
            "counted_until": self.counted_until,
        }

    def chart(
        self,
        title: str,
        lines: Sequence[tuple[str, Mapping[int, float]]],
        *,
        show: Callable[[float], str] = format_number,
        top: float | None = None,
        links: Mapping[int, str] | None = None,
    ) -> Chart:
        """Return a chart of values by day; a click leads to `links`, or to the commits of the day."""
        days = range(self.first, self.last + 1)
        labels = [iso_day(day) for day in days]
        if links is not None:
            behind = [links.get(day, "") for day in days]
        else:
            behind = commits_of_days(self.repo, labels) if self.has_grid else []
        series = [(name, [values.get(day) for day in days]) for name, values in lines]
        return chart(title, labels, series, show=show, top=top, links=behind)


async def read_window(query: Query, counted: Sum | None = None, *, days: Parameter[int] = DAYS) -> DayWindow:
    """Return the window that an address names; raises Rejected 404 if nothing of the repository is visible."""
    owners = await require_repository(query)
    last = query.tx.now // DAY
    first = last - query[days] + 1
    return DayWindow(
        repo=query[REPO],
        owners=owners,
        size=query[days],
        first=first,
        last=last,
        counted_until=await sums.counted_until(query.tx, counted, owners, first=first) if counted else None,
        has_grid=query.settings.is_upstream(query[REPO]),
    )


def repository_view(
    place: str,
    *,
    read: Callable[[Query], Awaitable[R]],
    values: Callable[[R], dict[str, Any]],
    template: str,
    answer: Callable[[R], Struct],
    content: Any,
    name: str,
    summary: str,
    link: Callable[[R], Mapping[str, object]],
    parameters: Sequence[Parameter[Any]] = (),
    days: Parameter[int] = DAYS,
) -> View[R]:
    """Return the view of a page below a repository, `/{owner}/{repo}/{place}`, and of its JSON."""
    return View(
        read=read,
        parameters=(REPO, days, *parameters),
        page=Page(path=f"{REPOSITORY}/{place}", template=template, values=values),
        json=Json(
            path=f"/api/ci/{place}/{{owner}}/{{repo}}",
            answer=answer,
            content=content,
            name=name,
            summary=summary,
            topic=op.CI,
            refusals=(NOT_FOUND, UNKNOWN_REPOSITORY),
            link=link,
        ),
    )


async def has_benchmarks(query: Query, repo: str) -> bool:
    """Whether benchmarks of a repository are known."""
    return await _has_rows(query, repo, benchmark_trend)


async def has_builds(query: Query, repo: str) -> bool:
    """Whether compiler caches of a repository's builds are known."""
    return await _has_rows(query, repo, ci_cache_day)


async def has_contributions(query: Query, repo: str) -> bool:
    """Whether contributions of outside people were counted."""
    return await _has_rows(query, repo, contribution_day)


async def has_metrics(query: Query, repo: str) -> bool:
    """Whether a repository's CI has written metrics of its own."""
    return await _has_rows(query, repo, ci_metric_day)


async def has_stable(query: Query, repo: str) -> bool:
    """Whether the newest good commit of a branch has been recorded."""
    return await _has_rows(query, repo, stable_push)


async def _has_rows(query: Query, repo: str, table: sa.Table) -> bool:
    ids = await job_reads.visible_ids_of(query, repo)
    return bool(ids) and await runs.has_rows(query.tx, table.c.repository_id, ids)
