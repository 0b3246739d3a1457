"""The feature `disabled`: tests and jobs that CI may skip, as issues say."""

from __future__ import annotations

from bot.core.feature import Feature, NavigationEntry

FEATURE = Feature(
    name="disabled",
    tables="bot.ci.disabled.tables",
    exports="bot.ci.disabled.exports:EXPORTS",
    tasks={
        "disabled": "bot.ci.disabled.make_lists:make_lists",
        "disabled_answer": "bot.ci.disabled.answer_issue:write_answer",
        "disabled_check": "bot.ci.disabled.make_lists:request_all_lists",
        "disabled_issues": "bot.ci.disabled.list_issues:find_missed_issues",
        "pull_closes": "bot.ci.disabled.pull_commits:read_pull_commits",
    },
    background=frozenset({"disabled_issues"}),
    prune="bot.ci.disabled.prune:prune",
    periodic="bot.ci.disabled.make_lists:periodic",
    before_commit="bot.ci.disabled.make_lists:request_changed_lists",
    on_start="bot.ci.disabled.answer_rows:lose_all",
    doctor="bot.ci.disabled.doctor:check_answers",
    views="bot.ci.disabled.views:VIEWS",
    routes="bot.ci.disabled.views:setup",
    navigation=(
        NavigationEntry(
            bar="tests",
            path="/{repo}/disabled",
            label="Disabled",
            place=40,
            shown="bot.ci.disabled.issues_view:has_lists",
        ),
    ),
    settings="bot.ci.disabled.settings:DisabledSettings",
)
