"""Models by devices: the table of a metric, upstream's devices first and then those of each backend."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from fnmatch import fnmatchcase
from statistics import geometric_mean
from typing import TYPE_CHECKING, NamedTuple

from bot.ci.extras.benchmarks import directions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bot.ci.extras.benchmarks.tables import NamedTrend

COLUMNS = 12  # shown


class Repository(NamedTuple):
    """A repository whose series are shown."""

    repo: str
    label: str  # of a backend; empty: the repository of the page


class Column(NamedTuple):
    """A device of a repository."""

    repo: str
    label: str
    device: str


class Model(NamedTuple):
    """A row: a model in one of its ways."""

    name: str
    about: str  # compiler, mode and type of numbers


Cells = list[list["NamedTrend"]]  # of a row: the series in each column


@dataclass(frozen=True, kw_only=True)
class DeviceTable:
    """How a metric stands on each device."""

    columns: list[Column]
    rows: Mapping[Model, Cells]  # those with a regression first, as the series come

    @property
    def geomeans(self) -> list[float | None]:
        """The geometric mean of each column."""
        return [_geomean([cells[at] for cells in self.rows.values()]) for at in range(len(self.columns))]


def arrange(trends: Sequence[NamedTrend], repositories: Mapping[int, Repository], first: str) -> DeviceTable:
    """Return the table of some series; `first` is the repository whose devices come first."""
    seen = {Column(*repositories[one["repository_id"]], _device(one)) for one in trends}
    columns = sorted(seen, key=lambda one: (one.repo.casefold() != first.casefold(), one.label, one.device))
    columns = columns[:COLUMNS]
    places = {(column.repo, column.device): at for at, column in enumerate(columns)}
    rows: defaultdict[Model, Cells] = defaultdict(lambda: [[] for _ in columns])
    for one in trends:
        at = places.get((repositories[one["repository_id"]].repo, _device(one)))
        if at is not None:
            about = _joined(one["backend"], one["mode"], one["dtype"])
            rows[Model(one["model"], about)][at].append(one)
    return DeviceTable(columns=columns, rows=rows)


def has_geomeans(metric: str) -> bool:
    """Whether the mean of a metric over models says anything: of speedups it does."""
    return fnmatchcase(metric.casefold(), directions.SPEEDUP)


def _device(one: NamedTrend) -> str:
    return _joined(one["device"], one["arch"])


def _joined(*parts: str) -> str:
    return " ".join(part for part in parts if part)


def _geomean(cells: Cells) -> float | None:
    values = [one["value"] for series in cells for one in series]
    above = [value for value in values if value and value > 0]
    return geometric_mean(above) if above else None
