"""What can the administrator do about failures, and see of how well they are explained?"""

import aiohttp
import pytest

from bot.core.json_fields import iso_time
from tests.evidence.logs.conftest import bot, logs  # noqa: F401 - fixtures
from tests.harness import L3, UPSTREAM
from tests.ops.test_admin_pages import get, key_of, sign_in
from tests.serving import SQLITE

pytestmark = SQLITE
ISSUE = "https://github.com/org/project/issues/7"


@pytest.fixture
async def browser(bot):  # noqa: F811
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        yield session


async def becomes(bot, job, *, private):  # noqa: F811
    bot.clock.advance(60)
    at = iso_time(bot.clock.now())
    about = {"id": job.run.repo.id, "full_name": UPSTREAM, "private": private, "updated_at": at}
    await bot.send("repository", {"action": "privatized" if private else "publicized", "repository": about})
    await bot.settle()


async def test_a_failure_is_tied_to_an_issue(bot, browser, logs):  # noqa: F811
    job = await logs.arrives("FAILED t.py::test_x\n")
    signature = (await bot.get("/api/ci/failures"))[1]["failures"][0]["signature"]
    await sign_in(bot, browser)
    key = key_of(await get(bot, browser, "/admin"))

    async def press(**form):
        async with browser.post(bot.url + "/admin/failures", data=form) as answer:
            return answer.status, await answer.text()

    assert (await press(signature=signature, issue_url=ISSUE))[0] == 403
    assert "address of an issue" in (await press(key=key, signature=signature, issue_url="javascript:x"))[1]
    assert "no failure" in (await press(key=key, signature="0" * 64, issue_url=ISSUE))[1]
    assert "is tied to the issue" in (await press(key=key, signature=signature, issue_url=ISSUE))[1]
    for path in (f"/failures/{signature}", f"/{UPSTREAM}/job/{job.id}"):
        assert f'href="{ISSUE}"' in (await bot.get(path))[1]
    _, answer = await bot.get(f"/api/ci/failures/{signature}")
    assert answer["failure"]["issue_url"] == ISSUE
    await becomes(bot, job, private=True)  # the only job of that failure that was public
    assert (await bot.get(f"/failures/{signature}"))[0] == 404
    await becomes(bot, job, private=False)
    again = await logs.arrives("FAILED t.py::test_x\n")
    assert f'href="{ISSUE}"' in (await bot.get(f"/{UPSTREAM}/job/{again.id}"))[1]
    assert f'href="{ISSUE}"' in (await bot.get(f"/failures/{signature}"))[1]
    assert "tied to no issue" in (await press(key=key, signature=signature, issue_url=""))[1]
    assert ISSUE not in (await bot.get(f"/failures/{signature}"))[1]


async def test_an_issue_about_a_private_failure_is_shown_there_only(bot, browser, logs):  # noqa: F811
    first = await logs.arrives("nothing that a rule knows\n")
    await becomes(bot, first, private=True)
    own = await logs.arrives("FAILED t.py::test_x\n")
    (verdict,) = await logs.verdicts(own)
    await sign_in(bot, browser)
    form = {"key": key_of(await get(bot, browser, "/admin")), "signature": verdict["signature"]}
    async with browser.post(bot.url + "/admin/failures", data=form | {"issue_url": ISSUE}) as answer:
        assert "is tied to the issue" in await answer.text()
    assert ISSUE in await get(bot, browser, f"/{UPSTREAM}/job/{own.id}")
    public = await logs.arrives("FAILED t.py::test_x\n", repo=L3)
    assert (await logs.verdicts(public))[0]["signature"] == verdict["signature"]
    status, page = await bot.get(f"/{L3}/job/{public.id}")
    assert (status, ISSUE in page) == (200, False)


async def test_of_how_many_failed_jobs_it_is_known_why(bot, browser, github, logs):  # noqa: F811
    for log in ("FAILED t.py::test_x\n", "nothing that a rule knows\n", "##[error]x\n"):
        await logs.arrives(log)
    github.faults.add(path="/logs$", status=410)
    await logs.arrives("##[error]gone\n")
    _, text = await bot.get("/metrics")
    assert 'ootbot_failed_jobs{verdict="named"} 1.0' in text
    assert 'ootbot_failed_jobs{verdict="generic"} 2.0' in text
    assert 'ootbot_failed_jobs{verdict="no_log"} 1.0' in text
    assert 'ootbot_verdicts_total{kind="none"}' in text
    page = await sign_in(bot, browser)
    assert "Collecting of upstream and backends (CI=upstream,backends)" in page
    assert "the rules say why for 1 (25.0 %), 2 are generic or match no rule, 1 have no log (25.0 %)" in page
