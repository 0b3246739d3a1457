"""What is broken, for Prometheus; and branches that were deleted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bot.jobs.settings import TrunkSettings
from tests.harness import UPSTREAM
from tests.jobs.branch import COMMITS, deliver, job, push
from tests.jobs.test_hud import HUD
from tests.pages.page_checks import page_text
from tests.serving import SQLITE


@pytest.fixture
def settings(settings):
    """The settings of a bot that watches release branches."""
    watched = TrunkSettings(ci_branches=("release/*",))
    return replace(settings, of_features={**settings.of_features, TrunkSettings: watched})


async def broken(bot, **options):
    """What /metrics says is broken, by branch and group."""
    text = (await bot.get("/metrics", **options))[1]
    found = {}
    for line in text.splitlines():
        if line.startswith("ootbot_trunk_broken{"):
            labels, _, number = line.removeprefix("ootbot_trunk_broken{").rpartition("} ")
            named = dict(part.split("=") for part in labels.replace('"', "").split(","))
            assert named["repo"] == UPSTREAM
            found[named["branch"], named["group"]] = float(number)
    return found


async def failing(bot, branch="main", conclusions=("success", "failure", "failure", "failure"), start=0):
    """Commits of a branch with one job each."""
    parent = None
    for at, conclusion in enumerate(conclusions, start):
        sha = f"{branch.encode().hex()}{at:02}{'0' * 40}"[:40]
        await deliver(bot, push(bot, sha, parent=parent, branch=branch, at=at),
                   job(bot, "linux / test", sha, conclusion, at=at), job(bot, "lint", sha, at=at))  # fmt: skip
        parent = sha
    await bot.wait(60)


def deletion(bot, branch):
    event, body = push(bot, "0" * 40, parent="A", branch=branch)
    return (event, body | {"deleted": True, "head_commit": None, "commits": []})


@pytest.mark.logic
async def test_what_is_broken_is_counted_by_branch_and_group(bot):
    assert await broken(bot) == {}
    await failing(bot)
    await failing(bot, "release/2.1", ["success"])
    await failing(bot, "feature/x")
    expected = {
        ("main", "Linux"): 1,
        ("main", "Lint"): 0,
        ("release/2.1", "Linux"): 0,
        ("release/2.1", "Lint"): 0,
    }
    assert await broken(bot) == expected
    assert (await bot.get("/readyz"))[1]["notes"] == []
    sha = COMMITS["A"]
    await deliver(
        bot,
        push(bot, sha, parent=f"{b'main'.hex()}03{'0' * 40}"[:40], at=9),
        job(bot, "linux / test", sha, "", number=7),
    )
    await bot.wait(60)
    assert (await broken(bot))["main", "Linux"] == 1  # still running
    await deliver(bot, job(bot, "linux / test", sha, number=7))
    await bot.wait(60)
    assert (await broken(bot))["main", "Linux"] == 0


@SQLITE
async def test_a_private_repository_is_counted_for_the_administrator_only(bot):
    await failing(bot)
    _event, body = push(bot, "E")
    body["repository"] |= {"private": True, "updated_at": "2030-01-01T00:00:00Z"}
    await deliver(bot, ("repository", {"action": "privatized", "repository": body["repository"]}))
    token = {"Authorization": "Bearer an admin token of ours"}
    assert (await broken(bot, headers=token))["main", "Linux"] == 1
    assert await broken(bot) == {}


@pytest.mark.logic
async def test_a_deleted_branch_says_so_and_is_not_counted(bot):
    branch = "release/2.1"
    page = f"/hud/{UPSTREAM}/{branch}"
    await failing(bot, branch)
    assert (await broken(bot))[branch, "Linux"] == 1
    assert "was deleted" not in await page_text(bot, page)
    bot.clock.advance(60)
    await deliver(bot, deletion(bot, branch))
    text = await page_text(bot, page)
    assert "This branch was deleted" in text
    assert "linux / test" in text  # its lines stay
    assert (branch, "Linux") not in await broken(bot)
    bot.clock.advance(60)
    await deliver(bot, push(bot, "B", branch=branch, at=30))
    assert "was deleted" not in await page_text(bot, page)
    assert "was deleted" not in await page_text(bot, HUD)
