"""What jobs add to the sums of their day and week."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from bot.ci.utilization.parse.histogram import COLUMNS, METRICS, decoded, encoded, unpacked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bot.ci.utilization.parse.histogram import Histogram
    from bot.ci.utilization.tables import DayJob, DaySums

SPANS = (1, 7)  # days
MONDAY = 4  # days from the Thursday that 1970 began with to a Monday
TOTALS = tuple(f"{name}_sum" for name in COLUMNS.values())  # columns, as METRICS
COUNTS = ("jobs", "records", "idle_gpu_s", "gpu_s")


class DayGroup(NamedTuple):
    """Which sums of a day a job counts in: a kind, such as `runner`, and a group of it."""

    kind: str
    group: str
    parent: str
    of_trusted: bool

    def as_columns(self) -> dict[str, str | bool]:
        """Return the columns of a row of sums."""
        return dict(zip(("kind", "group_key", "parent", "trusted"), self, strict=True))


class Sums:
    """Sums over jobs, while they are added up."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys(COUNTS, 0)
        self.seconds: dict[str, tuple[int, int]] = {}  # label -> of machines, of those with accelerators
        self._bins = 0  # packed
        self._totals = [0] * len(METRICS)

    def add_job(self, row: DayJob) -> None:
        """Add a job."""
        machine = row["machine_s"]
        counts = {
            "jobs": 1, "records": row["records"], "idle_gpu_s": round(row["idle_gpu_s"]),
            "gpu_s": round(row["gpu_s"]),
        }  # fmt: skip
        seconds = {row["runner_label"]: (machine, machine if row["gpu_s"] else 0)}
        self._add(counts, row["histograms"], row["totals"], seconds)

    def add_row(self, row: DaySums) -> None:
        """Add stored sums."""
        columns: Mapping[str, int] = {name: row[name] for name in (*COUNTS, *TOTALS)}  # type: ignore[literal-required]
        self._add(columns, row["histograms"], [columns[name] for name in TOTALS], row["seconds"])

    def as_row(self) -> DaySums:
        """Return the columns."""
        cpu, mem, gpu, gpu_bw, gpu_alloc = self._totals
        return {
            "jobs": self.counts["jobs"],
            "records": self.counts["records"],
            "histograms": encoded(self._bins, len(METRICS)),
            "cpu_sum": cpu,
            "mem_sum": mem,
            "gpu_sum": gpu,
            "gpu_bw_sum": gpu_bw,
            "gpu_alloc_sum": gpu_alloc,
            "idle_gpu_s": self.counts["idle_gpu_s"],
            "gpu_s": self.counts["gpu_s"],
            "seconds": self.seconds,
        }

    def histograms(self) -> dict[str, Histogram]:
        """Return the histogram of every metric."""
        return dict(zip(METRICS, unpacked(self._bins, self._totals), strict=True))

    def _add(
        self,
        counts: Mapping[str, int],
        histograms: bytes,
        totals: Sequence[int],
        seconds: Mapping[str, Sequence[int]],
    ) -> None:
        for name in COUNTS:
            self.counts[name] += counts[name]
        self._bins += decoded(histograms, len(METRICS))
        self._totals = [before + more for before, more in zip(self._totals, totals, strict=True)]
        for label, (machine, with_gpu) in seconds.items():
            known = self.seconds.get(label, (0, 0))
            self.seconds[label] = known[0] + machine, known[1] + with_gpu


def groups_of(row: DayJob) -> list[DayGroup]:
    """Return the sums that a job counts in."""
    groups = (
        ("job", row["base_name"], row["workflow_name"]),
        ("workflow", row["workflow_name"], ""),
        ("runner", row["runner_label"], ""),
    )
    return [DayGroup(kind, group, parent, row["trusted"]) for kind, group, parent in groups]


def first_day(day: int, span: int) -> int:
    """Return the first day of the span that a day is in."""
    return day if span == 1 else day - (day - MONDAY) % 7
