"""Are deliveries taken at once while pages are being made, and what becomes of pages that cannot be made?"""

import asyncio
import contextlib
import threading
import time

import pytest
import sqlalchemy as sa
from aiohttp import ClientError, ClientSession, CookieJar, web

from bot.app import make_app
from bot.web.page_cache import MOST_RENDERED_AT_ONCE, RENDER_THREAD, RenderThread, in_render_thread
from tests.harness import UPSTREAM, UPSTREAM_ID, replace
from tests.process import PATIENCE
from tests.serving import POSTGRES, serving
from tests.workers import eventually

BACKENDS = 400
PRIVATE = "some/name"


@pytest.mark.logic
async def test_pages_are_made_in_a_thread_of_their_own(bot, tmp_path):
    listed = "".join(f"  - org/backend-{number}\n" for number in range(BACKENDS))
    (tmp_path / "allowlist.yml").write_text(f"L2:\n{listed}")
    await bot.wait(600)
    began = time.thread_time(), time.process_time()
    async with bot.http.get(bot.url + "/oot/levels") as answer:
        assert "org/backend-399" in await answer.text()
    here, everywhere = time.thread_time() - began[0], time.process_time() - began[1]
    assert here < everywhere / 2


@pytest.mark.logic
async def test_a_delivery_does_not_wait_for_a_page(bot):
    async with page_that_hangs(bot) as (seen, let_go):
        issue = {"action": "opened", "repository": {"id": UPSTREAM_ID, "full_name": UPSTREAM}}
        async with asyncio.timeout(PATIENCE):
            assert (await seen.send("issues", issue))[0] == 202
        let_go.set()


@pytest.mark.logic
async def test_pages_in_the_making_end_with_the_bot(bot):
    async with serving(bot, make_app(bot.context)) as seen:
        asked = [asyncio.create_task(seen.get("/oot/levels")) for _ in range(20)]
        await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        assert "pages" in names_of_threads()
    await eventually(gone, "the end of the thread")
    assert all(
        isinstance(end, tuple | OSError | ClientError)
        for end in await asyncio.gather(*asked, return_exceptions=True)
    )


def names_of_threads():
    return [one.name for one in threading.enumerate()]


@contextlib.asynccontextmanager
async def unread(bot):
    """Whoever reads the allowlist waits until the block ends."""
    async with bot.store.transaction() as tx:
        await tx.run(sa.text("LOCK TABLE allowlist_version IN ACCESS EXCLUSIVE MODE"))
        yield


