"""The feature `extras`: documents of jobs and their trends, selected tests, contributions, stable commits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from bot.core.feature import Feature, NavigationEntry
from bot.core.settings import option
from bot.job_reports.parse.values import NAME

if TYPE_CHECKING:
    from bot.core.settings import Settings

FEATURE = Feature(
    name="extras",
    tables="bot.job_reports.tables",
    exports="bot.job_reports.exports:DOCUMENT_EXPORTS",
    prune="bot.job_reports.documents:prune_sources",
)


Alerts = tuple[tuple[str, str, float], ...]  # metric, value, factor
FACTOR_MOST = 1_000.0


def parse_alerts(text: str) -> Alerts:
    """Read the setting: a JSON object from a metric and one of its values to a factor; raises ValueError."""
    try:
        given = msgspec.json.decode(text, type=dict[str, float])
    except msgspec.MsgspecError as error:
        raise ValueError(
            f'write a table from a metric and its value to a factor, as in {{"pytest.collect seconds": 1.2}}: {error}'
        ) from None
    return tuple(_parse_alert(name, factor) for name, factor in given.items())


def _parse_alert(name: str, factor: float) -> tuple[str, str, float]:
    parts = name.split()
    if len(parts) != 2 or not all(NAME.fullmatch(part) for part in parts):
        raise ValueError(f"{name!r} is not a metric and one of its values, as in 'pytest.collect seconds'")
    if not 0 < factor <= FACTOR_MOST or factor == 1:
        raise ValueError(
            f"{name}: the factor is above 1 for what may not rise, below 1 for what may not fall"
        )
    return (parts[0], parts[1], factor)


def format_alerts(alerts: Alerts) -> str:
    """Return alerts as the setting is written."""
    return msgspec.json.encode({f"{metric} {value}": factor for metric, value, factor in alerts}).decode()


@dataclass(frozen=True, kw_only=True)
class MetricSettings:
    """Which metrics may not get worse."""

    ci_metric_alerts: Alerts = option(  # noqa: RUF009 - a field, as the others
        "Metrics that may not get worse, each with a factor: ootbot_metric_regressed is 1 while the median of a "
        "week is over so many times that of the four weeks before, or below it for a factor under 1; a table, such "
        'as {"pytest.collect seconds": 1.2}.',
        parse_alerts,
        default=(),
        show=format_alerts,
    )


CACHES_FEATURE = Feature(
    name="caches",
    tables="bot.job_reports.tables",
    sums=("bot.job_reports.caches:CACHE_SUM",),
    parsers={"sccache": "bot.job_reports.parse.cache_stats:parse_stats"},
    receivers={"sccache": "bot.job_reports.caches:CACHE_RECEIVER"},
    prune="bot.job_reports.caches:prune_caches",
    views="bot.pages.job_reports.caches:VIEWS",
    navigation=(
        NavigationEntry(
            bar="repository",
            path="/{repo}/builds",
            label="Compiler caches",
            place=74,
            shown="bot.pages.job_reports.day_window:has_builds",
        ),
    ),
    routes="bot.pages.job_reports.caches:setup",
)


METRICS_FEATURE = Feature(
    name="metrics",
    tables="bot.job_reports.tables",
    sums=("bot.job_reports.script_metrics:METRIC_SUM",),
    parsers={"metrics": "bot.job_reports.parse.metric_lines:parse_metrics"},
    receivers={"metrics": "bot.job_reports.script_metrics:METRIC_RECEIVER"},
    prune="bot.job_reports.script_metrics:prune_metrics",
    views="bot.pages.job_reports.script_metrics:VIEWS",
    navigation=(
        NavigationEntry(
            bar="repository",
            path="/{repo}/custom",
            label="Metrics of scripts",
            place=76,
            shown="bot.pages.job_reports.day_window:has_metrics",
        ),
    ),
    routes="bot.pages.job_reports.script_metrics:setup",
    metrics="bot.job_reports.script_metrics:measure_alerts",
    settings="bot.job_reports.feature:MetricSettings",
)


BENCHMARKS_FEATURE = Feature(
    name="benchmarks",
    tables="bot.job_reports.tables",
    tasks={"benchmarks": "bot.job_reports.benchmarks:judge_source"},
    background=frozenset({"benchmarks"}),
    parsers={"benchmark": "bot.job_reports.parse.benchmarks:parse_benchmarks"},
    receivers={"benchmark": "bot.job_reports.benchmarks:BENCHMARK_RECEIVER"},
    prune="bot.job_reports.benchmarks:prune_benchmarks",
    views="bot.pages.job_reports.views:JOB_REPORT_VIEWS",
    navigation=(
        NavigationEntry(
            bar="repository",
            path="/{repo}/benchmarks",
            label="Benchmarks",
            place=75,
            shown="bot.pages.job_reports.day_window:has_benchmarks",
            covers=("/{repo}/benchmarks/",),
        ),
    ),
    routes="bot.pages.job_reports.views:setup",
    sections={
        "remarks": "bot.job_reports.benchmarks:tell_comment",
    },
    settings="bot.job_reports.benchmark_judgement:BenchmarkSettings",
)


def periodic_misses(_settings: Settings) -> dict[str, float]:
    """Return the seconds between runs, by task kind."""
    return {"td_misses": 3600.0}


SELECTED_TESTS_FEATURE = Feature(
    name="what_ran",
    tables="bot.job_reports.tables",
    tasks={"td_misses": "bot.job_reports.selected_tests:find_misses"},
    background=frozenset({"td_misses"}),
    periodic="bot.job_reports.feature:periodic_misses",
    exports="bot.job_reports.exports:SELECTION_EXPORTS",
    prune="bot.job_reports.selected_tests:prune_misses",
    views="bot.pages.job_reports.selected_tests:VIEWS",
    routes="bot.pages.job_reports.selected_tests:setup",
)


CONTRIBUTIONS_FEATURE = Feature(
    name="contributions",
    tables="bot.job_reports.tables",
    tasks={"contributions": "bot.job_reports.contributions:describe_pull"},
    background=frozenset({"contributions"}),
    sums=("bot.job_reports.contributions:CONTRIBUTION_SUM",),
    before_commit="bot.job_reports.contributions:request_changed_pulls",
    exports="bot.job_reports.exports:CONTRIBUTION_EXPORTS",
    prune="bot.job_reports.contributions:prune_contributions",
    views="bot.pages.job_reports.contributions:VIEWS",
    navigation=(
        NavigationEntry(
            bar="repository",
            path="/{repo}/contributions",
            label="Contributions",
            place=80,
            shown="bot.pages.job_reports.day_window:has_contributions",
        ),
    ),
    routes="bot.pages.job_reports.contributions:setup",
    settings="bot.job_reports.contributions:ContributionSettings",
)


def periodic_moves(_settings: Settings) -> dict[str, float]:
    """Return the seconds between runs, by task kind."""
    return {"stable_pushes": 600.0}


STABLE_BRANCH_FEATURE = Feature(
    name="stable",
    tables="bot.job_reports.tables",
    exports="bot.job_reports.exports:STABLE_EXPORTS",
    tasks={"stable_pushes": "bot.job_reports.stable_branch:record_moves"},
    background=frozenset({"stable_pushes"}),
    periodic="bot.job_reports.feature:periodic_moves",
    prune="bot.job_reports.stable_branch:prune_moves",
    views="bot.pages.job_reports.stable_branch:VIEWS",
    navigation=(
        NavigationEntry(
            bar="repository",
            path="/{repo}/stable",
            label="Stable commits",
            place=78,
            shown="bot.pages.job_reports.day_window:has_stable",
        ),
    ),
)


def periodic(_settings: Settings) -> dict[str, float]:
    """Return the seconds between runs, by task kind."""
    return {"partial": 600.0}


RUNNING_JOBS_FEATURE = Feature(
    name="partial",
    tables="bot.job_reports.tables",
    tasks={"partial": "bot.job_reports.running_jobs:list_running"},
    background=frozenset({"partial"}),
    periodic="bot.job_reports.feature:periodic",
    prune="bot.job_reports.running_jobs:prune_listings",
)
