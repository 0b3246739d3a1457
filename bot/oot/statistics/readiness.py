"""Readiness of a backend for promotion or demotion: by an operator's thresholds, and by the relay's criteria."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from statistics import mean, median
from typing import TYPE_CHECKING

from bot.core.text import duration, percent, plural
from bot.oot.results.tables import JobAttempt, JobDurations, JobIdentity, JobOutcome, JobSpan
from bot.oot.statistics import histogram
from bot.oot.statistics.stats import add_tallies

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from bot.oot.statistics.stats import Day

WINDOW = 30  # days that promotion looks at
HIGHEST = 4
NOT_MEASURED = "–"  # noqa: RUF001 - as the relay writes it
PROMOTION_DAYS, DEMOTION_DAYS = 14, 7
MONTH = 30 * 86_400  # seconds
HOURS_3, MINUTES_30 = 3 * 3600, 30 * 60


class Word(StrEnum):
    """How a measure compares with its threshold."""

    MEETS = "meets"
    MISSES = "misses"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """Thresholds of promotion and of demotion."""

    pass_rate: float
    timeout_rate: float
    long_rate: float
    long: int  # seconds after which a run counts as long
    queue: int  # seconds
    tenure: int  # seconds
    data_days: int
    demotion_days: int
    demotion_pass_rate: float
    demotion_timeout_rate: float
    demotion_long: int  # seconds


@dataclass(frozen=True, kw_only=True)
class Measure:
    """One measure of a backend and how it compares with its threshold."""

    name: str
    value: str
    threshold: str
    word: Word
    number: float | None = None


@dataclass(frozen=True, kw_only=True)
class Readiness:
    """Whether a backend's numbers suggest promotion or demotion."""

    measures: tuple[Measure, ...]
    demotion: tuple[Measure, ...]
    promote: Word  # whether every measure of promotion is met
    demote: Word  # `misses`: demotion is due; unknown in a backend's first days


@dataclass(frozen=True, kw_only=True)
class ReadinessSums:
    """Sums over the days of a backend; None where there is no data."""

    covered: int  # days with data
    covers_demotion: bool  # whether there is data for all days that demotion looks at
    pass_rate: float | None
    timeout_rate: float | None
    long_rate: float | None  # share of long runs
    queue: float | None  # median, seconds
    week_pass_rate: float | None  # of the days that demotion looks at
    week_timeout_rate: float | None
    week_whole: float | None  # median end to end, seconds


class MeasuredJob(JobIdentity, JobOutcome, JobAttempt, JobDurations, JobSpan):
    """A completed job of a pull request, at its latest attempt."""


@dataclass(frozen=True, kw_only=True)
class Criterion:
    """One measure of a backend and its target."""

    name: str
    measured: str
    target: str
    met: bool | None  # None: there is nothing to judge


@dataclass(frozen=True, kw_only=True)
class RelayMeasures:
    """What a backend's jobs came to."""

    jobs: int
    shared: int  # failures that upstream's own jobs share, which are not among them
    whole: float | None  # seconds from dispatch to the last report of a run, median
    longest: float | None  # execution of a job, seconds
    queue: float | None  # mean, seconds
    timeout_rate: float | None
    pass_rate: float | None


def add_up_days(days: Sequence[Day], thresholds: Thresholds, *, today: int) -> ReadinessSums:
    """Add up the days of a backend up to today."""
    month = add_tallies([day.tally for day in days if day.day >= today - WINDOW])
    week = add_tallies([day.tally for day in days if day.day >= today - thresholds.demotion_days])
    first = min((day.day for day in days if day.tally.rated), default=today)
    return ReadinessSums(
        covers_demotion=first <= today - thresholds.demotion_days,
        covered=len({day.day for day in days if day.day > today - WINDOW and day.tally.rated}),
        pass_rate=month.pass_rate,
        timeout_rate=_share(month.timed_out, month.rated),
        long_rate=histogram.share_over(month.whole, thresholds.long),
        queue=histogram.summary(month.queue)[0],
        week_pass_rate=week.pass_rate,
        week_timeout_rate=_share(week.timed_out, week.rated),
        week_whole=histogram.summary(week.whole)[0],
    )


def judge_readiness(
    sums: ReadinessSums, thresholds: Thresholds, *, level: int, since: int | None, now: int
) -> Readiness:
    """Return a backend's readiness; `since` is when it reached its level, epoch milliseconds."""
    tenure = None if since is None else (now - since) / 1000
    measures = (
        _tenure(tenure, thresholds.tenure, level),
        _coverage(sums.covered, thresholds.data_days),
        _over("pass rate", sums.pass_rate, thresholds.pass_rate),
        _under("timeout rate", sums.timeout_rate, thresholds.timeout_rate),
        _under(f"runs over {duration(thresholds.long)}", sums.long_rate, thresholds.long_rate),
        _queue(sums.queue, thresholds.queue),
    )
    demotion = _demotion(sums, thresholds)
    return Readiness(
        measures=measures,
        demotion=demotion,
        promote=_all(measures) if level < HIGHEST else Word.UNKNOWN,
        demote=_all(demotion) if sums.covers_demotion else Word.UNKNOWN,
    )


