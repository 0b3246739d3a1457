"""The feature `disabled`: tests and jobs that CI may skip, as issues say."""

from __future__ import annotations

from dataclasses import dataclass

from bot.core import setting_types
from bot.core.feature import Feature
from bot.core.settings import option

FEATURE = Feature(
    name="disabled",
    tables="bot.evidence.disabled.tables",
    exports="bot.evidence.disabled.exports:EXPORTS",
    tasks={
        "disabled": "bot.evidence.disabled.make_lists:make_lists",
        "disabled_answer": "bot.evidence.disabled.answers:write_answer",
        "disabled_check": "bot.evidence.disabled.make_lists:request_all_lists",
        "disabled_issues": "bot.evidence.disabled.make_lists:find_missed_issues",
        "pull_closes": "bot.evidence.disabled.pull_closes:read_pull_commits",
    },
    background=frozenset({"disabled_issues"}),
    prune="bot.evidence.disabled.exports:prune_disabled",
    periodic="bot.evidence.disabled.make_lists:periodic",
    before_commit="bot.evidence.disabled.make_lists:request_changed_lists",
    on_start="bot.evidence.disabled.answers:lose_all",
    doctor="bot.evidence.disabled.answers:check_answers",
    settings="bot.evidence.disabled.feature:DisabledSettings",
)


@dataclass(frozen=True, kw_only=True)
class DisabledSettings:
    """Whose issues disable tests and jobs, and whether more are suggested."""

    ci_disable: str = option(
        "Suggestions which tests to disable and which issues to close: off, or suggest (a page with links to new "
        "issues, filled in; the bot itself opens and closes none).",
        setting_types.one_of("off", "suggest"),
        default="off",
    )

    ci_disable_authors: tuple[str, ...] = option(
        "Logins whose DISABLED and UNSTABLE issues count beside those of people with write access, such as an "
        "App's: my-app[bot]; comma separated.",
        setting_types.words,
        default=(),
    )
