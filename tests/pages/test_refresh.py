"""Pages reload themselves where something runs or when asked to; it can always be stopped."""

import html
import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.harness import L2, L3, L4, UPSTREAM
from tests.pages.page_checks import add_job, check_escaped, links, page_text
from tests.serving import SQLITE

pytestmark = SQLITE  # addresses and pages: no database has a say

WALL = ("/oot", f"/oot/{L4}", "/oot/metrics")
COMMIT = f"/{UPSTREAM}/commit/{'b' * 40}"


async def look(bot, path, *, status=200):
    """A page, and after how many seconds it refreshes; None: never."""
    answer, page = await bot.get(path)
    assert answer == status, page
    check_escaped(page)
    found = re.search(r'<meta http-equiv="refresh" content="(\d+)">', page)
    return page, found and int(found[1])


async def follow(bot, path, page, words):
    """The address a link on a page leads to, and what is there."""
    link = re.search(rf'<a href="([^"]*)">{words}</a>', page)
    assert link, f"{path} has no {words!r}"
    there = urlsplit(path).path + html.unescape(link[1]).removesuffix("?")
    return there, *(await look(bot, there))


@pytest.mark.parametrize("path", WALL)
async def test_a_page_for_a_wall_is_kept_fresh_on_demand_and_stopped_again(bot, path):
    await add_job(bot)
    page, seconds = await look(bot, path + "?days=7")
    assert seconds is None
    wall, page, seconds = await follow(bot, path, page, "keep fresh")
    assert (urlsplit(wall).path, seconds) == (path, 60)
    assert "days=7" in wall
    assert "every 60 s" in await page_text(bot, wall)
    still, page, seconds = await follow(bot, path, page, "stop refreshing")
    assert (seconds, still) == (None, path + "?days=7")
    assert "keep fresh" in page


@pytest.mark.parametrize("path", WALL)
async def test_what_leads_to_the_same_page_keeps_it_fresh(bot, path):
    for number in range(40):
        await add_job(bot, downstream_repo=f"org/chip{number}")
    for number in range(20):
        await add_job(bot, job_name=f"other {chr(97 + number)}x")
    for query in (
        "days=7&refresh=90",
        "days=7&refresh=90&q=nothing",
        "days=7&tab=trunk&refresh=90&columns=all",
    ):
        page, seconds = await look(bot, f"{path}?{query}")
        assert seconds == 90
        same = [
            one
            for one in (*links(page, path + "?"), *links(page, "?cell="))
            if urlsplit(one).path in {path, ""}
        ]
        assert len(same) >= 4
        assert [one for one in same if "refresh=90" not in one] == []
        assert page.count('<form class="filters"') == page.count(
            '<input type="hidden" name="refresh" value="90">'
        )


async def test_a_pull_request_looks_again_while_something_runs_unless_told_not_to(bot, github, pull):
    path = f"/{UPSTREAM}/pull/{pull.number}"
    await github.push_commit(pull)
    await bot.settle()
    page, seconds = await look(bot, path)
    assert seconds == 15
    still, page, seconds = await follow(bot, path, page, "stop refreshing")
    assert seconds is None
    assert "running" in page or "queued" in page
    heads = links(page, "sha=")
    assert len(heads) == 2
    assert all("refresh=off" in one for one in heads)
    again, page, seconds = await follow(bot, still, page, "keep fresh")
    assert seconds == 15
    for backend in (L2, L3, L4):
        await bot.report(bot.dispatch(backend), conclusion="failure")
    await bot.settle()
    page, seconds = await look(bot, again)
    assert seconds is None
    assert (await follow(bot, path, page, "keep fresh"))[2] == 60


async def test_a_commit_looks_again_while_something_runs_unless_told_not_to(bot):
    about = {"pr_number": None, "event_type": "push", "head_sha": "b" * 40, "delivery_id": "e"}
    await add_job(bot, status="in_progress", conclusion=None, completed_at=None, **about)
    for number in range(20):
        await add_job(bot, downstream_repo=f"org/chip{number}", **about)
    page, seconds = await look(bot, COMMIT)
    assert seconds == 30
    _, page, seconds = await follow(bot, COMMIT, page, "stop refreshing")
    assert seconds is None
    others = links(page, "backend=")
    assert others
    assert all("refresh=off" in one for one in others)


@pytest.mark.parametrize("value", ["14", "3601", "0", "-60", "1e3", "on", "٦٠"])
async def test_a_wrong_time_is_refused_with_the_allowed_range(bot, pull, value):
    said = "refresh must be off or a whole number of seconds from 15 to 3,600"
    for path in (*WALL, f"/{UPSTREAM}/pull/{pull.number}"):
        page, seconds = await look(bot, f"{path}?refresh={value}", status=400)
        assert said in page
        assert seconds is None


async def test_a_screen_on_a_wall_recovers_from_a_failure_by_itself(bot):
    if not bot.store.sqlite:
        pytest.skip("a file can be moved away, a server cannot")
    database = Path(bot.store.url.database)
    away = database.rename(database.with_suffix(".away"))
    wall = "/oot?days=7&refresh=60"
    page, seconds = await look(bot, wall, status=503)
    assert seconds == 30
    stop = re.search(r'<a href="([^"]*)">stop refreshing</a>', page)[1]
    _, seconds = await look(bot, "/oot" + html.unescape(stop), status=503)
    assert seconds is None
    away.rename(database)
    assert (await look(bot, wall))[1] == 60
