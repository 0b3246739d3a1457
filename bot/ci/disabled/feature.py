"""The feature `disabled`: tests and jobs that CI may skip, as issues say."""

from __future__ import annotations

from bot.core.feature import Feature

FEATURE = Feature(
    name="disabled",
    tables="bot.ci.disabled.tables",
    tasks={
        "disabled": "bot.ci.disabled.generate:run",
        "disabled_answer": "bot.ci.disabled.answer_issue:run",
        "disabled_check": "bot.ci.disabled.generate:check",
        "disabled_issues": "bot.ci.disabled.list_issues:run",
        "pull_closes": "bot.ci.disabled.pull_commits:run",
    },
    background=frozenset({"disabled_issues"}),
    prune="bot.ci.disabled.pull_commits:prune",
    periodic="bot.ci.disabled.generate:periodic",
    before_commit="bot.ci.disabled.generate:note",
    on_start="bot.ci.disabled.answer_rows:lose_all",
    doctor="bot.ci.disabled.doctor:check",
    routes="bot.ci.disabled.api:setup",
    openapi="bot.ci.disabled.openapi:OPERATIONS",
    settings="bot.ci.disabled.settings:DisabledSettings",
)
