"""Readiness of a backend for promotion or demotion: its measures against the thresholds an operator has set."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from bot.core.text import duration, percent, plural
from bot.oot.statistics import histogram
from bot.oot.statistics.stats import total

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.oot.statistics.days import Day

WINDOW = 30  # days that promotion looks at
HIGHEST = 4


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
class Sums:
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


def add_up(days: Sequence[Day], thresholds: Thresholds, *, today: int) -> Sums:
    """Return the sums over the days of a backend, up to today."""
    month = total([one.tally for one in days if one.day >= today - WINDOW])
    week = total([one.tally for one in days if one.day >= today - thresholds.demotion_days])
    first = min((one.day for one in days if one.tally.rated), default=today)
    return Sums(
        covers_demotion=first <= today - thresholds.demotion_days,
        covered=len({one.day for one in days if one.day > today - WINDOW and one.tally.rated}),
        pass_rate=month.pass_rate,
        timeout_rate=_share(month.timed_out, month.rated),
        long_rate=histogram.share_over(month.whole, thresholds.long),
        queue=histogram.summary(month.queue)[0],
        week_pass_rate=week.pass_rate,
        week_timeout_rate=_share(week.timed_out, week.rated),
        week_whole=histogram.summary(week.whole)[0],
    )


def judge(sums: Sums, thresholds: Thresholds, *, level: int, since: int | None, now: int) -> Readiness:
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


def _demotion(sums: Sums, limits: Thresholds) -> tuple[Measure, ...]:
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
