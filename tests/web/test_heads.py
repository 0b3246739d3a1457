"""Can every head a pull request ever had be chosen on its page, the newest first?"""

from __future__ import annotations

import re

import pytest

from tests.harness import ALLOWLIST, UPSTREAM
from tests.web.seeing import see


def picked(page):
    """The commits to choose from, as the page shows them."""
    nav = page.partition('<nav class="choice commits"')[2].partition("</nav>")[0]
    return re.findall(r"\?sha=([0-9a-f]{40})", nav)


@pytest.mark.parametrize("pause", [0, 60])
async def test_heads_pushed_while_nobody_was_listed_can_be_chosen(bot, github, tmp_path, pause):
    """`pause`: seconds between two pushes; GitHub's times have no smaller unit."""
    file = tmp_path / "allowlist.yml"
    pull = await github.open_pull(UPSTREAM)
    shas = [pull.head_sha]
    for listed in (True, False, False, True):
        file.write_text(ALLOWLIST if listed else "L1: []\n")
        await bot.wait(600 if pause else 60)
        await bot.get("/oot")
        shas.append(await github.push_commit(pull))
        await bot.wait(pause)
    await bot.settle()
    address = f"/{UPSTREAM}/pull/{pull.number}"
    assert picked((await bot.get(address))[1]) == shas[::-1]
    for sha in shas:
        status, page = await bot.get(f"{address}?sha={sha}")
        assert (status, page.count('aria-current="true"')) == (200, 1)
    _, body = await bot.get(f"/api/oot/pulls/{UPSTREAM}/{pull.number}")
    assert [head["sha"] for head in body["heads"]] == shas[::-1]
    assert [head["current"] for head in body["heads"]] == [True, *[False] * 4]


async def test_a_head_that_came_back_is_the_newest(bot, github):
    pull = await github.open_pull(UPSTREAM)
    first = pull.head_sha
    bot.clock.advance(10)
    second = await github.push_commit(pull)
    bot.clock.advance(10)
    pull.head_sha = first
    await github.edit_title(pull, "Back again")
    await bot.settle()
    assert picked((await bot.get(f"/{UPSTREAM}/pull/{pull.number}"))[1]) == [first, second]


async def test_a_head_it_never_had_leads_back_to_the_pull_request(bot, github):
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    path = f"/{UPSTREAM}/pull/{pull.number}?sha={'f' * 40}"
    text = await see(bot, path, status=404)
    assert f"this pull request has no head {'f' * 40}; its heads: {pull.head_sha[:12]}" in text
    assert '<a href="?">' in (await bot.get(path))[1]
