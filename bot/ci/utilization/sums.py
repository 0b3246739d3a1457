"""What a job adds to the sums of its day and week."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Self

import msgspec

from bot.ci.utilization.histogram import Histogram, decoded, encoded, unpacked
from bot.ci.utilization.parsed import METRICS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bot.ci.utilization.rows import JobRow

SPANS = (1, 7)  # days
MONDAY = 4  # days from the Thursday that 1970 began with to a Monday
TOTALS = ("cpu_sum", "mem_sum", "gpu_sum", "gpu_bw_sum", "gpu_alloc_sum")  # columns, as METRICS


class Kind(NamedTuple):
    """A group of jobs."""

    kind: str  # job | workflow | runner
    group_key: str
    parent: str
    trusted: bool


class Sums(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over jobs."""

    jobs: int = 0
    records: int = 0
    bins: int = 0  # packed
    totals: tuple[int, ...] = (0,) * len(METRICS)
    idle_gpu_s: int = 0
    gpu_s: int = 0
    seconds: dict[str, tuple[int, int]] = {}  # label -> of machines, of those with accelerators

    @classmethod
    def of_job(cls, row: JobRow) -> Self:
        """Return what one job adds."""
        machine = row["machine_s"]
        return cls(
            jobs=1,
            records=row["records"],
            bins=decoded(row["histograms"], len(METRICS)),
            totals=tuple(row["totals"]),
            idle_gpu_s=round(row["idle_gpu_s"]),
            gpu_s=round(row["gpu_s"]),
            seconds={row["runner_label"]: (machine, machine if row["gpu_s"] else 0)},
        )

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Self:
        """Return stored sums."""
        return cls(
            jobs=row["jobs"],
            records=row["records"],
            bins=decoded(row["histograms"], len(METRICS)),
            totals=tuple(row[name] for name in TOTALS),
            idle_gpu_s=row["idle_gpu_s"],
            gpu_s=row["gpu_s"],
            seconds={label: (each[0], each[1]) for label, each in row["seconds"].items()},
        )

    def as_row(self) -> dict[str, Any]:
        """Return the columns."""
        return {
            "jobs": self.jobs,
            "records": self.records,
            "histograms": encoded(self.bins, len(METRICS)),
            **dict(zip(TOTALS, self.totals, strict=True)),
            "idle_gpu_s": self.idle_gpu_s,
            "gpu_s": self.gpu_s,
            "seconds": self.seconds,
        }

    def __add__(self, other: Sums) -> Sums:
        seconds = dict(self.seconds)
        for label, (machine, with_gpu) in other.seconds.items():
            before = seconds.get(label, (0, 0))
            seconds[label] = (before[0] + machine, before[1] + with_gpu)
        return Sums(
            jobs=self.jobs + other.jobs,
            records=self.records + other.records,
            bins=self.bins + other.bins,
            totals=tuple(map(sum, zip(self.totals, other.totals, strict=True))),
            idle_gpu_s=self.idle_gpu_s + other.idle_gpu_s,
            gpu_s=self.gpu_s + other.gpu_s,
            seconds={label: each for label, each in seconds.items() if each != (0, 0)},
        )

    def histograms(self) -> dict[str, Histogram]:
        """Return the histogram of every metric."""
        return dict(zip(METRICS, unpacked(self.bins, self.totals), strict=True))


def kinds_of(row: JobRow) -> list[Kind]:
    """Return the groups that a job counts in."""
    groups = (
        ("job", row["base_name"], row["workflow_name"]),
        ("workflow", row["workflow_name"], ""),
        ("runner", row["runner_label"], ""),
    )
    return [Kind(kind, group, parent, row["trusted"]) for kind, group, parent in groups]


def first_day(day: int, span: int) -> int:
    """Return the first day of the span that a day is in."""
    return day if span == 1 else day - (day - MONDAY) % 7
