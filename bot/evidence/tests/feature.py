"""The feature `test_results`: what reports of tests say, case by case."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.core.feature import Feature

if TYPE_CHECKING:
    from bot.core.settings import Settings

FEATURE = Feature(
    name="test_results",
    tables="bot.evidence.tests.tables",
    exports="bot.evidence.tests.exports:EXPORTS",
    tasks={
        "test_crashes": "bot.evidence.tests.later_facts:request_jobs_without_reports",
        "test_days": "bot.evidence.tests.days:count_days",
        "test_disabled": "bot.evidence.tests.later_facts:judge_disabled_again",
        "test_losses": "bot.evidence.tests.losses:find_losses",
        "test_results": "bot.evidence.tests.job_results:store_job_results",
        "test_states": "bot.evidence.tests.states:evaluate_states",
        "test_verdicts": "bot.evidence.tests.judge_failures:judge_failures",
    },
    before_commit="bot.evidence.tests.later_facts:note_changed_facts",
    background=frozenset(
        {"test_days", "test_disabled", "test_losses", "test_results", "test_states", "test_verdicts"}
    ),
    periodic="bot.evidence.tests.feature:periodic",
    prune="bot.evidence.tests.job_parts:prune_results",
    sections={
        "failures": "bot.evidence.tests.failing:find_failures",
        "head": "bot.evidence.tests.failing:head_tests",
    },
    admin_forms={
        "/tests/{owner}/{repo}/{digest:[0-9a-f]{16}}/reset": "bot.evidence.tests.states:reset_by_administrator"
    },
    settings="bot.evidence.tests.environments:TestSettings",
    commands={"tests": "bot.console.tests:tests"},
    parsers={
        "jsons": "bot.evidence.tests.parse.artifact:parse_exclusions",
        "junit": "bot.evidence.tests.parse.artifact:parse_artifact",
        "runreport": "bot.evidence.tests.parse.artifact:parse_artifact",
    },
    receivers={
        "jsons": "bot.evidence.tests.job_parts:EXCLUSIONS_RECEIVER",
        "junit": "bot.evidence.tests.job_parts:REPORTS_RECEIVER",
        "runreport": "bot.evidence.tests.job_parts:REPORTS_RECEIVER",
    },
)


def periodic(_settings: Settings) -> dict[str, float]:
    """Return the seconds between runs, by task kind."""
    return {"test_states": 3600.0}
