"""Broken jobs of a branch are told together, and so are those that are repaired: never for want of results."""

from __future__ import annotations

import pytest

from tests.harness import L2, UPSTREAM
from tests.jobs.branch import COMMITS, deliver, job, push
from tests.notify.receiving import check
from tests.pages.page_checks import add_job

TRUNK = ("trunk_broken", "trunk_repaired")


@pytest.fixture
async def bot(inbox, serve):
    async with serve(inbox.receiver(events=TRUNK), begun=True) as made:
        yield made


def pushes(bot, names="ABCDE"):
    return [
        push(bot, name, parent=before, at=at * 10)
        for at, (before, name) in enumerate(zip([None, *names], names, strict=False))
    ]


async def test_jobs_that_broke_together_are_one_notice_and_their_repair_another(bot, inbox):
    names = ("lint", "build")
    await deliver(bot, *pushes(bot), *(job(bot, name, "A") for name in names),
                  *(job(bot, name, commit, "failure") for name in names for commit in "BCD"))  # fmt: skip
    await check(bot)
    await check(bot)

    assert inbox.told == ["trunk_broken"]
    data = inbox.notices[0]["data"]
    assert data["heading"] == f"main of {UPSTREAM} broke"
    assert data["lines"] == [
        "pull / lint fails since bb00000, last good aa00000",
        "pull / build fails since bb00000, last good aa00000",
    ]
    assert (data["branch"], data["url"]) == ("main", f"{bot.context.settings.url}/hud/{UPSTREAM}/main")

    await deliver(bot, job(bot, "lint", "E"))
    await check(bot)
    await check(bot)

    assert inbox.told == ["trunk_broken", "trunk_repaired"]
    assert inbox.notices[1]["data"]["lines"] == ["pull / lint"]


@pytest.mark.logic
async def test_a_job_that_has_no_result_any_more_is_not_repaired(bot, inbox):
    await deliver(bot, *pushes(bot, "ABCD"), job(bot, "lint", "A"),
                  *(job(bot, "lint", commit, "failure") for commit in "BCD"))  # fmt: skip
    await check(bot)
    await deliver(
        bot, push(bot, "E", parent="D", at=50), job(bot, "lint", "E", "skipped"), job(bot, "build", "E")
    )
    await check(bot)

    assert inbox.told == ["trunk_broken"]


@pytest.mark.logic
async def test_a_broken_job_of_a_backend_is_told_apart_and_to_those_on_call(inbox, serve):
    async with serve(inbox.receiver(events=TRUNK, oncall=("alice",))) as bot:
        await deliver(bot, *pushes(bot), *(job(bot, "lint", name) for name in "A"),
                      *(job(bot, "lint", name, "failure") for name in "BCD"))  # fmt: skip
        for name, conclusion in {"A": "success", "B": "failure", "C": "failure", "D": "failure"}.items():
            await add_job(bot, pr_number=None, event_type="nightly", head_sha=COMMITS[name], downstream_repo=L2,
                          delivery_id=name, job_name="build", workflow_name="CI", conclusion=conclusion)  # fmt: skip
        await check(bot)

    [notice] = inbox.notices
    assert notice["data"]["heading"] == f"watched jobs on main of {UPSTREAM} broke"
    assert (notice["data"]["backend"], notice["data"]["oncalls"]) == (L2, ["alice", "bob"])


@pytest.mark.nightly
async def test_a_change_of_a_branch_is_told_within_30_seconds(bot, inbox):
    await deliver(bot, *pushes(bot), job(bot, "lint", "A"),
                  *(job(bot, "lint", commit, "failure") for commit in "BC"))  # fmt: skip
    await bot.wait(60)
    began = bot.clock.now()
    await deliver(bot, job(bot, "lint", "D", "failure"))
    while not inbox.got and bot.clock.now() < began + 60_000:
        await bot.wait(1)

    assert inbox.told == ["trunk_broken"]
    assert bot.clock.now() - began <= 30_000
