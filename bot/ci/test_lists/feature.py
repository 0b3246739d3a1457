"""The feature `test_lists`: how long tests take, as lists that CI is planned with."""

from __future__ import annotations

from bot.core.feature import Feature, NavigationEntry

FEATURE = Feature(
    name="test_lists",
    tables="bot.ci.test_lists.tables",
    exports="bot.ci.test_lists.exports:EXPORTS",
    tasks={
        "test_lists": "bot.ci.test_lists.make_time_lists:make_time_lists",
        "test_lists_check": "bot.ci.test_lists.make_time_lists:request_all_lists",
        "test_reruns": "bot.ci.test_lists.rerun_rows:count_new_reruns",
    },
    background=frozenset({"test_lists", "test_reruns"}),
    prune="bot.ci.test_lists.rerun_rows:prune_reruns",
    periodic="bot.ci.test_lists.make_time_lists:periodic",
    views="bot.ci.test_lists.views:VIEWS",
    routes="bot.ci.test_lists.views:setup",
    navigation=(
        NavigationEntry(
            bar="tests",
            path="/{repo}/disabled/suggestions",
            label="Suggestions",
            place=50,
            shown="bot.ci.test_lists.views:has_suggestions",
        ),
    ),
    settings="bot.ci.test_lists.settings:TimesSettings",
)
