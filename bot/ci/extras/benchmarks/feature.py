"""The feature `benchmarks`: what a commit makes slower, on which device."""

from __future__ import annotations

from bot.core.feature import Feature, NavigationEntry

FEATURE = Feature(
    name="benchmarks",
    tables="bot.ci.extras.benchmarks.tables",
    tasks={"benchmarks": "bot.ci.extras.benchmarks.documents:judge_source"},
    background=frozenset({"benchmarks"}),
    parsers={"benchmark": "bot.ci.extras.parse.benchmark_records:parse_benchmarks"},
    receivers={"benchmark": "bot.ci.extras.benchmarks.documents:RECEIVER"},
    prune="bot.ci.extras.benchmarks.documents:prune",
    views="bot.ci.extras.benchmarks.routes:VIEWS",
    navigation=(
        NavigationEntry(
            bar="repository",
            path="/{repo}/benchmarks",
            label="Benchmarks",
            place=75,
            shown="bot.ci.extras.shown_pages:has_benchmarks",
            covers=("/{repo}/benchmarks/",),
        ),
    ),
    routes="bot.ci.extras.benchmarks.routes:setup",
    sections={
        "pull": "bot.ci.extras.benchmarks.sections:show_pull",
        "remarks": "bot.ci.extras.benchmarks.sections:tell_comment",
    },
    settings="bot.ci.extras.benchmarks.directions:BenchmarkSettings",
)
