"""Searching the logs of a branch's newest commits: page and JSON, within limits, and how it goes on."""

from __future__ import annotations

from urllib.parse import quote

import pytest
import sqlalchemy as sa

from bot.evidence.logs import search
from bot.ingest.tables import records
from tests.harness import UPSTREAM
from tests.serving import SQLITE

pytestmark = SQLITE
DAY = 86_400


@pytest.fixture
async def branch(bot, github):
    """Four commits of the default branch above two, the oldest first: two jobs failed on each, none on the third."""
    made = []
    await github.push(UPSTREAM)
    await bot.settle(horizon=15)
    bot.clock.advance(DAY)
    for number in range(1, 5):
        sha = await github.push(UPSTREAM)
        jobs = []
        if number != 3:
            run = await github.start_run(UPSTREAM, event="push", head_sha=sha)
            for name in ("a", "b"):
                job = await github.start_job(run, f"{name} {number}")
                await github.finish_job(job, "failure", log=f"first\nboom in {name} of {number}\n")
                jobs.append(job.id)
        await bot.settle(horizon=15)
        bot.clock.advance(DAY)
        made.append((sha, jobs))
    return made


def json_of(pattern, **more):
    return f"/api/ci/logs/{UPSTREAM}?q={quote(pattern)}" + "".join(f"&{name}={more[name]}" for name in more)


def jobs_of(answer):
    return [(one["sha"], one["job_id"]) for one in answer["jobs"]]


def newest_first(branch):
    return [(sha, job) for sha, jobs in reversed(branch) for job in jobs]


async def test_lines_that_match_on_the_newest_commits_of_a_branch(bot, branch):
    status, answer = await bot.get(json_of(r"boom in \w"))
    assert status == 200
    assert jobs_of(answer) == newest_first(branch)
    assert answer["jobs"][0]["hits"] == [{"line_num": 2, "line": "boom in a of 4"}]
    said = ("branch", "commits", "searched_commits", "searched", "next")
    assert [answer[name] for name in said] == ["main", 6, 6, 6, None]
    _, answer = await bot.get(json_of("boom", commits=2))
    assert (answer["commits"], jobs_of(answer)) == (2, newest_first(branch)[:2])
    _, answer = await bot.get(json_of("boom", days=3))  # the two oldest are older by now
    assert (answer["commits"], jobs_of(answer)) == (2, newest_first(branch)[:2])
    assert (await bot.get(json_of("boom in b of 2", branch="main")))[1]["jobs"][0]["sha"] == branch[1][0]


async def test_a_search_that_ends_early_goes_on_where_it_was(bot, branch, github, monkeypatch):
    monkeypatch.setattr(search, "BUDGET", 0.0)  # one log each time
    found, done, before = [], [], {}
    for _ in range(6):
        status, answer = await bot.get(json_of("boom", commits=4, **before))
        assert status == 200, answer
        found += jobs_of(answer)
        done.append(answer["searched_commits"])
        assert (answer["searched"], answer["commits"]) == (1, 4)
        if not found[1:]:  # what is pushed meanwhile shifts nothing
            await github.push(UPSTREAM)
            await bot.settle(horizon=15)
            bot.clock.advance(60)
        before = {"before": answer["next"]}
    assert answer["next"] is None
    assert found == newest_first(branch)
    assert done == [0, 2, 2, 3, 3, 4]


async def test_only_so_many_bytes_and_logs_are_looked_at(bot, branch, monkeypatch):
    monkeypatch.setattr(search, "BYTES_MOST", 30)  # of which each log has 23
    _, answer = await bot.get(json_of("boom"))
    assert (answer["searched"], answer["next"] is not None) == (2, True)
    monkeypatch.setattr(search, "SEARCHED_MOST", 3)
    monkeypatch.setattr(search, "BYTES_MOST", 10**9)
    _, answer = await bot.get(json_of("boom"))
    assert (answer["searched"], answer["searched_commits"]) == (3, 2)
    _, answer = await bot.get(json_of("boom", before=answer["next"]))
    assert (answer["searched"], answer["next"]) == (3, None)


async def test_the_page_says_how_far_it_came(bot, branch, monkeypatch):
    monkeypatch.setattr(search, "BUDGET", 0.0)
    status, page = await bot.get(f"/{UPSTREAM}/logs?q=boom&commits=4&branch=main&days=")
    assert status == 200
    assert "searched 1 log; 0 of 4 commits are done" in page
    sha, job = newest_first(branch)[0]
    assert f'<a href="/{UPSTREAM}/job/{job}/log?line=2#L2">2</a>' in page
    assert f'<a href="/{UPSTREAM}/commit/{sha}">' in page
    (after,) = [part.split('"')[0] for part in page.split('href="')[1:] if "before=" in part.split('"')[0]]
    _, page = await bot.get(after.replace("&amp;", "&"))
    assert "boom in b of 4" in page
    assert "boom" not in (await bot.get(f"/{UPSTREAM}/logs"))[1]
    _, page = await bot.get(f"/{UPSTREAM}/commit/{sha}/logs?q=boom")
    assert f'href="/{UPSTREAM}/logs?q=boom"' in page


async def test_what_is_refused(bot, branch):
    for more in ({"commits": 201}, {"days": 91}, {"before": "x"}):
        assert (await bot.get(json_of("boom", **more)))[0] == 400
    assert (await bot.get(json_of("(")))[0] == 400
    assert (await bot.get(f"/api/ci/logs/{UPSTREAM}"))[0] == 400
    assert (await bot.get(json_of("boom", branch="none")))[0] == 404
    assert (await bot.get("/api/ci/logs/org/unknown?q=boom"))[0] == 404
    async with bot.store.transaction() as tx:
        await tx.run(sa.update(records["repository"]).values(private=True))
    assert (await bot.get(json_of("boom")))[0] == 404
    assert (await bot.get(f"/{UPSTREAM}/logs"))[0] == 404
