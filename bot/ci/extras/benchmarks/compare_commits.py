"""What changed between two commits of a repository, series by series."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from bot.ci.extras.benchmarks import directions, series_rows
from bot.ci.extras.benchmarks.series_rows import SHOWN
from bot.ci.extras.benchmarks.tables import SeriesName
from bot.web import parameters
from bot.web import view_parameters as declare
from bot.web.answers import fill, matching
from bot.web.row_answers import RowAnswer

if TYPE_CHECKING:
    from bot.ci.extras.benchmarks.directions import Directions
    from bot.ci.extras.benchmarks.tables import SeriesRow
    from bot.db.transaction import Transaction
    from bot.web.asked import Asked

LISTED = 200
SHA = Annotated[str, matching(parameters.SHA)]
BASE = declare.parsed(
    "base", SHA, "a commit to compare with, with `head`", parse=parameters.commit, default=""
)
HEAD = declare.parsed("head", SHA, "a commit, or its beginning", parse=parameters.commit, default="")


class ComparedSeries(RowAnswer, row=SeriesName, frozen=True, kw_only=True):
    """A series on two commits."""

    series: Annotated[str, Meta(description="as in its page's address")]
    base: float
    head: float
    change: Annotated[float, Meta(description="share of the base")]
    worse: Annotated[
        bool | None, Meta(description="null: it is no significant change, or the name does not tell")
    ]


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A series that was measured on both commits."""

    series: SeriesRow
    base: float
    head: float
    words: str
    worse: bool | None  # None: no change worth a word, or the metric's name does not tell

    @property
    def change(self) -> float:
        """The change, as a share of the base."""
        return (self.head - self.base) / abs(self.base)


@dataclass(frozen=True, kw_only=True)
class Compared:
    """Two commits, and what differs between them: what is worse first, the largest changes before others."""

    base: str
    head: str
    differences: list[Difference]

    def answers(self) -> list[ComparedSeries]:
        """Return the differences as JSON has them."""
        return [
            fill(
                ComparedSeries,
                one.series,
                series=one.series["digest"].hex()[:SHOWN],
                base=one.base,
                head=one.head,
                change=one.change,
                worse=one.worse,
            )
            for one in self.differences
        ]


async def compare(asked: Asked, owners: set[int], chosen: Directions) -> Compared | None:
    """Compare the commits that the address names; None where it does not name both."""
    if not asked[BASE] or not asked[HEAD]:
        return None
    before, after = [await _values(asked.tx, owners, asked[one]) for one in (BASE, HEAD)]
    shared = before.keys() & after.keys()
    series = await series_rows.series_by_id(asked.tx, shared)
    found = [_difference(series[one], before[one], after[one], chosen) for one in shared if before[one]]
    found.sort(
        key=lambda one: (one.worse is not True, -abs(one.change), one.series["model"], one.series["id"])
    )
    return Compared(base=asked[BASE], head=asked[HEAD], differences=found[:LISTED])


async def _values(tx: Transaction, owners: set[int], sha: str) -> dict[int, float]:
    """Return the median of each series on a commit."""
    found: dict[int, list[float]] = {}
    for point in await series_rows.points_on(tx, owners, sha):
        if point["median"] is not None:
            found.setdefault(point["series_id"], []).append(point["median"])
    return {series: median(values) for series, values in found.items()}


def _difference(series: SeriesRow, before: float, after: float, chosen: Directions) -> Difference:
    by = (after - before) / abs(before)
    counts = abs(by) >= directions.least_change(series["metric"])
    return Difference(
        series=series,
        base=before,
        head=after,
        words=directions.words(series["metric"], by, chosen),
        worse=directions.is_worse(series["metric"], by, chosen) if counts else None,
    )
