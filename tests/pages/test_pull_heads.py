"""Every head a pull request ever had can be chosen on its page, the newest first."""

import re

import msgspec
import pytest

from bot.ingest import inbox
from bot.ingest.inbox import Incoming
from tests.harness import ALLOWLIST, UPSTREAM
from tests.pages.page_checks import page_text

MOST_BYTES = 155_000  # of a page


def picked(page):
    """The commits to choose from, as the page shows them."""
    return re.findall(r"\?sha=([0-9a-f]{40})", choice(page))


def choice(page):
    """The part of the page in which they are."""
    return page.partition('<nav class="choice commits"')[2].partition("</nav>")[0]


@pytest.mark.logic
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
        status, page = await bot.get(f"/{UPSTREAM}/commit/{sha}")  # leads to the pull request
        assert (status, choice(page).count('aria-current="true"'), sha in page) == (200, 1, True)
    _, body = await bot.get(f"/api/oot/pulls/{UPSTREAM}/{pull.number}")
    assert [head["sha"] for head in body["heads"]] == shas[::-1]
    assert [head["current"] for head in body["heads"]] == [True, *[False] * 4]


@pytest.mark.logic
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


@pytest.mark.logic
async def test_a_head_it_never_had_leads_back_to_the_pull_request(bot, github):
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    path = f"/{UPSTREAM}/pull/{pull.number}?sha={'f' * 40}"
    text = await page_text(bot, path, status=404)
    assert f"this pull request has no head {'f' * 40}; its heads: {pull.head_sha[:12]}" in text
    assert '<a href="?">' in (await bot.get(path))[1]


@pytest.mark.logic
async def test_a_head_told_late_stands_where_it_was_pushed(bot, github):
    pull = await github.open_pull(UPSTREAM)
    shas, door = [pull.head_sha], github.app.webhook_url
    for lost in (True, False, False):
        bot.clock.advance(60)
        github.app.webhook_url = f"{door}/nowhere" if lost else door
        shas.append(await github.push_commit(pull))
        await bot.settle()
    github.app.webhook_url = door
    for delivery in [one for one in github.deliveries if not one.ok and one.event == "pull_request"]:
        await github.redeliver(delivery)
    await bot.settle()
    assert picked((await bot.get(f"/{UPSTREAM}/pull/{pull.number}"))[1]) == shas[::-1]


def told(sha, *, repository, name, minute):
    """A pull request with this head, as a repository of that id and name tells of it."""
    at = f"2026-10-01T00:{minute:02d}:00Z"
    head = {"sha": sha, "ref": "topic", "repo": None}
    pull = {"id": repository + 1, "number": 5, "state": "open", "head": head, "base": {}, "updated_at": at}
    about = {"id": repository, "full_name": name, "private": False}
    return {"action": "edited", "pull_request": pull, "repository": about}


@pytest.mark.logic
async def test_heads_belong_to_the_repository_whatever_it_is_called(bot):
    first, second, others = "a" * 40, "b" * 40, "c" * 40
    await bot.send("pull_request", told(first, repository=70, name="old/name", minute=1))
    await bot.send("pull_request", told(second, repository=70, name="new/name", minute=2))
    await bot.settle()
    assert picked((await bot.get("/new/name/pull/5"))[1]) == [second, first]
    await bot.send("pull_request", told(others, repository=80, name="old/name", minute=3))
    await bot.settle()
    assert picked((await bot.get("/old/name/pull/5"))[1]) == [others]


@pytest.mark.logic
@pytest.mark.parametrize("odd", ["../../admin", "<b>" + "x" * 20_000, " ", "main", "a" * 41])
async def test_what_is_no_commit_is_no_head_to_choose(bot, odd):
    await bot.send("pull_request", told(odd, repository=70, name="some/name", minute=1))
    await bot.send("pull_request", told("b" * 40, repository=70, name="some/name", minute=2))
    await bot.settle()
    status, body = await bot.get("/api/oot/pulls/some/name/5")
    assert (status, [head["sha"] for head in body["heads"]]) == (200, ["b" * 40])
    assert {row["state"] for row in await bot.rows("delivery")} == {"handled"}


@pytest.mark.logic
async def test_a_pull_request_of_a_thousand_heads_has_a_small_page(bot):
    one = told("b" * 40, repository=70, name="some/name", minute=2)
    async with bot.store.transaction() as tx:
        for number in range(1_000):
            one["pull_request"]["head"]["sha"] = f"{number:040x}"
            body = msgspec.json.encode(one)
            await inbox.store_delivery(tx, Incoming(guid=f"g{number}", event="pull_request", body=body))
    await bot.settle()
    _, page = await bot.get("/some/name/pull/5")
    assert page.count("?sha=") == 1_000
    assert len(page.encode()) < MOST_BYTES
