"""The feature `test_results`: what reports of tests say, case by case."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.core.feature import Feature, NavigationEntry

if TYPE_CHECKING:
    from bot.core.settings import Settings


HAS_TESTS = "bot.ci.test_results.views.routes:has_tests"


def periodic(_settings: Settings) -> dict[str, float]:
    """Return the seconds between runs, by task kind."""
    return {"test_states": 3600.0}


FEATURE = Feature(
    name="test_results",
    tables="bot.ci.test_results.tables",
    exports="bot.ci.test_results.exports:EXPORTS",
    tasks={
        "test_crashes": "bot.ci.test_results.store.crashed_files:request_jobs_without_reports",
        "test_days": "bot.ci.test_results.store.count_days:count_days",
        "test_disabled": "bot.ci.test_results.store.disabled_changed:judge_disabled_again",
        "test_losses": "bot.ci.test_results.find_losses:find_losses",
        "test_results": "bot.ci.test_results.store.job_results:store_job_results",
        "test_states": "bot.ci.test_results.store.evaluate_states:evaluate_states",
        "test_verdicts": "bot.ci.test_results.judge_failures:judge_failures",
    },
    before_commit="bot.ci.test_results.store.facts_changed:note",
    background=frozenset(
        {"test_days", "test_disabled", "test_losses", "test_results", "test_states", "test_verdicts"}
    ),
    periodic="bot.ci.test_results.feature:periodic",
    prune="bot.ci.test_results.store.prune:prune",
    routes="bot.ci.test_results.views.routes:setup",
    views="bot.ci.test_results.views.routes:VIEWS",
    navigation=(
        NavigationEntry(
            bar="repository",
            path="/{repo}/tests",
            label="Tests",
            place=30,
            shown=HAS_TESTS,
            covers=("/{repo}/tests/", "/{repo}/test/", "/{repo}/flaky", "/{repo}/disabled"),
        ),
        NavigationEntry(
            bar="tests",
            path="/{repo}/tests",
            label="All tests",
            place=10,
            shown=HAS_TESTS,
            covers=("/{repo}/test",),
        ),
        NavigationEntry(
            bar="repository",
            path="/oot/{repo}/tests",
            label="Beside upstream",
            place=6,
            shown="bot.ci.test_results.views.backend_tests:can_compare",
        ),
        NavigationEntry(bar="tests", path="/{repo}/flaky", label="Flaky", place=20, shown=HAS_TESTS),
        NavigationEntry(bar="tests", path="/{repo}/tests/lost", label="Lost", place=30, shown=HAS_TESTS),
    ),
    search="bot.ci.test_results.views.search_hits:find_hits",
    sections={
        "job": "bot.ci.test_results.views.sections:job_blocks",
        "run": "bot.ci.test_results.views.sections:run_blocks",
        "pull": "bot.ci.test_results.views.sections:pull_blocks",
        "commit": "bot.ci.test_results.views.sections:commit_blocks",
        "failures": "bot.ci.test_results.views.sections:find_failures",
        "cell": "bot.ci.test_results.views.sections:cell_lines",
        "head": "bot.ci.test_results.views.sections:head_tests",
        "shared_failures": "bot.ci.test_results.shared_failures:find_shared",
    },
    admin_forms={
        "/tests/{owner}/{repo}/{digest:[0-9a-f]{16}}/reset": "bot.ci.test_results.views.reset_test:reset"
    },
    settings="bot.ci.test_results.settings:TestSettings",
    commands={"tests": "bot.console.tests:tests"},
    parsers={
        "jsons": "bot.ci.test_results.parse.exclusions:parse_exclusions",
        "junit": "bot.ci.test_results.parse.artifact:parse_artifact",
        "runreport": "bot.ci.test_results.parse.artifact:parse_artifact",
    },
    receivers={
        "jsons": "bot.ci.test_results.store.exclusions:RECEIVER",
        "junit": "bot.ci.test_results.store.job_parts:RECEIVER",
        "runreport": "bot.ci.test_results.store.job_parts:RECEIVER",
    },
)
