"""How a branch stands, in the first line of its page: what blocks, and what is only watched, apart."""

from __future__ import annotations

import pytest

from bot.jobs.branch_reads import find_branch
from bot.jobs.branch_standing import describe_standing, judge_branch, read_standing
from bot.jobs.grid import Grid
from bot.web.access import Hidden
from tests.harness import L2, L4, START, UPSTREAM
from tests.jobs.branch import COMMITS, MINUTE, deliver, job, push, run
from tests.pages.page_checks import add_job, page_text
from tests.serving import SQLITE

API = f"/api/ci/hud/{UPSTREAM}/main"
HUD = f"/hud/{UPSTREAM}/main"


def pushes(bot, names="ABCD"):
    return [
        push(bot, name, parent=before, at=at * 10)
        for at, (before, name) in enumerate(zip([None, *names], names, strict=False))
    ]


async def report_nightly(bot, backend, conclusions):
    """A backend's nightly results, by the letter of the commit."""
    for name, conclusion in conclusions.items():
        await add_job(bot, pr_number=None, event_type="nightly", head_sha=COMMITS[name], downstream_repo=backend,
                      delivery_id=name, job_name="build", workflow_name="CI", conclusion=conclusion)  # fmt: skip


async def standing(bot, query=""):
    return (await bot.get(f"{API}{query}"))[1]["standing"]


@pytest.mark.logic
async def test_green_since_the_first_green_commit_in_a_row(bot):
    await deliver(bot, *pushes(bot), job(bot, "lint", "A", "failure"),
                  *(job(bot, "lint", name) for name in "BC"), job(bot, "lint", "D", ""))  # fmt: skip
    found = await standing(bot)
    assert (found["state"], found["since"], found["at_least"]) == ("green", COMMITS["B"], False)
    assert (found["unfinished"], found["last_good"]) == (1, None)
    text = await page_text(bot, HUD)
    assert "main is green since bb00000 (" in text
    assert "1 newer commit still running" in text


@pytest.mark.logic
async def test_a_broken_job_that_blocks_is_named_apart_from_a_backend_that_is_watched(bot):
    await deliver(bot, *pushes(bot), *(job(bot, "lint", name) for name in "ABCD"))
    await report_nightly(bot, L2, {"A": "success", "B": "failure", "C": "failure", "D": "failure"})
    found = await standing(bot)
    assert (found["state"], found["since"], found["blocking"]) == ("green", COMMITS["A"], [])
    assert [name.split(" / ")[1] for name in found["watched"]] == [L2]
    text = await page_text(bot, HUD)
    assert "main is green since aa00000" in text
    assert "1 watching backend is broken" in text
    assert "broken job" not in text
    await deliver(bot, job(bot, "build", "A"), *(job(bot, "build", name, "failure") for name in "BCD"))
    found = await standing(bot)
    assert (found["state"], found["since"], found["last_good"]) == ("broken", COMMITS["B"], COMMITS["A"])
    text = await page_text(bot, HUD)
    assert "main is broken since bb00000" in text
    assert "1 blocking job is broken , 1 watching backend is broken" in text
    assert "last green aa00000" in text


@SQLITE
async def test_a_backend_that_merging_waits_for_blocks_though_upstreams_jobs_are_green(bot):
    await deliver(bot, *pushes(bot), *(job(bot, "lint", name) for name in "ABCD"))
    await report_nightly(bot, L4, {"A": "success", "B": "failure", "C": "failure", "D": "failure"})
    found = await standing(bot)
    assert (found["state"], len(found["blocking"]), found["watched"]) == ("green", 1, [])
    assert "1 blocking backend is broken" in await page_text(bot, HUD)


@pytest.mark.logic
async def test_one_failure_is_red_and_not_broken(bot):
    await deliver(bot, *pushes(bot, "AB"), job(bot, "lint", "A"), job(bot, "lint", "B", "failure"))
    found = await standing(bot)
    assert (found["state"], found["since"], found["last_good"]) == ("red", COMMITS["B"], COMMITS["A"])
    assert found["blocking"] == found["watched"] == []


@pytest.mark.logic
async def test_without_a_result_it_is_neither_green_nor_red(bot):
    await deliver(bot, *pushes(bot, "A"))
    assert (await standing(bot))["state"] == "unknown"
    assert "main has no result" in await page_text(bot, HUD)
    await deliver(bot, job(bot, "lint", "A", ""), run(bot, "A", status="in_progress", conclusion=None))
    assert (await standing(bot))["state"] == "running"


@SQLITE
async def test_every_choice_of_lines_and_every_reader_has_the_same_answer(bot):
    await deliver(bot, *pushes(bot), job(bot, "lint", "A"),
                  *(job(bot, "lint", name, "failure") for name in "BCD"))  # fmt: skip
    found = await standing(bot)
    for query in ("?per=1", f"?before={COMMITS['C']}", "?shards=1", "?name=nothing"):
        assert await standing(bot, query) == found
    async with bot.store.read() as tx:
        branch = await find_branch(tx, Hidden(names=frozenset(), ids=frozenset()), UPSTREAM, "")
        read = await read_standing(tx, bot.context.settings, branch)
    words = describe_standing(read, now=START + 26 * MINUTE)
    assert words == "main is broken since bb00000 (16 min), 1 blocking job is broken"


def test_nothing_is_said_of_a_branch_without_commits():
    found = judge_branch(Grid(columns=(), lines=()), "main", ())
    assert describe_standing(found, now=START) == "main has no result"
