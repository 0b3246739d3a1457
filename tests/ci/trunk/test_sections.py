"""What the pages of commits and pull requests say of the branch: since when the jobs fail that failed there."""

from __future__ import annotations

import re

import pytest

from tests.ci.trunk.branch import COMMITS, deliver, job, push, run
from tests.harness import L3, UPSTREAM
from tests.oot.pages.page_checks import add_job, check_escaped, page_text
from tests.serving import SQLITE

TEST, LINT = "linux / test", "lint"


async def a_branch(bot, **conclusions):
    """Pushes A to E; by job the conclusions of it, one letter a commit."""
    words = {"O": "success", "X": "failure"}
    parent = None
    for at, name in enumerate("ABCDE"):
        await deliver(bot, push(bot, name, parent=parent, at=at))
        for workflow, row in conclusions.items():
            if row[at] != ".":
                await deliver(bot, job(bot, TEST, name, words[row[at]], workflow=workflow, at=at))
        parent = name


async def section(bot, path, heading):
    """The lines of a section of a page, with where they lead."""
    page = (await bot.get(path))[1]
    check_escaped(page)
    _, found, rest = page.partition(f"<h2>{heading}")
    if not found:
        return []
    lines = re.findall(r"<li>(.*?)</li>", rest.partition("</section>")[0])
    links = [re.search(r'href="([^"]*)"', line) for line in lines]
    words = [re.sub(r"<span[^>]*>.*?</span> ?|<[^>]*>", "", line) for line in lines]
    return [(text, link and link[1].replace("&amp;", "&")) for text, link in zip(words, links, strict=True)]


async def of_commit(bot, name):
    return await section(bot, f"/{UPSTREAM}/commit/{COMMITS[name]}", "In the grid of main")


@pytest.mark.logic
async def test_a_commit_says_which_failures_were_there_before_it(bot):
    await a_branch(bot, pull="OXXXX", trunk="OOOOX", slow="OOOOO", nightly="....X")
    head, *lines = await of_commit(bot, "E")
    assert head == ("red: 3 of 4 jobs fail", f"/hud/{UPSTREAM}/main")
    assert [text for text, _ in lines] == [
        "nightly / linux / test: failure, no earlier result is known",
        f"pull / linux / test: failure, already since {COMMITS['B'][:8]} Change B (#66)",
        "trunk / linux / test: failure, passed on the commit before",
    ]
    opened = await page_text(bot, lines[1][1].partition("#")[0])
    assert f"pull / linux / test on {COMMITS['E'][:8]}"[:30] in opened
    assert "That cell is not" not in opened
    assert (await of_commit(bot, "A"))[0][0] == "green: 0 of 3 jobs fail"


@SQLITE
async def test_a_commit_of_no_branch_says_nothing_of_the_grid(bot):
    await deliver(bot, push(bot, "A"), job(bot, TEST, "B", "failure"))
    assert await of_commit(bot, "B") == []


@SQLITE
async def test_the_cell_of_an_old_commit_is_found_too(bot):
    names = [f"{number:040x}" for number in range(1, 60)]
    parent = None
    for at, name in enumerate(names):
        await bot.send(*push(bot, name, parent=parent, at=at))
        parent = name
    await deliver(bot, job(bot, TEST, names[1], "failure"))
    _, (_, url) = await section(bot, f"/{UPSTREAM}/commit/{names[1]}", "In the grid of main")
    assert "the open cell" in (await bot.get(url.partition("#")[0]))[1].lower()


@SQLITE
async def test_a_backend_that_fails_is_told_of_in_the_same_way(bot):
    await a_branch(bot, pull="OOOOO")
    for name, conclusion in (("B", "success"), ("C", "failure"), ("E", "failure")):
        await add_job(bot, pr_number=None, event_type="push", head_sha=COMMITS[name], downstream_repo=L3,
                      job_name="build", workflow_name="CI", conclusion=conclusion, run_id=f"90{ord(name)}")  # fmt: skip
    _, line = await of_commit(bot, "E")
    assert line[0] == f"backends / npu / CI / build: failure, already since {COMMITS['C'][:8]} Change C (#67)"


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
    assert await section(bot, page, "Upstream's jobs compared with main") == []
    assert await section(bot, page, "Upstream&#39;s jobs compared with main") == []
    await deliver(bot, *(job(bot, TEST, sha, "failure", workflow=workflow, number=900 + at)
                      for at, workflow in enumerate(("pull", "trunk", "new"))))  # fmt: skip
    text = await page_text(bot, page)
    assert "Upstream's jobs compared with main" in text
    lines = await section(bot, page, "Upstream&#39;s jobs compared with main")
    column = f"/hud/{UPSTREAM}/main?name="
    assert lines[:-1] == [
        ("3 of 5 jobs fail, 1 of them on main too", None),
        ("new / linux / test: failure, no result on main is known", f"{column}new+%2F+linux+%2F+test"),
        ("trunk / linux / test: failure, passes on main; it failed on 1 of its newest 5 commits there",
         f"{column}trunk+%2F+linux+%2F+test"),
        (f"pull / linux / test: failure, fails on main too, since {COMMITS['C'][:8]} Change C (#67)",
         f"{column}pull+%2F+linux+%2F+test"),
        ("the grid of main", f"/hud/{UPSTREAM}/main"),
    ]  # fmt: skip
    assert lines[-1][0] == "compare with main on GitHub"
    assert lines[-1][1].endswith(f"/{UPSTREAM}/compare/main...{sha}")
