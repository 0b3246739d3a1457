"""How a branch stands, on its page and on those of commits and pull requests: what blocks, and since when jobs fail."""

from __future__ import annotations

import html
import re

import pytest

from bot.jobs.branch_reads import find_branch
from bot.jobs.branch_standing import describe_standing, judge_branch, read_standing
from bot.jobs.grid import Grid
from bot.web.access import Hidden
from tests.harness import L2, L3, L4, START, UPSTREAM
from tests.jobs.branch import COMMITS, MINUTE, deliver, job, push, run
from tests.jobs.test_hud import API, HUD
from tests.pages.page_checks import add_job, check_escaped, failures, page_text
from tests.serving import SQLITE

TEST, LINT = "linux / test", "lint"


async def a_branch(bot, **conclusions):
    """Pushes A to E; by job the conclusions of it, one letter a commit."""
    words = {"O": "success", "X": "failure"}
    parent = None
    for at, name in enumerate("ABCDE"):
        await deliver(bot, push(bot, name, parent=parent, at=at))
        for number, (workflow, row) in enumerate(conclusions.items()):
            if row[at] != ".":
                ended = words[row[at]]
                await deliver(
                    bot, job(bot, TEST, name, ended, workflow=workflow, run=100 * number + at, at=at)
                )
        parent = name


async def failures_of(bot, path):
    """What a page says of how each failing job compares, where that leads, and the links below the list."""
    page = (await bot.get(path))[1]
    check_escaped(page)
    rows = {row[0].partition(" failed")[0]: row[2] for row in failures(page)}
    below = page.partition('<div class="onward">')[2].partition("</div>")[0]
    return rows, re.findall(r'<a href="([^"]*)"[^>]*>(?:<bdi>)?(.*?)</', below), page


async def of_commit(bot, name):
    return await failures_of(bot, f"/{UPSTREAM}/commit/{COMMITS[name]}")


@pytest.mark.logic
async def test_a_commit_says_which_failures_were_there_before_it(bot):
    await a_branch(bot, pull="OXXXX", trunk="OOOOX", slow="OOOOO", nightly="....X")
    rows, links, page = await of_commit(bot, "E")
    assert (f"/hud/{UPSTREAM}/main", "red in the grid of main") in links
    assert rows == {
        "nightly / linux / test": "no baseline yet no earlier result is known",
        "pull / linux / test": f"! known fails since {COMMITS['B'][:8]} Change B (#66)",
        "trunk / linux / test": "✕ new passed on the commit before",
    }
    assert "3 failures: 1 new, 1 without a baseline yet, 1 known" in page
    (opened,) = re.findall(rf'<a href="([^"]*)"[^>]*><bdi>fails since {COMMITS["B"][:8]}', page)
    opened = await page_text(bot, html.unescape(opened).partition("#")[0])
    assert f"pull / linux / test on {COMMITS['E'][:8]}"[:30] in opened
    assert "That cell is not" not in opened
    _, links, page = await of_commit(bot, "A")
    assert (f"/hud/{UPSTREAM}/main", "green in the grid of main") in links
    assert "Nothing has failed." in page


@SQLITE
async def test_a_commit_of_no_branch_says_nothing_of_the_grid(bot):
    await deliver(bot, push(bot, "A"), job(bot, TEST, "B", "failure"))
    rows, links, _ = await of_commit(bot, "B")
    assert (rows, [words for _, words in links if "grid" in words]) == (
        {f"pull / {TEST}": "no baseline yet"},
        [],
    )


@SQLITE
async def test_the_cell_of_an_old_commit_is_found_too(bot):
    names = [f"{number:040x}" for number in range(1, 60)]
    parent = None
    for at, name in enumerate(names):
        await bot.send(*push(bot, name, parent=parent, at=at))
        parent = name
    await deliver(bot, job(bot, TEST, names[1], "failure"))
    _, _, page = await failures_of(bot, f"/{UPSTREAM}/commit/{names[1]}")
    (url,) = re.findall(r'<a href="(/hud[^"]*)"[^>]*><bdi>passed on', page) or re.findall(
        r'<a href="(/hud[^"]*#cell)"', page
    )
    url = html.unescape(url)
    assert "the open cell" in (await bot.get(url.partition("#")[0]))[1].lower()


@SQLITE
async def test_a_backend_that_fails_is_told_of_in_the_same_way(bot):
    await a_branch(bot, pull="OOOOO")
    for name, conclusion in (("B", "success"), ("C", "failure"), ("E", "failure")):
        await add_job(bot, pr_number=None, event_type="push", head_sha=COMMITS[name], downstream_repo=L3,
                      job_name="build", workflow_name="CI", conclusion=conclusion, run_id=f"90{ord(name)}")  # fmt: skip
    rows, _, _ = await of_commit(bot, "E")
    assert rows == {"CI / build": f"! known fails since {COMMITS['C'][:8]} Change C (#67)"}


@pytest.mark.logic
async def test_a_pull_request_says_what_fails_on_its_base_branch_too(bot, github):
    await a_branch(bot, pull="OOXXX", trunk="OXOOO", slow="OOOOO")
    pull = await github.open_pull(UPSTREAM)
    page = f"/{UPSTREAM}/pull/{pull.number}"
    await bot.settle()
    sha = pull.head_sha
    await deliver(
        bot,
        job(bot, TEST, sha, workflow="docs"),
        job(bot, TEST, sha, workflow="slow"),
        run(bot, sha, event="pull_request", conclusion="failure"),
    )
    assert "Nothing has failed" in (await bot.get(page))[1]
    await deliver(bot, *(job(bot, TEST, sha, "failure", workflow=workflow, number=900 + at, run=900 + at)
                      for at, workflow in enumerate(("pull", "trunk", "new"))))  # fmt: skip
    rows, links, source = await failures_of(bot, page)
    assert rows == {
        "new / linux / test": "no baseline yet no result on main is known",
        "trunk / linux / test": "✕ new passes on main; failed on 1 of its newest 5 commits",
        "pull / linux / test": f"! known fails on main too, since {COMMITS['C'][:8]} Change C (#67)",
    }
    assert f'/hud/{UPSTREAM}/main?name=trunk+%2F+linux+%2F+test"' in source
    first, _, folded = source.partition("Likely not this change: 1 known")
    assert "pull / linux / test" in folded
    assert "trunk / linux / test" in first
    assert (f"/hud/{UPSTREAM}/main", "the grid of main") in links
    assert any(url.endswith(f"/{UPSTREAM}/compare/main...{sha}") for url, _ in links)


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
