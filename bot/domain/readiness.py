"""Is a backend ready for more, or for less? Its measures against the thresholds that an operator has set."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from bot.domain import histogram
from bot.domain.tally import total
from bot.domain.words import duration, plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.domain.days import Day

WINDOW = 30  # days that promotion looks at
HIGHEST = 4


class Word(StrEnum):
    """What a measure says of its threshold."""

    MEETS = "meets"
    MISSES = "misses"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """What promotion takes and what demotes."""

    pass_rate: float
    timeout_rate: float
    long_rate: float
    long: int  # seconds; a run that takes longer is a long one
    queue: int  # seconds
    tenure: int  # seconds
    data_days: int
    demotion_days: int
    demotion_pass_rate: float
    demotion_timeout_rate: float
    demotion_long: int  # seconds


@dataclass(frozen=True, kw_only=True)
class Measure:
    """One measure of a backend, the threshold it is held against, and what that says."""

    name: str
    value: str
    threshold: str
    word: Word
    number: float | None = None


@dataclass(frozen=True, kw_only=True)
class Readiness:
    """What a backend's numbers say about its level."""

    measures: tuple[Measure, ...]
    demotion: tuple[Measure, ...]
    promote: Word  # whether everything promotion asks for is met
    demote: Word  # `misses`: one of the limits of its level is crossed; unknown in a backend's first days


@dataclass(frozen=True, kw_only=True)
class Sums:
    """What the days of a backend amount to; None where there is nothing to go by."""

    covered: int  # days with data
    seasoned: bool  # whether the first of them lies as far back as demotion looks
    pass_rate: float | None
    timeout_rate: float | None
    long_rate: float | None  # share of the runs that took very long
    queue: float | None  # median, seconds
    week_pass_rate: float | None  # the days that demotion looks at
    week_timeout_rate: float | None
    week_whole: float | None  # median end to end, seconds


def add_up(days: Sequence[Day], thresholds: Thresholds, *, today: int) -> Sums:
    """Return what the days of a backend amount to, up to today."""
    month = total([one.tally for one in days if one.day >= today - WINDOW])
    week = total([one.tally for one in days if one.day >= today - thresholds.demotion_days])
    first = min((one.day for one in days if one.tally.rated), default=today)
    return Sums(
        seasoned=first <= today - thresholds.demotion_days,
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
    """Return what a backend's days say; `since` is when it came to its level, epoch milliseconds."""
    tenure = None if since is None else (now - since) / 1000
    measures = (
        _tenure(tenure, thresholds.tenure, level),
        _coverage(sums.covered, thresholds.data_days),
        _over("pass rate", sums.pass_rate, thresholds.pass_rate),
        _under("timeout rate", sums.timeout_rate, thresholds.timeout_rate),
        _under(
            f"runs over {duration(thresholds.long)}",
            sums.long_rate,
            thresholds.long_rate,
        ),
        _queue(sums.queue, thresholds.queue),
    )
    demotion = _demotion(sums, thresholds)
    return Readiness(
        measures=measures,
        demotion=demotion,
        promote=_all(measures) if level < HIGHEST else Word.UNKNOWN,
        demote=_all(demotion) if sums.seasoned else Word.UNKNOWN,
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
    """Return the word for all of them: one that misses decides, then one that is unknown."""
    words = {measure.word for measure in measures}
    for word in (Word.MISSES, Word.UNKNOWN):
        if word in words:
            return word
    return Word.MEETS


def percent(rate: float | None) -> str:
    """Return a rate for people; rounded down, so that only what is perfect is 100 %."""
    return "no data" if rate is None else f"{int(rate * 1000) / 10:g} %"