async def hanging(bot, asked):
    """Have as many pages hang as are made at once; returns those who wait for them."""
    waiting = [asyncio.create_task(asked(number)) for number in range(MOST_RENDERED_AT_ONCE)]
    locks = sa.text(
        "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )

    async def all_hang():
        async with bot.store.read() as tx:
            return len(await tx.rows(locks)) == MOST_RENDERED_AT_ONCE

    await eventually(all_hang, "pages that hang")
    return waiting


@POSTGRES
async def test_a_page_is_made_although_the_database_has_hung_up_meanwhile(bot):
    cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
    assert (await bot.get("/oot"))[0] == 200
    async with bot.store.transaction() as tx:
        await tx.run(sa.text(f"{cut} AND datname = current_database()"))
    assert (await bot.get("/oot"))[0] == 200


@POSTGRES
async def test_who_waits_too_long_for_a_page_is_told_to_come_back(bot):
    app = make_app(bot.context)
    app[RENDER_THREAD] = RenderThread(bot.store, patience=0.2)
    async with serving(bot, app) as seen:
        async with unread(bot):
            waiting = await hanging(bot, lambda number: seen.get(f"/oot?days={number + 1}"))
            async with bot.http.get(seen.url + "/oot", headers={"Accept": "text/html"}) as answer:
                assert (answer.status, answer.headers["Retry-After"]) == (503, "5")
                assert "come back" in await answer.text()
            status, body = await seen.get("/api/oot/summary")
            assert (status, body["error"]) == (503, "busy")
            _, document = await seen.get("/api/openapi.json")
            told = document["paths"]["/api/oot/summary"]["get"]["responses"]["503"]
            assert "`busy`" in told["description"]
            assert (await seen.get("/healthz"))[0] == 200
        assert [status for status, _ in await asyncio.gather(*waiting)] == [200] * MOST_RENDERED_AT_ONCE
        assert (await seen.get("/oot"))[0] == 200


@POSTGRES
async def test_who_runs_the_bot_does_not_wait_behind_readers(bot):
    app = make_app(bot.context)
    app[RENDER_THREAD] = RenderThread(bot.store, patience=0.2)
    async with serving(bot, app) as seen, ClientSession(cookie_jar=CookieJar(unsafe=True)) as browser:
        async with unread(bot):
            waiting = await hanging(bot, lambda number: seen.get(f"/oot?days={number + 1}"))
            async with browser.get(seen.url + "/admin/tasks") as answer:
                assert answer.status == 503
            token = {"token": "an admin token of ours"}
            await browser.post(seen.url + "/admin/sign-in", data=token, allow_redirects=False)
            async with browser.get(seen.url + "/admin/tasks") as answer:
                assert answer.status == 200
                assert "Tasks" in await answer.text()
        await asyncio.gather(*waiting)


@POSTGRES
async def test_many_who_wait_for_the_same_page_do_not_wait_one_after_the_other(bot):
    app = make_app(replace(bot.context, settings=replace(bot.context.settings, page_cache=60)))
    app[RENDER_THREAD] = RenderThread(bot.store, patience=0.5)
    async with serving(bot, app) as seen:
        async with unread(bot):
            waiting = await hanging(bot, lambda number: seen.get(f"/oot?days={number + 1}"))
            async with asyncio.timeout(PATIENCE / 2):
                answers = await asyncio.gather(*(seen.get("/oot/levels") for _ in range(60)))
        assert {status for status, _ in answers} == {503}
        await asyncio.gather(*waiting)


@POSTGRES
async def test_no_page_is_made_for_somebody_who_has_gone(bot):
    app, made = make_app(bot.context), []

    @in_render_thread
    async def counted(request):
        made.append(request.path)
        return web.Response()

    app.router.add_get("/counted/{number}", counted)
    async with serving(bot, app) as seen:
        async with unread(bot):
            waiting = await hanging(bot, lambda number: seen.get(f"/oot?days={number + 1}"))
            gone = [asyncio.create_task(seen.get(f"/counted/{number}")) for number in range(10)]
            await asyncio.wait(gone, timeout=0.2)
            for one in gone:
                one.cancel()
            await asyncio.gather(*gone, return_exceptions=True)
            await seen.get("/healthz")
        await asyncio.gather(*waiting)
        assert (await seen.get("/counted/last"))[0] == 200
    assert made == ["/counted/last"]


@contextlib.asynccontextmanager
async def page_that_hangs(bot):
    """The bot while it makes a page that takes its thread until it is let go."""
    app, let_go, hangs = make_app(bot.context), threading.Event(), threading.Event()

    @in_render_thread
    async def hanging(_request):
        hangs.set()
        let_go.wait(PATIENCE)
        return web.Response()

    app.router.add_get("/hanging", hanging)
    try:
        async with serving(bot, app) as seen:
            asked = asyncio.create_task(seen.get("/hanging"))
            await asyncio.to_thread(hangs.wait, PATIENCE)
            yield seen, let_go
    finally:
        let_go.set()
        await asyncio.gather(asked, return_exceptions=True)


@pytest.mark.logic
async def test_a_page_that_hangs_does_not_keep_the_bot_from_ending(bot):
    async with asyncio.timeout(PATIENCE / 2), page_that_hangs(bot):
        pass
    await eventually(gone, "the page to be given up")


async def gone():
    return "pages" not in names_of_threads()


@POSTGRES
async def test_a_page_made_while_a_repository_was_public_is_not_kept_for_when_it_is_private(bot, clock):
    async def becomes(private, second):
        about = {
            "id": 70,
            "full_name": PRIVATE,
            "private": private,
            "updated_at": f"2026-10-01T00:00:{second:02d}Z",
        }
        action = "privatized" if private else "publicized"
        await bot.send("repository", {"action": action, "repository": about})
        await bot.worker.apply()

    head = {"sha": "a" * 40, "ref": "topic", "repo": None}
    pull = {"id": 7, "number": 5, "state": "open", "title": "Secret", "head": head, "base": {}}
    about = {"id": 70, "full_name": PRIVATE}
    await bot.send("pull_request", {"action": "edited", "pull_request": pull, "repository": about})
    await becomes(True, 1)
    kept = replace(bot.context, settings=replace(bot.context.settings, page_cache=60))
    async with serving(bot, make_app(kept)) as seen:
        async with unread(bot):
            waiting = await hanging(bot, lambda number: seen.get(f"/oot?days={number + 1}"))
            asked = asyncio.create_task(seen.get(f"/{PRIVATE}/pull/5"))
            await asyncio.wait([asked], timeout=0.3)
            await becomes(False, 2)
        await asyncio.gather(*waiting)
        assert "Secret" in (await asked)[1]
        await becomes(True, 3)
        assert (await seen.get(f"/{PRIVATE}/pull/5"))[0] == 404
