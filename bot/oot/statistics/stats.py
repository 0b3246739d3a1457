"""Numbers of a backend in one window and by day, as people see them; docs/statistics.md defines each."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import TYPE_CHECKING

from bot.oot.statistics import histogram
from bot.oot.statistics.tables import COUNTS, Counts, DayOfBackend

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bot.oot.results.tables import JobOutcome
    from bot.oot.statistics.countable_jobs import CountableJob, SilentDispatch

GREEN_FROM = 0.95
AMBER_FROM = 0.80
INFRA = "infra"  # the kind of failure that is neither the change's nor the backend's code
FAILED = frozenset({"failure", "timed_out"})  # outcomes
OUTCOMES = {
    "success": "success",
    "failure": "failure",
    "action_required": "failure",
    "startup_failure": "failure",
    "stale": "failure",
    "timed_out": "timed_out",
    "cancelled": "cancelled",
    "skipped": "skipped",
    "neutral": "neutral",
}
ENDS = {
    "never_started": "never_started",
    "not_run": "not_run",
    "not_installed": "not_dispatched",
    "failed": "not_dispatched",
    "superseded": "superseded",
    "cancelled": "cancelled",
}  # how a dispatch without reports ended
_Key = tuple[int, str, str, str]  # day, backend and upstream (both case folded), kind of event
DAY, HOUR = 86_400_000, 3_600_000  # milliseconds
RATED = frozenset({"success", "failure", "timed_out"})
RatedCount = tuple[int, int, int]  # day or hour, outcomes that count, successes among them
RatedCounts = tuple[RatedCount, ...]
HOURS_A_DAY = 24
RECENT, BEFORE = HOURS_A_DAY, 7 * HOURS_A_DAY  # hours compared: the last ones with those before


@dataclass(frozen=True, kw_only=True)
class BackendStats(Counts):
    """One backend in one window."""

    pass_rate: float | None = None  # 0..1; None when nothing counts
    pass_rate_without_infra: float | None = None  # the same without failures of infrastructure
    median_execution_time: float | None = None  # seconds
    p90_execution_time: float | None = None
    median_queue_time: float | None = None
    p90_queue_time: float | None = None
    last_at: int | None = None  # epoch milliseconds of the last report


@dataclass(frozen=True, kw_only=True, slots=True)
class Tally(Counts):
    """Counts, and histograms of times (see `histogram`)."""

    execution: int = 0  # first to last report
    queue: int = 0  # dispatch to first report
    whole: int = 0  # both together, of runs whose execution time is known
    last_at: int = 0  # epoch milliseconds of the last report, 0 without any

    @property
    def pass_rate(self) -> float | None:
        """Return 0..1, None when nothing counts."""
        return self.success / self.rated if self.rated else None


ADDED_FIELDS = tuple(field.name for field in fields(Tally) if field.name != "last_at")
_values = attrgetter(*ADDED_FIELDS)
NO_TALLY = Tally()


@dataclass(frozen=True, kw_only=True, slots=True)
class Day(DayOfBackend):
    """What one backend did on one UTC day for one upstream repository and kind of event."""

    tally: Tally
    hours: dict[str, list[int]] = field(default_factory=dict)  # hour -> [rated, success]


@dataclass(kw_only=True, slots=True)
class _Sum:
    """What has been added up of one day so far."""

    newest: tuple[int, str, int] = (0, "", 0)  # time of the newest row, its backend and level
    tally: Tally = NO_TALLY
    hours: dict[str, list[int]] = field(default_factory=dict)


def measure_backend(sums: Tally) -> BackendStats:
    """Return the numbers of a tally."""
    execution, queue = histogram.summary(sums.execution), histogram.summary(sums.queue)
    rated = sums.rated - sums.infra
    return BackendStats(
        **{name: getattr(sums, name) for name in COUNTS},
        pass_rate=sums.pass_rate,
        pass_rate_without_infra=sums.success / rated if rated > 0 else None,
        median_execution_time=execution[0],
        p90_execution_time=execution[1],
        median_queue_time=queue[0],
        p90_queue_time=queue[1],
        last_at=sums.last_at or None,
    )


def grade(pass_rate: float | None) -> str:
    """Return green, amber, red, or none when there is no rate."""
    if pass_rate is None:
        return "none"
    if pass_rate >= GREEN_FROM:
        return "green"
    return "amber" if pass_rate >= AMBER_FROM else "red"


def add_tallies(tallies: Iterable[Tally]) -> Tally:
    """Return the sum of some tallies."""
    known = list(tallies)
    if len(known) == 1:
        return known[0]
    sums = map(sum, zip(*map(_values, known), strict=True))
    return Tally(
        **dict(zip(ADDED_FIELDS, sums, strict=False)),
        last_at=max((tally.last_at for tally in known), default=0),
    )


def tally_rows(jobs: Iterable[CountableJob], dispatches: Iterable[SilentDispatch]) -> Tally:
    """Add up rows that count; jobs that do not count are still reports, for `last_at`."""
    reported = list(jobs)
    runs = [row for row in reported if row["counts"]]
    outcomes = Counter(map(outcome_of, runs))
    ends = Counter(ENDS[row["state"]] for row in dispatches if row["counts"])
    timed = [(time, row["queue_time"]) for row in runs if (time := row["execution_time"]) is not None]
    return Tally(
        runs=len(runs),
        **outcomes,
        **ends,
        infra=sum(outcome_of(row) in FAILED and row.get("failure_kind") == INFRA for row in runs),
        execution=histogram.pack(time for time, _ in timed),
        queue=histogram.pack(time for row in runs if (time := row["queue_time"]) is not None),
        whole=histogram.pack(time + (queued or 0) for time, queued in timed),
        last_at=max(map(_last_report, reported), default=0),
    )


def outcome_of(job: JobOutcome) -> str:
    """Return which count of a tally a job belongs to."""
    if job["status"] != "completed":
        return "running"
    return OUTCOMES.get(job["conclusion"] or "", "neutral")


class DayCounter:
    """Adds up rows by day, a slice at a time, so that memory does not grow with their number."""

    def __init__(self) -> None:
        self._sums: dict[_Key, _Sum] = defaultdict(_Sum)

    def add(self, jobs: Iterable[CountableJob], dispatches: Iterable[SilentDispatch]) -> None:
        """Add jobs, and dispatches without a report."""
        parts: dict[_Key, tuple[list[CountableJob], list[SilentDispatch]]] = defaultdict(lambda: ([], []))
        for job in jobs:
            parts[_key(job, job["received_at"], job["downstream_repo"])][0].append(job)
        for dispatch in dispatches:
            parts[_key(dispatch, dispatch["created_at"], dispatch["backend"])][1].append(dispatch)
        for key, (reported, silent) in parts.items():
            names = [
                (row["received_at"], row["downstream_repo"], row["downstream_repo_level"]) for row in reported
            ]
            names += [(row["created_at"], row["backend"], row["level"]) for row in silent]
            sums = self._sums[key]
            sums.newest = max(sums.newest, *names)
            sums.tally = add_tallies((sums.tally, tally_rows(reported, silent)))
            _add_hours(sums.hours, reported, silent)

    def days(self) -> list[Day]:
        """Return the days of all rows so far."""
        return [
            Day(
                backend_key=backend_key,
                day=day,
                upstream_key=upstream_key,
                event_type=event_type,
                backend=sums.newest[1],
                level=sums.newest[2],
                tally=sums.tally,
                hours=sums.hours,
            )
            for (day, backend_key, upstream_key, event_type), sums in self._sums.items()
        ]


def tallies_by_day(days: Iterable[Day], *, first: int, last: int) -> list[Tally | None]:
    """Return the tally of each day of a span, None for days without data."""
    parts: list[list[Tally]] = [[] for _ in range(last - first + 1)]
    for day in days:
        if first <= day.day <= last:
            parts[day.day - first].append(day.tally)
    return [add_tallies(part) if part else None for part in parts]


def pass_rates(tallies: Sequence[Tally | None]) -> list[float | None]:
    """Return pass rates, None where nothing counts."""
    return [tally.pass_rate if tally else None for tally in tallies]


def daily_counts(days: Iterable[Day]) -> RatedCounts:
    """Return how many outcomes count on each day."""
    return tuple((day.day, day.tally.rated, day.tally.success) for day in days)


def hourly_counts(days: Iterable[Day], *, first: int) -> RatedCounts:
    """Return how many outcomes count in each hour (since 1970), from a day on."""
    return tuple(
        (day.day * HOURS_A_DAY + int(hour), rated, success)
        for day in days
        if day.day >= first
        for hour, (rated, success) in day.hours.items()
    )


def daily_rates(counts: Iterable[RatedCount], *, first: int, last: int) -> list[float | None]:
    """Return the pass rate of each day of a span."""
    sums = [[0, 0] for _ in range(last - first + 1)]
    for day, rated, success in counts:
        if first <= day <= last:
            sums[day - first][0] += rated
            sums[day - first][1] += success
    return [success / rated if rated else None for rated, success in sums]


def median_times(tallies: Sequence[Tally | None], name: str) -> list[tuple[float | None, float | None]]:
    """Return median and p90 of a time, such as `execution`, for each tally."""
    return [histogram.summary(getattr(tally, name)) if tally else (None, None) for tally in tallies]


def find_turn(counts: Iterable[RatedCount], *, now: int) -> str:
    """Return `red` or `green` if a backend turned so in the last 24 hours compared with the week before, else "".

    Red: below amber now but not before. Green: green now, red before. Whole hours are compared.
    """
    current, previous = recent_grades(counts, now=now)
    if current == "red" and previous in {"green", "amber"}:
        return "red"
    return "green" if current == "green" and previous == "red" else ""


def recent_grades(counts: Iterable[RatedCount], *, now: int) -> tuple[str, str]:
    """Return the grades of the last 24 whole hours and of the week before them."""
    recent, before = [0, 0], [0, 0]
    end = now // HOUR
    oldest = end - RECENT - BEFORE  # the hour before the first that counts
    for hour, rated, success in counts:
        if hour > oldest:
            part = recent if hour > end - RECENT else before
            part[0] += rated
            part[1] += success
    return _grade(recent), _grade(before)


def _last_report(job: CountableJob) -> int:
    """Return when the backend last reported on a job; a timeout that we recorded is no report."""
    return job["received_at"] if job["swept"] else job["updated_at"]


def _key(row: CountableJob | SilentDispatch, at: int, backend: str) -> _Key:
    return at // DAY, backend.casefold(), row["upstream_repo"].casefold(), row["event_type"]


def _add_hours(
    hours: dict[str, list[int]], jobs: list[CountableJob], dispatches: list[SilentDispatch]
) -> None:
    """Count by hour how many outcomes enter the pass rate, and how many of them are successes."""
    ends = [
        (row["received_at"], outcome_of(row)) for row in jobs if row["counts"] and outcome_of(row) in RATED
    ]
    ends += [
        (row["created_at"], "") for row in dispatches if row["counts"] and row["state"] == "never_started"
    ]
    for at, end in ends:
        hour = hours.setdefault(str(at % DAY // HOUR), [0, 0])
        hour[0] += 1
        hour[1] += end == "success"


def _grade(counts: list[int]) -> str:
    rated, success = counts
    return grade(success / rated if rated else None)
