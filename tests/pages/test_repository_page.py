"""What does the home of a repository say, its list of pull requests, and a page that is not there?"""

import pytest

from tests.harness import L3, L4, UPSTREAM
from tests.jobs.branch import deliver, job, push
from tests.pages.page_checks import check_escaped, links, page_text
from tests.pages.reading import ADMIN, read, said_to_be

HOME, LIST = f"/{UPSTREAM}", f"/{UPSTREAM}/pulls"


async def test_the_home_of_a_repository_says_how_everything_stands(bot, pull):
    await deliver(bot, push(bot, "A"), job(bot, "linux / build", "A"), push(bot, "B", branch="old", at=-5))
    await bot.report(bot.dispatch(L4), conclusion="failure")
    await bot.settle()
    text = await page_text(bot, HOME)
    assert "main is green since" in text
    assert "Open pull requests 1" in text
    assert "#1 Make it faster by octocat into main ✕ failed tpu" in text
    assert "1 more branch" in text
    page = (await bot.get(HOME))[1]
    check_escaped(page)
    for path in (f"/hud/{UPSTREAM}/main", f"{HOME}/pull/1", f"/oot/{L3}", LIST):
        assert links(page, path), path
        assert (await bot.get(path))[0] == 200


async def test_broken_jobs_are_red_now_and_lead_to_their_failure(bot):
    pushes = [
        push(bot, name, parent=before, at=at) for at, (name, before) in enumerate(["A-", "BA", "CB", "DC"])
    ]
    await deliver(bot, *pushes, job(bot, "linux / build", "A"))
    await deliver(bot, *(job(bot, "linux / build", name, "failure") for name in "BCD"))
    text = await page_text(bot, HOME)
    assert "main is broken since bb00000" in text
    assert "Red now ✕ pull / linux / build: broken on main since bb00000" in text
    (cell,) = links((await bot.get(HOME))[1], "?cell=")
    assert "The open cell" in (await bot.get(cell))[1]


@pytest.mark.logic
async def test_pull_requests_are_listed_with_gate_and_what_fails(bot, github, pull):
    other = await github.open_pull(UPSTREAM, title="Another", author="hubot")
    await bot.settle()
    await bot.report(bot.dispatch(L4, at=0), conclusion="failure")
    await bot.settle()
    first, second = (await read(bot, f"/api/oot/pulls{HOME}"))["pulls"]
    assert (first["number"], first["gate"], first["failing"]) == (other.number, "waiting", [])
    assert (second["number"], second["gate"], second["failing"]) == (1, "failed", ["tpu"])
    assert (second["author"], second["base_ref"]) == ("octocat", "main")
    page = (await read(bot, f"/api/oot/pulls{HOME}?limit=1"))["next"]
    (last,) = (await read(bot, f"/api/oot/pulls{HOME}?limit=1&before={page}"))["pulls"]
    assert last["number"] == 1
    (mine,) = (await read(bot, f"/api/oot/pulls{HOME}?author=HUBOT"))["pulls"]
    assert mine["number"] == other.number
    await github.merge(pull)
    await bot.settle()
    assert "Make it faster" not in await page_text(bot, LIST)
    assert "Make it faster" in await page_text(bot, f"{LIST}?state=merged")
    assert (await bot.get(f"{LIST}?state=gone"))[0] == 400
    assert (await bot.get("/no/where/pulls"))[0] == 404


@pytest.mark.logic
async def test_the_gate_of_the_list_is_that_of_the_page(bot, github, pull):
    for conclusion in ("failure", "success"):
        await bot.report(bot.dispatch(L4), conclusion=conclusion, attempt=1 if conclusion == "failure" else 2)
        await bot.settle()
        (listed,) = (await read(bot, f"/api/oot/pulls{HOME}"))["pulls"]
        shown = (await read(bot, f"/api/oot/pulls{HOME}/1"))["gate"]
        assert listed["gate"] == shown["state"]


@pytest.mark.logic
async def test_a_page_that_is_not_there_lists_what_is(bot, pull):
    await deliver(bot, push(bot, "A"), push(bot, "B", branch="release/2.9", at=5))
    for path, near in (
        ("/no/where", HOME),
        ("/nowhere", HOME),
        ("/oot/no/backend", f"/oot/{L3}"),
        (f"{HOME}/pull/99", LIST),
        (f"{HOME}/commit/{'0' * 40}", LIST),
        (f"/hud/{UPSTREAM}/gone", f"/hud/{UPSTREAM}/release/2.9"),
        (f"{HOME}/job/99", HOME),
    ):
        status, page = await bot.get(path, headers={"Accept": "text/html"})
        assert status == (200 if "hud" in path else 404), path
        assert near in links(page, near), path
        check_escaped(page)
        assert "Views of" not in page or status == 200


@pytest.mark.logic
async def test_a_pull_request_from_before_the_app_leads_to_its_commit(bot):
    await deliver(bot, push(bot, "A", title="Fuse kernels (#77)"), job(bot, "linux / build", "A"))
    answer = await bot.http.get(f"{bot.url}{HOME}/pull/77", allow_redirects=False)
    assert answer.status == 302
    assert (await bot.get(answer.headers["Location"]))[0] == 200
    assert (await bot.get(f"{HOME}/pull/78"))[0] == 404


@pytest.mark.logic
async def test_nothing_of_a_private_repository_is_told_by_pages_that_are_not_there(bot, github, pull):
    await deliver(bot, push(bot, "A", branch="secret-branch"))
    await said_to_be(bot, github, private=True)
    for path in (HOME, LIST, "/no/where", f"{HOME}/pull/99", "/oot/no/backend", f"{HOME}/job/1"):
        status, page = await bot.get(path, headers={"Accept": "text/html"})
        assert status == 404, path
        assert "secret-branch" not in page
        assert f'href="/{UPSTREAM}"' not in page, path
        assert L4 not in page
    for path in (HOME, LIST):
        assert (await bot.get(path, headers=ADMIN))[0] == 200
