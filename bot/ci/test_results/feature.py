"""The feature `test_results`: what reports of tests say, case by case."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.core.feature import Feature

if TYPE_CHECKING:
    from bot.core.settings import Settings


def periodic(_settings: Settings) -> dict[str, float]:
    """Return the seconds between runs, by task kind."""
    return {"test_states": 3600.0}


FEATURE = Feature(
    name="test_results",
    tables="bot.ci.test_results.tables",
    tasks={
        "test_crashes": "bot.ci.test_results.crashed_files:run",
        "test_days": "bot.ci.test_results.count_days:run",
        "test_disabled": "bot.ci.test_results.disabled_changed:run",
        "test_losses": "bot.ci.test_results.find_losses:run",
        "test_results": "bot.ci.test_results.store_job:run",
        "test_states": "bot.ci.test_results.evaluate_states:run",
        "test_verdicts": "bot.ci.test_results.judge_failures:run",
    },
    before_commit="bot.ci.test_results.facts_changed:note",
    background=frozenset(
        {"test_days", "test_disabled", "test_losses", "test_results", "test_states", "test_verdicts"}
    ),
    periodic="bot.ci.test_results.feature:periodic",
    prune="bot.ci.test_results.prune:prune",
    routes="bot.ci.test_results.pages.routes:setup",
    openapi="bot.ci.test_results.pages.openapi:OPERATIONS",
    sections={
        "job": "bot.ci.test_results.pages.sections:of_job",
        "run": "bot.ci.test_results.pages.sections:of_run",
        "pull": "bot.ci.test_results.pages.sections:of_pull",
        "commit": "bot.ci.test_results.pages.sections:of_commit",
        "cell": "bot.ci.test_results.pages.sections:of_cell",
        "head": "bot.ci.test_results.pages.sections:of_head",
    },
    admin_forms={
        "/tests/{owner}/{repo}/{digest:[0-9a-f]{16}}/reset": "bot.ci.test_results.pages.reset_test:reset"
    },
    settings="bot.ci.test_results.settings:TestSettings",
    commands={"tests": "bot.console.tests:tests"},
    parsers={
        "jsons": "bot.ci.test_results.parse_exclusions:parse",
        "junit": "bot.ci.test_results.parse_reports:parse",
        "runreport": "bot.ci.test_results.parse_reports:parse",
    },
    receivers={
        "jsons": "bot.ci.test_results.store_exclusions:RECEIVER",
        "junit": "bot.ci.test_results.store_part:RECEIVER",
        "runreport": "bot.ci.test_results.store_part:RECEIVER",
    },
)
