"""Logs of backends on another CI: they stand with the job that the backend reported, as those that GitHub has."""

from __future__ import annotations

import pytest

from tests.evidence.collect.test_uploads import send
from tests.harness import L4, UPSTREAM
from tests.pages.page_checks import failures
from tests.serving import SQLITE

pytestmark = SQLITE
ADMIN = {"Authorization": "Bearer an admin token of ours"}
LOG = b"+ pytest\nFAILED t.py::test_x - boom\n"


@pytest.fixture
async def pull(bot, github):
    """A pull request; GitHub has said that the backend is public."""
    about = {
        "id": github.state.repo(L4).id,
        "full_name": L4,
        "private": False,
        "updated_at": "2026-01-01T00:00:00Z",
    }
    await bot.send("repository", {"action": "publicized", "repository": about})
    made = await github.open_pull(UPSTREAM)
    await bot.settle()
    return made


async def arrives(bot, log=LOG, *, conclusion="failure", job="build"):
    """A log is uploaded, then its job is reported; returns the pages that show it."""
    dispatch = bot.dispatch(L4)
    status, answer = await send(bot, dispatch, log, repo=L4, job=job)
    assert status == 202
    await bot.report(dispatch, conclusion=conclusion)
    await bot.wait(60)
    return f"/{L4}/upload/{answer['upload']}"


async def test_it_is_in_comment_and_check_run_and_on_the_pages_of_the_pull_request(bot, github, pull):
    page = await arrives(bot)
    (comment,) = [one for one in github.comments(pull) if one.app is not None]
    (line,) = [one for one in comment.body.splitlines() if "FAILED t.py" in one]
    assert line.startswith("test · ")  # below the reported job of that name
    assert f"[line 2]({bot.context.settings.url}{page}/log?line=2#L2)" in line
    for place in (f"/{UPSTREAM}/pull/{pull.number}", f"/{UPSTREAM}/commit/{pull.head_sha}"):
        _, shown = await bot.get(place)
        (row,) = failures(shown)
        assert row[0] == "CI / build failed test: FAILED t.py::test_x - boom · line 2"
        assert f'href="{page}"' in shown
    _, shown = await bot.get(page)
    assert "Why it failed" in shown
    assert f'href="/{UPSTREAM}/pull/{pull.number}"' in shown
    _, shown = await bot.get(f"{page}/log")
    assert '<tr id="L2" class="marked">' in shown
    status, text = await bot.get(f"{page}/log.txt")
    assert (status, text) == (200, LOG.decode())
    _, found = await bot.get(f"/api/ci/logs/{UPSTREAM}/commit/{pull.head_sha}?q=boom")
    assert [(one["repo"], len(one["hits"])) for one in found["jobs"]] == [(L4, 1)]
    (signature,) = (await bot.get("/api/ci/failures"))[1]["failures"]
    assert (signature["jobs"], signature["prs"]) == (1, 1)
    _, answer = await bot.get(f"/api/ci/failures/{signature['signature']}")
    assert answer["samples"][0]["repo"] == L4


async def test_the_log_of_a_job_that_passed_is_kept_and_not_classified(bot, pull):
    page = await arrives(bot, conclusion="success")
    assert await bot.rows("ci_verdict") == []
    assert (await bot.get(f"{page}/log"))[0] == 200


async def test_a_log_of_a_job_that_is_never_reported_is_kept_after_a_day(bot, pull):
    _, answer = await send(bot, bot.dispatch(L4), LOG, repo=L4)
    page = f"/{L4}/upload/{answer['upload']}"
    await bot.wait(60)
    assert (await bot.get(f"{page}/log"))[0] == 404
    bot.clock.advance(25 * 3600)
    await bot.settle()
    assert (await bot.get(f"{page}/log"))[0] == 200
    assert await bot.rows("ci_verdict") == []


async def test_of_a_private_backend_nothing_is_shown(bot, github, pull):
    page = await arrives(bot)
    about = {
        "id": github.state.repo(L4).id,
        "full_name": L4,
        "private": True,
        "updated_at": "2030-01-01T00:00:00Z",
    }
    await bot.send("repository", {"action": "privatized", "repository": about})
    await bot.wait(60)
    for path in (page, f"{page}/log", f"{page}/log.txt"):
        assert (await bot.get(path))[0] == 404
        assert (await bot.get(path, headers=ADMIN))[0] == 200
    assert "boom" not in (await bot.get(f"/{UPSTREAM}/pull/{pull.number}"))[1]
    (comment,) = [one for one in github.comments(pull) if one.app is not None]
    assert "the log is private" in comment.body
    assert (await bot.get("/api/ci/failures"))[1]["failures"] == []


async def test_a_public_backends_log_shows_nothing_of_a_private_upstream(bot, github, pull):
    page = await arrives(bot)
    assert f"{UPSTREAM}#{pull.number}" in (await bot.get(page))[1]
    about = {"id": github.state.repo(UPSTREAM).id, "full_name": UPSTREAM, "private": True}
    await bot.send(
        "repository", {"action": "privatized", "repository": about | {"updated_at": "2030-01-01T00:00:00Z"}}
    )
    await bot.wait(60)
    status, shown = await bot.get(page)
    assert (status, "Why it failed" in shown) == (200, True)
    for secret in (f"{UPSTREAM}#", pull.head_sha[:12]):
        assert secret not in shown
    assert f"{UPSTREAM}#{pull.number}" in (await bot.get(page, headers=ADMIN))[1]
