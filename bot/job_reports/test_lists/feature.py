"""The feature `test_lists`: how long tests take, as lists that CI is planned with."""

from __future__ import annotations

from dataclasses import dataclass

from bot.core.feature import Feature
from bot.core.settings import option

FEATURE = Feature(
    name="test_lists",
    tables="bot.job_reports.test_lists.tables",
    exports="bot.job_reports.test_lists.reruns:EXPORTS",
    tasks={
        "test_lists": "bot.job_reports.test_lists.make_time_lists:make_time_lists",
        "test_lists_check": "bot.job_reports.test_lists.make_time_lists:request_all_lists",
        "test_reruns": "bot.job_reports.test_lists.reruns:count_new_reruns",
    },
    background=frozenset({"test_lists", "test_reruns"}),
    prune="bot.job_reports.test_lists.reruns:prune_reruns",
    periodic="bot.job_reports.test_lists.make_time_lists:periodic",
    settings="bot.job_reports.test_lists.feature:TimesSettings",
)


LONGEST = 255  # characters of a branch


def branch_name(text: str) -> str:
    """Read the name of a branch."""
    if not text or text.split() != [text] or len(text) > LONGEST:
        raise ValueError("write the name of one branch")
    return text


@dataclass(frozen=True, kw_only=True)
class TimesSettings:
    """Where the times of tests come from."""

    ci_times_branch: str | None = option(
        "Branch whose newest commits say how long tests take, such as viable/strict; unset: the newest trusted "
        "commits nine tenths of whose jobs have ended.",
        branch_name,
        default=None,
    )
