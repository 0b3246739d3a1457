"""The feature `extras`: documents of jobs with their trends, lists of tests, contributions, stable commits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import msgspec

from bot.core import setting_types
from bot.core.feature import Feature
from bot.core.settings import option
from bot.job_reports.parse.values import NAME

if TYPE_CHECKING:
    from bot.core.settings import Settings

Direction = Literal["lower", "higher"]
Directions = tuple[tuple[str, Direction], ...]  # by globs, the first that matches
Alerts = tuple[tuple[str, str, float], ...]  # metric, value, factor
FACTOR_MOST = 1_000.0
LONGEST_BRANCH = 255  # characters
FEATURE = Feature(
    name="extras",
    tables=("bot.job_reports.test_lists.tables", "bot.job_reports.tables"),
    tasks={
        "test_lists": "bot.job_reports.test_lists.make_time_lists:make_time_lists",
        "test_lists_check": "bot.job_reports.test_lists.make_time_lists:request_all_lists",
        "test_reruns": "bot.job_reports.test_lists.reruns:count_new_reruns",
        "benchmarks": "bot.job_reports.benchmarks:judge_source",
        "td_misses": "bot.job_reports.selected_tests:find_misses",
        "contributions": "bot.job_reports.contributions:describe_pull",
        "stable_pushes": "bot.job_reports.stable_branch:record_moves",
        "partial": "bot.job_reports.running_jobs:list_running",
    },
    background=frozenset(
        {
            "test_lists",
            "test_reruns",
            "benchmarks",
            "td_misses",
            "contributions",
            "stable_pushes",
            "partial",
        }
    ),
    periodic="bot.job_reports.feature:periodic",
    parsers={
        "sccache": "bot.job_reports.parse.cache_stats:parse_stats",
        "metrics": "bot.job_reports.parse.metric_lines:parse_metrics",
        "benchmark": "bot.job_reports.parse.benchmarks:parse_benchmarks",
    },
    receivers={
        "sccache": "bot.job_reports.caches:CACHE_RECEIVER",
        "metrics": "bot.job_reports.script_metrics:METRIC_RECEIVER",
        "benchmark": "bot.job_reports.benchmarks:BENCHMARK_RECEIVER",
    },
    sums=(
        "bot.job_reports.caches:CACHE_SUM",
        "bot.job_reports.script_metrics:METRIC_SUM",
        "bot.job_reports.contributions:CONTRIBUTION_SUM",
    ),
    before_commit="bot.job_reports.contributions:request_changed_pulls",
    exports=("bot.job_reports.test_lists.reruns:EXPORTS", "bot.job_reports.exports:EXPORTS"),
    prune=(
        "bot.job_reports.test_lists.reruns:prune_reruns",
        "bot.job_reports.documents:prune_sources",
        "bot.job_reports.caches:prune_caches",
        "bot.job_reports.script_metrics:prune_metrics",
        "bot.job_reports.benchmarks:prune_benchmarks",
        "bot.job_reports.selected_tests:prune_misses",
        "bot.job_reports.contributions:prune_contributions",
        "bot.job_reports.stable_branch:prune_moves",
        "bot.job_reports.running_jobs:prune_listings",
    ),
    metrics="bot.job_reports.script_metrics:measure_alerts",
    settings="bot.job_reports.feature:JobReportSettings",
    sections={
        "remarks": "bot.job_reports.benchmarks:tell_comment",
    },
)


def periodic(_settings: Settings) -> dict[str, float]:
    """Return the seconds between runs, by task kind."""
    return {"test_lists_check": 1800.0, "td_misses": 3600.0, "stable_pushes": 600.0, "partial": 600.0}


def parse_alerts(text: str) -> Alerts:
    """Read the setting: a JSON object from a metric and one of its values to a factor; raises ValueError."""
    try:
        given = msgspec.json.decode(text, type=dict[str, float])
    except msgspec.MsgspecError as error:
        raise ValueError(
            f'write a table from a metric and its value to a factor, as in {{"pytest.collect seconds": 1.2}}: {error}'
        ) from None
    return tuple(_parse_alert(name, factor) for name, factor in given.items())


def format_alerts(alerts: Alerts) -> str:
    """Return alerts as the setting is written."""
    return msgspec.json.encode({f"{metric} {value}": factor for metric, value, factor in alerts}).decode()


def parse_directions(text: str) -> Directions:
    """Read the setting: a JSON object from globs over metrics to `lower` or `higher`; raises ValueError."""
    try:
        given = msgspec.json.decode(text, type=dict[str, Direction])
    except msgspec.MsgspecError as error:
        raise ValueError(
            f'write a table from metrics to what is better, as in {{"tok*": "higher"}}: {error}'
        ) from None
    return tuple(given.items())


def format_directions(directions: Directions) -> str:
    """Return directions as the setting is written."""
    return msgspec.json.encode(dict(directions)).decode()


def branch_name(text: str) -> str:
    """Read the name of a branch."""
    if not text or text.split() != [text] or len(text) > LONGEST_BRANCH:
        raise ValueError("write the name of one branch")
    return text


@dataclass(frozen=True, kw_only=True)
class JobReportSettings:
    """Where times of tests come from, how metrics and benchmarks are judged, what a contribution is."""

    ci_times_branch: str | None = option(
        "Branch whose newest commits say how long tests take, such as viable/strict; unset: the newest trusted "
        "commits nine tenths of whose jobs have ended.",
        branch_name,
        default=None,
    )
    ci_metric_alerts: Alerts = option(  # noqa: RUF009 - a field, as the others
        "Metrics that may not get worse, each with a factor: ootbot_metric_regressed is 1 while the median of a "
        "week is over so many times that of the four weeks before, or below it for a factor under 1; a table, such "
        'as {"pytest.collect seconds": 1.2}.',
        parse_alerts,
        default=(),
        show=format_alerts,
    )
    ci_benchmark_directions: Directions = option(  # noqa: RUF009 - a field, as the others
        "What is better of a metric whose name does not tell: a table from globs to lower or higher, such as "
        '{"tok*": "higher"}; the first that matches decides.',
        parse_directions,
        default=(),
        show=format_directions,
    )
    ci_benchmark_comment: str = option(
        "Whether the comment on a pull request tells which benchmarks it changed: never, changes (only then).",
        setting_types.one_of("never", "changes"),
        default="never",
    )
    ci_merged_labels: tuple[str, ...] = option(
        "Labels of closed pull requests that a bot merged without GitHub's knowing; one with the label Reverted "
        "was not.",
        setting_types.words,
        default=("Merged",),
    )
    ci_external_label: str | None = option(
        "Label of pull requests of outside people; unset: GitHub's author association says who is outside.",
        str.strip,
        default=None,
    )
    ci_bots: tuple[str, ...] = option(
        "Logins that are no people, beside those that end in [bot].",
        setting_types.words,
        default=(),
    )
    ci_contributors: str = option(
        "Whether the JSON of contributions has logins: counts (no), names (yes, of public repositories).",
        setting_types.one_of("counts", "names"),
        default="counts",
    )


def _parse_alert(name: str, factor: float) -> tuple[str, str, float]:
    parts = name.split()
    if len(parts) != 2 or not all(NAME.fullmatch(part) for part in parts):
        raise ValueError(f"{name!r} is not a metric and one of its values, as in 'pytest.collect seconds'")
    if not 0 < factor <= FACTOR_MOST or factor == 1:
        raise ValueError(
            f"{name}: the factor is above 1 for what may not rise, below 1 for what may not fall"
        )
    return (parts[0], parts[1], factor)
