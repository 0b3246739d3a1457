"""Who gets into the administrator's pages, and what can be done there?"""

import html
import re
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest

from bot.ops.admin_access import SESSION_COOKIE
from tests.harness import L4, UPSTREAM, running
from tests.pages.page_checks import check_escaped, page_text

pytestmark = pytest.mark.logic


TOKEN = {"token": "an admin token of ours"}


@pytest.fixture
async def browser(bot):
    """A browser: it keeps cookies and follows forms."""
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(cookie_jar=jar) as session:
        yield session


async def sign_in(bot, browser):
    async with browser.post(f"{bot.url}/admin/sign-in", data=TOKEN) as answer:
        assert answer.status == 200
        return await answer.text()


async def get(bot, browser, path, *, status=200):
    async with browser.get(bot.url + path) as answer:
        assert answer.status == status, path
        return await answer.text()


def key_of(page):
    return re.search(r'name="key" value="([0-9a-f]{64})"', page)[1]


async def test_a_first_allowlist_that_is_wrong_is_not_said_to_have_a_good_one_before(
    settings, github, issuer, clock, capfd
):
    Path(settings.allowlist).write_text("L5: []\n")
    async with running(settings, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:
            shown = await sign_in(bot, browser)
        for page in (shown, await page_text(bot, "/oot")):
            assert "nobody takes part" in page
            assert "stays in force" not in page
    said = "".join(capfd.readouterr())
    assert "the allowlist is wrong" in said
    assert "stays in force" not in said


async def test_without_signing_in_only_the_form_is_shown(bot):
    for path in ("/admin", "/admin/tasks", "/admin/deliveries", "/admin/deliveries/x"):
        text = await page_text(bot, path, status=401)
        assert "Sign in" in text
        assert "Sweeps" not in text


async def test_a_wrong_token_is_refused_and_guessing_slowed_down(bot, browser):
    async with browser.post(f"{bot.url}/admin/sign-in", data={"token": "wrong"}) as answer:
        assert "That is not the ADMIN_TOKEN" in await answer.text()
    assert SESSION_COOKIE not in {cookie.key for cookie in browser.cookie_jar}
    for _ in range(70):
        async with browser.post(
            f"{bot.url}/admin/sign-in", data={"token": "x"}, allow_redirects=False
        ) as answer:
            status = answer.status
    assert status == 429


async def test_a_form_of_too_many_fields_is_refused(bot, browser):
    for address in ("sign-in", "sign-out", "tasks/1/retry", "deliveries/x/replay"):
        form = "&".join(["a=1"] * 11)
        async with browser.post(f"{bot.url}/admin/{address}", data=form) as answer:
            assert (answer.status, (await answer.json())["error"]) == (400, "invalid_form"), address


async def test_signing_in_gives_a_cookie_that_no_script_and_no_other_site_gets(bot, browser):
    async with browser.post(f"{bot.url}/admin/sign-in", data=TOKEN, allow_redirects=False) as answer:
        assert (answer.status, answer.headers["Location"]) == (303, "/admin")
        said = answer.headers["Set-Cookie"]
    assert "HttpOnly" in said
    assert "SameSite=Strict" in said
    assert "an admin token of ours" not in said
    page = await get(bot, browser, "/admin")
    check_escaped(page)
    for word in ("Deliveries in the last 24 hours", "GitHub budget", "Sweeps", "Silent backends"):
        assert word in page
    async with browser.get(f"{bot.url}/admin") as answer:
        assert answer.headers["Cache-Control"] == "private, no-store"


async def test_the_cookie_runs_out_and_cannot_be_made_longer(bot, browser):
    await sign_in(bot, browser)
    (cookie,) = [one for one in browser.cookie_jar if one.key == SESSION_COOKIE]
    until, _, signature = cookie.value.partition(".")
    forged = f"{int(until) + 10**9}.{signature}"
    assert (await bot.get("/admin", headers={"Cookie": f"{SESSION_COOKIE}={forged}"}))[0] == 401
    assert (await bot.get("/admin", headers={"Cookie": f"{SESSION_COOKIE}={cookie.value}"}))[0] == 200
    bot.clock.advance(13 * 3600)
    assert (await bot.get("/admin", headers={"Cookie": f"{SESSION_COOKIE}={cookie.value}"}))[0] == 401


async def test_a_delivery_is_shown_with_its_payload_and_what_it_caused(bot, browser, github):
    await github.open_pull(UPSTREAM, title="<b>Make it faster</b>", author="octocat")
    await bot.settle()
    await sign_in(bot, browser)
    page = await get(bot, browser, "/admin/deliveries?event=pull_request")
    guid = re.search(r"/admin/deliveries/([0-9a-f-]{36})", page)[1]
    page = await get(bot, browser, f"/admin/deliveries/{guid}")
    check_escaped(page)
    assert "&lt;b&gt;Make it faster&lt;/b&gt;" in page
    assert L4 in page[page.index("What it caused") :]
    async with browser.post(
        f"{bot.url}/admin/deliveries/{guid}/replay", data={"key": key_of(page)}
    ) as answer:
        assert "is handled again" in await answer.text()
    await get(bot, browser, "/admin/deliveries/none", status=404)


async def test_a_delivery_whose_task_another_asked_for_first_does_not_seem_to_have_caused_nothing(
    bot, browser, github
):
    pull = await github.open_pull(UPSTREAM, author="octocat")
    await bot.settle()
    known = {row["guid"] for row in await bot.rows("delivery")}
    for label in ("one", "two"):  # the second asks for the same check runs to be looked at
        await github.label(pull, label)
    await bot.send("star", {}, guid="starred")
    await bot.settle()
    labelled = [row["guid"] for row in await bot.rows("delivery") if row["guid"] not in {*known, "starred"}]
    await sign_in(bot, browser)
    said = []
    for guid in (*labelled, "starred"):
        page = await get(bot, browser, f"/admin/deliveries/{guid}")
        said.append(" ".join(re.sub(r"<[^>]+>", " ", page.split("What it caused")[1]).split()))
    first, second, starred = said
    assert "What joined a task that waited already is not shown." in first
    assert (
        "No task or dispatch of its own: it wrote records only, joined a task that waited already," in second
    )
    assert "Nothing: it was not handled." in starred


async def test_a_dead_task_runs_again_at_a_press(bot, browser):
    async with bot.store.transaction() as tx:
        tx.enqueue("publish", "no/body#1")
    async with bot.store.transaction() as tx:
        dead = "UPDATE task SET state='dead', error='a <script> failed' WHERE kind='publish'"
        await tx.conn.exec_driver_sql(dead)
    await sign_in(bot, browser)
    page = await get(bot, browser, "/admin")
    check_escaped(page)
    assert "a &lt;script&gt; failed" in page
    action = re.search(r'action="(/admin/tasks/\d+/retry)"', page)[1]
    for data in ({}, {"key": "0" * 64}):
        async with browser.post(bot.url + action, data=data) as answer:
            assert answer.status == 403
    async with bot.http.post(bot.url + action, data={"key": key_of(page)}) as answer:
        assert answer.status == 403  # the key alone, without the cookie
    async with browser.post(bot.url + action, data={"key": key_of(page)}) as answer:
        assert "runs again" in await answer.text()
    states = {row["state"] for row in await bot.rows("task") if row["kind"] == "publish"}
    assert states == {"waiting"}


async def test_whoever_presses_a_button_after_signing_out_is_led_to_the_sign_in_page(bot, browser):
    async with bot.store.transaction() as tx:
        tx.enqueue("publish", "no/body#1")
    async with bot.store.transaction() as tx:
        await tx.conn.exec_driver_sql("UPDATE task SET state='dead' WHERE kind='publish'")
    person = {"Accept": "text/html,application/xhtml+xml"}
    await sign_in(bot, browser)
    page = await get(bot, browser, "/admin")
    action = re.search(r'action="(/admin/tasks/\d+/retry)"', page)[1]
    bot.clock.advance(1)
    await sign_in(bot, browser)  # in another tab: the first one's forms are worth nothing any more
    press = {"data": {"key": key_of(page)}, "headers": person}
    async with browser.post(bot.url + action, **press) as answer:
        assert answer.status == 200
        assert "That page was too old, and nothing was done: press again." in await answer.text()
    bot.clock.advance(13 * 3600)
    async with browser.post(bot.url + action, **press, allow_redirects=False) as answer:
        assert (answer.status, answer.headers["Location"]) == (303, "/admin?again=1")
    for pressed in (action, "/admin/sign-out", "/admin/deliveries/none/replay"):
        async with browser.post(bot.url + pressed, **press) as answer:
            said = await answer.text()
            assert answer.status == 401
            assert "You were signed out, and nothing was done. Sign in and press again." in said
            check_escaped(said)
    assert {row["state"] for row in await bot.rows("task") if row["kind"] == "publish"} == {"dead"}


async def test_a_task_that_fails_is_seen_behind_many_that_wait(bot, browser):
    async with bot.store.transaction() as tx:
        tx.enqueue("publish", "no/body#1")
    async with bot.store.transaction() as tx:
        await tx.conn.exec_driver_sql("UPDATE task SET attempts=3, error='refused' WHERE kind='publish'")
        for number in range(150):
            tx.enqueue("publish", f"no/body#{number + 2}")
    await sign_in(bot, browser)
    page = await get(bot, browser, "/admin")
    part = page[page.index("Failed and waiting") :]
    assert "no/body#1<" in part
    assert "no/body#99<" not in part


async def test_signed_in_one_may_read_the_json_that_pages_link_and_change_nothing_by_it(bot, browser):
    await bot.send("star", {}, guid="one")
    await sign_in(bot, browser)
    for path in (
        "/admin",
        "/admin/tasks?state=waiting",
        "/admin/deliveries?event=star",
        "/admin/deliveries/one",
    ):
        (address,) = re.findall(r'<a href="([^"]+)">This page as JSON</a>', await get(bot, browser, path))
        async with browser.get(bot.url + html.unescape(address)) as answer:
            assert (answer.status, (await answer.json())["ok"]) == (200, True)
            assert answer.headers["Cache-Control"] == "no-store"
        assert (await bot.get(html.unescape(address)))[0] == 401
    async with browser.post(f"{bot.url}/api/admin/deliveries/one/replay") as answer:
        assert answer.status == 401


async def test_signed_in_one_sees_what_is_private_and_nobody_else_afterwards(settings, github, issuer, clock):
    kept = replace(settings, page_cache=5)
    async with running(kept, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        await github.open_pull(UPSTREAM)
        await bot.settle()
        repo = {"id": github.state.repo(UPSTREAM).id, "full_name": UPSTREAM, "private": True}
        repo["updated_at"] = "2026-10-01T00:00:00Z"
        await bot.send("repository", {"action": "privatized", "repository": repo})
        await bot.settle()
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(cookie_jar=jar) as browser:
            await sign_in(bot, browser)
            for path in ("/oot", f"/{UPSTREAM}/pull/1"):
                await get(bot, browser, path)
        for path in ("/oot", f"/{UPSTREAM}/pull/1", f"/oot/{L4}", "/oot/levels", "/oot/metrics"):
            assert (await bot.get(path))[0] == 404


async def test_a_page_that_is_kept_is_gone_as_soon_as_its_repository_is_private(
    settings, github, issuer, clock
):
    kept = replace(settings, page_cache=5)
    async with running(kept, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        await github.open_pull(UPSTREAM)
        await bot.settle()
        paths = ("/oot", f"/{UPSTREAM}/pull/1", f"/oot/{L4}", "/oot/levels", "/oot/metrics")
        for path in paths:
            async with bot.http.get(bot.url + path) as answer:
                assert (answer.status, answer.headers["Cache-Control"]) == (200, "private, max-age=5")
        repo = {"id": github.state.repo(UPSTREAM).id, "full_name": UPSTREAM, "private": True}
        repo["updated_at"] = "2026-10-01T00:00:00Z"
        await bot.send("repository", {"action": "privatized", "repository": repo})
        await bot.settle()
        for path in paths:
            assert (await bot.get(path))[0] == 404


async def test_pages_say_so_while_the_database_is_gone(settings, github, issuer, clock):
    kept = replace(settings, page_cache=5)
    async with running(kept, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        if not bot.store.sqlite:
            pytest.skip("a file can be moved away, a server cannot")
        await page_text(bot, "/oot")
        database = Path(bot.store.url.database)
        away = database.rename(database.with_suffix(".away"))
        assert "database cannot be used" in await page_text(bot, "/oot", status=503)
        away.rename(database)
        await page_text(bot, "/oot")


async def test_without_a_token_set_there_is_no_such_page(settings, github, issuer, clock):
    closed = replace(settings, admin_token=None)
    async with running(closed, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        assert "closed" in await page_text(bot, "/admin", status=404)
        async with bot.http.post(f"{bot.url}/admin/sign-in", data={"token": ""}) as answer:
            assert answer.status == 404


async def test_pages_are_kept_for_some_seconds_and_say_whether_they_changed(settings, github, issuer, clock):
    kept = replace(settings, page_cache=5)
    async with running(kept, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        async with aiohttp.ClientSession(auto_decompress=False) as http, http.get(f"{bot.url}/oot") as answer:
            assert answer.headers["Cache-Control"] == "private, max-age=5"
            assert answer.headers["Content-Encoding"] == "gzip"
            etag = answer.headers["ETag"]
        async with bot.http.get(f"{bot.url}/oot", headers={"If-None-Match": etag}) as answer:
            assert (answer.status, await answer.text()) == (304, "")
            assert "script-src 'self'" in answer.headers["Content-Security-Policy"]  # browsers take it over
        await github.open_pull(UPSTREAM)
        await bot.settle()
        await bot.report(bot.dispatch(L4))
        assert "100 %" not in await page_text(bot, "/oot")
        bot.clock.advance(6)
        assert "100 %" in await page_text(bot, "/oot")
