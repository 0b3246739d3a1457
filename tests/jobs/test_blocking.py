"""Which jobs decide a commit's verdict: those that GitHub requires, and none that an issue calls unstable."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bot.jobs.settings import CollectSettings
from tests.evidence.disabled import issues
from tests.evidence.disabled.issues import issue, may_write
from tests.harness import UPSTREAM
from tests.jobs.branch import COMMITS, deliver, job, push
from tests.jobs.test_broken_counts import broken, failing
from tests.serving import SQLITE

API = f"/api/ci/hud/{UPSTREAM}/main"
LAST_GOOD = f"/api/ci/{UPSTREAM}/last-good"
TEST = "linux / test (default, {}, 2, linux.4xlarge)"
HOUR = 3700


@pytest.fixture
def settings(settings):
    """The settings of a bot that asks GitHub."""
    return replace(settings, of_features={CollectSettings: CollectSettings(ci_logs="off")})


async def columns(bot):
    """The group of each column, and whether it blocks."""
    return {
        one["name"].removeprefix("pull / "): (one["group"], one["blocking"])
        for one in (await bot.get(API))[1]["columns"]
    }


async def verdict(bot):
    """That of commit A; GitHub's list may have others."""
    lines = (await bot.get(API))[1]["lines"]
    return next(line["verdict"] for line in lines if line["sha"] == COMMITS["A"])


async def a_commit(bot):
    """A push with jobs: `lint` passed, `build` failed, both shards of a test passed."""
    await deliver(bot, push(bot, "A"), job(bot, "lint", "A"), job(bot, "build", "A", "failure"),
               *(job(bot, TEST.format(shard), "A") for shard in (1, 2)))  # fmt: skip


def required(bot, *names):
    bot.github.state.repo(UPSTREAM).required_checks["main"] = list(names)


class TestRequiredChecks:
    """GitHub's rules name the checks that a branch requires."""

    async def test_only_required_jobs_block(self, bot):
        required(bot, TEST.format(1), TEST.format(2), "lint", "oot / gate")
        await a_commit(bot)
        assert await verdict(bot) == "red"
        await bot.wait(700)
        assert await columns(bot) == {
            "lint": ("Lint", True), "build": ("Build", False), "linux / test (default)": ("Linux", True),
        }  # fmt: skip
        assert await verdict(bot) == "green"
        status, body = await bot.get(LAST_GOOD)
        assert (status, body["columns"]) == (200, 2)

    @SQLITE
    async def test_where_none_of_the_jobs_is_required_all_block(self, bot):
        required(bot, "oot / gate", "DCO")
        await a_commit(bot)
        await bot.wait(700)
        assert all(blocking for _, blocking in (await columns(bot)).values())
        assert (await bot.get(LAST_GOOD))[0] == 404

    @SQLITE
    async def test_the_last_answer_stays_while_there_is_no_other(self, bot, github):
        required(bot, "lint")
        await a_commit(bot)
        await bot.wait(700)
        github.faults.add(method="GET", path="/rules/branches", status=403, times=1_000)
        await bot.wait(HOUR)
        assert (await columns(bot))["build"] == ("Build", False)
        github.faults.clear()
        required(bot, "lint", "build")
        await bot.wait(HOUR)
        assert (await columns(bot))["build"] == ("Build", True)

    @SQLITE
    async def test_github_is_asked_once_an_hour(self, bot, github):
        required(bot, "lint")
        await a_commit(bot)
        await bot.wait(1300)
        calls = [call for call in github.state.calls if "/rules/branches/" in call.path]
        assert len(calls) == 1


class TestUnstable:
    """An issue that begins with UNSTABLE names a job that may fail."""

    @pytest.mark.logic
    @pytest.mark.parametrize(
        ("title", "failing"),
        [("pull / build", "build"), ("PULL / Linux / " + TEST.format(1).partition(" / ")[2], TEST.format(1))],
    )
    async def test_its_job_is_shown_apart_and_blocks_nothing(self, bot, title, failing):
        may_write(bot, "erin")
        await deliver(bot, push(bot, "A"), job(bot, "lint", "A"), job(bot, failing, "A", "failure"),
                   job(bot, TEST.format(2), "A"))  # fmt: skip
        assert await verdict(bot) == "red"
        await issues.deliver(bot, issue(bot, 5, f"UNSTABLE {title}"))
        found = await columns(bot)
        assert ("Unstable", False) in found.values()
        assert found["lint"] == ("Lint", True)
        assert await verdict(bot) == "green"
        await issues.deliver(bot, issue(bot, 5, f"UNSTABLE {title}", state="closed", at=60))
        assert await verdict(bot) == "red"

    @SQLITE
    async def test_a_workflow_names_all_of_its_jobs(self, bot):
        may_write(bot, "erin")
        await a_commit(bot)
        await issues.deliver(bot, issue(bot, 5, "UNSTABLE pull"))
        assert set((await columns(bot)).values()) == {("Unstable", False)}
        assert (await bot.get(f"{API}?hide=unstable"))[1]["columns"] == []
        assert (await bot.get(LAST_GOOD))[0] == 404  # nothing blocks: nothing can be good

    @SQLITE
    async def test_an_issue_of_somebody_without_write_access_changes_nothing(self, bot):
        await a_commit(bot)
        await issues.deliver(bot, issue(bot, 5, "UNSTABLE pull / build", by="mallory"))
        assert await verdict(bot) == "red"

    @SQLITE
    async def test_what_is_broken_is_counted_again(self, bot):
        may_write(bot, "erin")
        await failing(bot)
        assert (await broken(bot))["main", "Linux"] == 1
        await issues.deliver(bot, issue(bot, 5, "UNSTABLE pull / linux"))
        await bot.wait(60)
        assert ("main", "Linux") not in await broken(bot)
