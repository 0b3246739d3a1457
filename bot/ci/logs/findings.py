"""What the parser of logs answers, put together from the rows that it becomes."""

from __future__ import annotations

from typing import Any, TypedDict

from bot.ci.logs.tables import (
    FoundVerdict,
    LogChanges,
    LogSize,
    LogTimes,
    VerdictExcerpt,
    VerdictMatch,
    VerdictRank,
    VerdictRule,
)


class LineVerdict(VerdictRank, VerdictRule, VerdictMatch, VerdictExcerpt):
    """A line that says why a job failed, as the rules find it."""


class ParsedVerdict(FoundVerdict):
    """A verdict as it is stored, with the title of its signature."""

    title: str | None


class Classified(TypedDict):
    """What the rules found in a log."""

    verdicts: list[ParsedVerdict]  # empty where the log was not classified
    first_error: dict[str, Any] | None


class ParsedLog(LogSize, LogTimes, LogChanges, Classified):
    """A log as it was stored, and what the rules found in it."""
