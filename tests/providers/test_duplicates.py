"""A job that GitHub shows as a commit status or check run, too, is one column."""

from __future__ import annotations

import pytest

from bot.jobs.settings import TrunkSettings
from tests.harness import UPSTREAM
from tests.jobs.branch import deliver, push, repository
from tests.pages.page_checks import failures
from tests.providers.sending import circleci, commit, deliver_buildkite, deliver_circleci, job_event, status
from tests.providers.test_stories import grid

pytestmark = pytest.mark.logic
TEST = "ci/circleci: test"


def check(bot, name, conclusion="success", *, sha="A", number=5):
    body = {
        "id": number,
        "name": name,
        "head_sha": commit(sha),
        "status": "completed",
        "conclusion": conclusion,
        "app": {"id": 99, "slug": "some-ci"},
        "completed_at": "2026-09-21T15:00:00Z",
    }
    return "check_run", {"action": "completed", "check_run": body, "repository": repository(bot)}


@pytest.fixture
def trunk_settings():
    return TrunkSettings(ci_checks="on")


async def test_a_status_of_a_job_of_circleci_says_that_it_runs_until_it_has_ended(bot):
    await deliver(bot, push(bot, "A"), push(bot, "B", parent="A", at=1))
    await deliver_circleci(bot, circleci(sha="A"))
    await deliver(bot, status(bot, TEST, "success", sha="A"), status(bot, TEST, "pending", sha="B"))
    assert await grid(bot) == {"circleci / ci / test": "?O"}
    page = (await bot.get(f"/hud/{UPSTREAM}/main?cell={commit('B')[:12]}.x"))[1]
    assert "statuses" not in page
    await deliver_circleci(bot, circleci(sha="B", status="failed", number=137))
    assert await grid(bot) == {"circleci / ci / test": "XO"}


async def test_the_status_of_a_whole_build_is_shown_only_where_none_of_its_jobs_is_known(bot):
    await deliver(bot, push(bot, "A"), push(bot, "B", parent="A", at=1))
    await deliver_buildkite(bot, job_event("passed"), job_event("passed", job="2", name="Lint"))
    await deliver(
        bot, status(bot, "buildkite/fastcheck", "success"), status(bot, "buildkite/fastcheck/lint", "success")
    )
    columns = {"buildkite / fastcheck / :npu: Test": " O", "buildkite / fastcheck / Lint": " O"}
    assert await grid(bot) == columns
    await deliver(bot, status(bot, "buildkite/fastcheck", "failure", sha="B"))
    assert await grid(bot) == columns | {"statuses / buildkite/fastcheck": "X "}


async def test_two_statuses_of_one_context_are_one_column_and_one_with_a_check_run_of_its_name(bot):
    await deliver(bot, push(bot, "A"), push(bot, "B", parent="A", at=1))
    await deliver(bot, status(bot, "docs", "pending"), status(bot, "docs", "success", at=1, identifier=2))
    assert await grid(bot) == {"statuses / docs": " O"}
    await deliver(bot, check(bot, "docs"), status(bot, "docs", "failure", sha="B", at=2))
    assert await grid(bot) == {"checks / some-ci / docs": "XO"}


async def test_a_status_without_anything_else_of_its_name_is_a_column_of_its_own(bot):
    await deliver(bot, push(bot, "A"))
    await deliver_circleci(bot, circleci())
    await deliver(bot, status(bot, "ci/circleci: other", "error"), status(bot, "jenkins", "success"))
    assert await grid(bot) == {
        "circleci / ci / test": "O",
        "statuses / ci/circleci: other": "X",
        "statuses / jenkins": "O",
    }
    _, found = await bot.get(f"/api/ci/hud/{UPSTREAM}/main")
    blocking = {column["name"]: column["blocking"] for column in found["columns"]}
    assert blocking == {
        "circleci / ci / test": True,
        "statuses / ci/circleci: other": False,
        "statuses / jenkins": False,
    }


async def test_a_commits_page_counts_the_jobs_that_the_grid_has_each_once(bot):
    await deliver(bot, push(bot, "A"))
    await deliver_circleci(bot, circleci(status="failed"))
    await deliver_buildkite(bot, job_event("passed"))
    await deliver(
        bot,
        status(bot, TEST, "failure"),
        status(bot, "buildkite/fastcheck", "success"),
        status(bot, "jenkins", "success"),
    )
    assert (await grid(bot)).keys() == {
        "buildkite / fastcheck / :npu: Test",
        "circleci / ci / test",
        "statuses / jenkins",
    }
    page = (await bot.get(f"/{UPSTREAM}/commit/{commit('A')}"))[1]
    assert "Upstream's own CI</a>: 2 of 3 passed, 1 failed" in page
    assert [row[0].partition(" failed")[0] for row in failures(page)] == ["circleci / ci / test"]


async def test_an_open_cell_lists_the_job_once_and_leads_to_its_ci(bot):
    from bot.jobs.grid import key_of_column

    await deliver(bot, push(bot, "A"))
    await deliver_circleci(bot, circleci(status="failed"))
    await deliver(bot, status(bot, TEST, "failure", url="https://circleci.com/gh/pytorch/vision/136"))
    key = key_of_column("circleci / ci / test")
    page = (await bot.get(f"/hud/{UPSTREAM}/main?cell={commit('A')[:12]}.{key}"))[1]
    opened = page.partition('id="cell"')[2].partition("</section>")[0]
    assert "/jobs/136" in opened
    assert "circleci.com/gh/" not in opened
    assert "Re-run" not in opened