def measure_jobs(jobs: Sequence[MeasuredJob], shared: Collection[str]) -> RelayMeasures:
    """Measure the jobs of one backend; `shared` holds the keys of those whose failure is upstream's as well."""
    counted = [job for job in jobs if job["job_key"] not in shared]
    total = len(counted)
    ends = [job["conclusion"] for job in counted]
    queues = [time for job in counted if (time := job["queue_time"]) is not None]
    return RelayMeasures(
        jobs=total,
        shared=len(jobs) - total,
        whole=median(spans) if (spans := _spans(counted)) else None,
        longest=max((time for job in counted if (time := job["execution_time"]) is not None), default=None),
        queue=mean(queues) if queues else None,
        timeout_rate=ends.count("timed_out") / total if total else None,
        pass_rate=ends.count("success") / total if total else None,
    )


def judge_promotion(measures: RelayMeasures, tenure: float | None) -> tuple[Criterion, ...]:
    """Judge the criteria of promotion to L3; `tenure` is the seconds since the backend reached L2."""
    held = Criterion(
        name="Time at L2",
        measured=plural(int(tenure // 86_400), "day") if tenure is not None else NOT_MEASURED,
        target="≥ 1 month",
        met=None if tenure is None else tenure >= MONTH,
    )
    end_to_end, timeouts, passes = judge_demotion(measures)
    return (
        held,
        end_to_end,
        _format_time("Max Execution Time", measures.longest, HOURS_3),
        _format_time("Avg Queue Time", measures.queue, MINUTES_30),
        timeouts,
        passes,
    )


def judge_demotion(measures: RelayMeasures) -> tuple[Criterion, Criterion, Criterion]:
    """Judge the criteria that an L3 backend has to keep meeting."""
    timeouts, passes = measures.timeout_rate, measures.pass_rate
    return (
        _format_time("End-to-End Time (P50)", measures.whole, HOURS_3),
        Criterion(
            name="Timeout Rate",
            measured=_format_share(timeouts),
            target="< 1%",
            met=None if timeouts is None else timeouts < 0.01,
        ),
        Criterion(
            name="Job Pass Rate",
            measured=_format_share(passes),
            target="≥ 90%",
            met=None if passes is None else passes >= 0.9,
        ),
    )


def _demotion(sums: ReadinessSums, limits: Thresholds) -> tuple[Measure, ...]:
    whole = sums.week_whole
    return (
        _over("pass rate", sums.week_pass_rate, limits.demotion_pass_rate),
        _under("timeout rate", sums.week_timeout_rate, limits.demotion_timeout_rate),
        Measure(
            name="median end to end",
            value=duration(whole) or "no data",
            threshold=f"at most {duration(limits.demotion_long)}",
            word=_word(whole, met=whole is not None and whole <= limits.demotion_long),
            number=whole,
        ),
    )


def _tenure(seconds: float | None, least: int, level: int) -> Measure:
    return Measure(
        name=f"time at L{level}" if level else "time at its level",
        value=duration(seconds) or "no data",
        threshold=f"at least {duration(least)}",
        word=_word(seconds, met=seconds is not None and seconds >= least),
        number=seconds,
    )


def _coverage(days: int, least: int) -> Measure:
    return Measure(
        name="days with data",
        value=f"{days} of {WINDOW}",
        threshold=f"at least {plural(least, 'day')}",
        word=Word.MEETS if days >= least else Word.MISSES,
        number=days,
    )


def _queue(seconds: float | None, most: int) -> Measure:
    return Measure(
        name="median queue",
        value=duration(seconds) or "no data",
        threshold=f"at most {duration(most)}",
        word=_word(seconds, met=seconds is not None and seconds <= most),
        number=seconds,
    )


def _over(name: str, value: float | None, limit: float) -> Measure:
    return Measure(
        name=name,
        value=percent(value),
        threshold=f"over {percent(limit)}",
        word=_word(value, met=value is not None and value > limit),
        number=value,
    )


def _under(name: str, value: float | None, limit: float) -> Measure:
    return Measure(
        name=name,
        value=percent(value),
        threshold=f"under {percent(limit)}",
        word=_word(value, met=value is not None and value < limit),
        number=value,
    )


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _word(value: float | None, *, met: bool) -> Word:
    if value is None:
        return Word.UNKNOWN
    return Word.MEETS if met else Word.MISSES


def _all(measures: Sequence[Measure]) -> Word:
    """Return `misses` if any measure does, else `unknown` if any is, else `meets`."""
    words = {measure.word for measure in measures}
    for word in (Word.MISSES, Word.UNKNOWN):
        if word in words:
            return word
    return Word.MEETS


def _spans(jobs: Sequence[MeasuredJob]) -> list[float]:
    """Return how long each run took including its wait; runs without a known wait are left out."""
    runs: dict[str, list[MeasuredJob]] = {}
    for job in jobs:
        runs.setdefault(job["run_id"], []).append(job)
    spans = []
    for of_run in runs.values():
        began = [at for job in of_run if (at := job["started_at"]) is not None]
        ended = [at for job in of_run if (at := job["completed_at"]) is not None]
        waits = [time for job in of_run if (time := job["queue_time"]) is not None]
        if began and ended and waits:
            spans.append(max(waits) + max(max(ended) - min(began), 0) / 1000)
    return spans


def _format_time(name: str, seconds: float | None, below: int) -> Criterion:
    return Criterion(
        name=name,
        measured=duration(seconds) or NOT_MEASURED,
        target=f"< {duration(below)}",
        met=None if seconds is None else seconds < below,
    )


def _format_share(rate: float | None) -> str:
    return NOT_MEASURED if rate is None else percent(rate)
