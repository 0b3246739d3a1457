"""A page of a repository with a window of days: what such pages of the extras have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from bot.ci.extras import shown_days, shown_repositories
from bot.queue import sums
from bot.queue.sums import DAY
from bot.web import operations as op
from bot.web import parameters
from bot.web import view_parameters as declare
from bot.web.charts import chart, commits_of_days
from bot.web.refusals import NOT_FOUND, UNKNOWN_REPOSITORY
from bot.web.view import Json, Page, View
from bot.web.view_parameters import REPO, REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from msgspec import Struct

    from bot.queue.sums import Sum
    from bot.web.asked import Asked, Parameter
    from bot.web.charts import Chart

R = TypeVar("R")
DAYS = declare.days()


@dataclass(frozen=True, kw_only=True)
class Window:
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
        """What every template of such a page shows."""
        return {
            "repo": self.repo,
            "window": self.size,
            "windows": parameters.windows(self.size),
            "counted_until": self.counted_until,
        }

    def chart(
        self,
        title: str,
        lines: Sequence[tuple[str, Mapping[int, float]]],
        *,
        show: Callable[[float], str] = shown_days.number,
        top: float | None = None,
        links: Mapping[int, str] | None = None,
    ) -> Chart:
        """Return a chart of values by day; a click leads to `links`, or to the commits of the day."""
        days = range(self.first, self.last + 1)
        labels = [shown_days.iso(day) for day in days]
        if links is not None:
            behind = [links.get(day, "") for day in days]
        else:
            behind = commits_of_days(self.repo, labels) if self.has_grid else []
        series = [(name, [values.get(day) for day in days]) for name, values in lines]
        return chart(title, labels, series, show=show, top=top, links=behind)


async def read_window(asked: Asked, counted: Sum | None = None, *, days: Parameter[int] = DAYS) -> Window:
    """Return the window that an address names; raises Rejected 404 where nothing of the repository may be shown."""
    owners = await shown_repositories.owners(asked)
    last = asked.tx.now // DAY
    first = last - asked[days] + 1
    return Window(
        repo=asked[REPO],
        owners=owners,
        size=asked[days],
        first=first,
        last=last,
        counted_until=await sums.counted_until(asked.tx, counted, owners, first=first) if counted else None,
        has_grid=asked.settings.is_upstream(asked[REPO]),
    )


def repository_view(
    place: str,
    *,
    read: Callable[[Asked], Awaitable[R]],
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
