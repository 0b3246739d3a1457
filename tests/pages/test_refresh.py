"""Pages reload themselves where something runs; those of a fresh installation make sense to whoever opens them first."""

import html
import re
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest

from tests import harness
from tests.command import ootbot
from tests.harness import L2, L3, L4, UPSTREAM
from tests.pages.page_checks import add_job, check_escaped, links, page_text
from tests.pages.test_pages import section
from tests.serving import SQLITE

pytestmark = SQLITE

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


async def test_what_was_never_swept_was_not_swept_in_1970(settings, github, issuer, clock):
    github.faults.add(method="GET", path="/app/hook/deliveries", status=500, times=99)
    async with harness.running(settings, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        await bot.wait(660)
        async with (
            aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser,
            browser.post(f"{bot.url}/admin/sign-in", data={"token": settings.admin_token}) as answer,
        ):
            page = await answer.text()
        assert "reconcile" in page
        assert re.search(r"\d{4,} d ago", page) is None


async def test_a_backend_that_never_answered_does_not_say_that_there_is_no_data(bot, github):
    await github.open_pull(UPSTREAM)
    await bot.settle()
    await bot.wait(24 * 3600 + 61)
    text = await page_text(bot, "/oot")
    row = text[text.index(f"tpu {L4}") : text.index("L3 Check runs")]
    assert "✕ 0 %" in row
    assert "never answered" in row
    assert "no data yet" not in row


async def test_a_backend_that_timed_out_is_not_counted_as_failed(bot, github):
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    await bot.report(bot.dispatch(L2), status="in_progress")
    await bot.wait(6 * 3600 + 61)
    page = (await bot.get(f"/{UPSTREAM}/pull/{pull.number}"))[1]
    assert "0 of 1 passed, 1 timed out" in section(page, L2)
    assert "1 failed" not in section(page, L2)


async def test_a_name_at_the_beginning_of_a_sentence_stays_as_it_is_written(bot):
    page = (await bot.get("/oot/none/such", headers={"Accept": "text/html"}))[1]
    assert '<p class="lead">none/such' in page
    page = (await bot.get("/oot?days=x", headers={"Accept": "text/html"}))[1]
    assert '<p class="lead reason">days must be' in page


async def test_no_task_is_said_to_be_dead_where_none_is(bot):
    code, out, err = await ootbot(bot, "tasks", "list", "--state", "dead")
    assert (code, out, err) == (0, "", "no task is dead\n")
    code, out, _ = await ootbot(bot, "tasks", "list", "--state", "dead", "--json")
    assert (code, out) == (0, "[]\n")
