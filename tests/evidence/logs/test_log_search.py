"""Searching the logs of a commit: page and JSON, within its limits."""

from __future__ import annotations

from urllib.parse import quote

import pytest
import re2
import sqlalchemy as sa

from bot.evidence.logs import search
from bot.ingest.tables import records
from tests.harness import UPSTREAM
from tests.serving import SQLITE

pytestmark = SQLITE
AT = "2026-11-22T10:00:00.1234567Z "


@pytest.fixture
async def commit(bot, github, logs):
    """A commit with three failed jobs; the log of the n-th says so in line 3,000."""
    run = await github.start_run(UPSTREAM, event="pull_request", head_branch="topic")
    jobs = []
    for number in range(1, 4):
        job = await github.start_job(run, f"test {number}")
        lines = [f"{AT}\x1b[1mline {n} of {number}\x1b[0m\n" for n in range(1, 6001)]
        lines[2999] = f"{AT}<b>boom</b> in \x1b[31mjob {number}\x1b[0m\r\n"
        await github.finish_job(job, "failure", log="".join(lines))
        jobs.append(job)
    await bot.settle(horizon=15)
    run.jobs_made = jobs
    return run


def json_of(run, pattern, more=""):
    return f"/api/ci/logs/{UPSTREAM}/commit/{run.head_sha}?q={quote(pattern)}{more}"


async def test_lines_that_match_in_all_logs_of_a_commit(bot, commit):
    status, answer = await bot.get(json_of(commit, r"^<b>boom</b> in job \d$"))
    assert status == 200
    assert (answer["searched"], answer["total"], answer["next"]) == (3, 3, None)
    assert [(one["job_id"], one["hits"], one["more"]) for one in answer["jobs"]] == [
        (job.id, [{"line_num": 3000, "line": f"<b>boom</b> in job {number}"}], False)
        for number, job in enumerate(commit.jobs_made, 1)
    ]
    _, answer = await bot.get(json_of(commit, r"^line (1|6000) of 2$"))
    (one,) = answer["jobs"]
    assert [hit["line_num"] for hit in one["hits"]] == [1, 6000]
    assert (await bot.get(json_of(commit, "nowhere")))[1]["jobs"] == []
    status, page = await bot.get(f"/{UPSTREAM}/commit/{commit.head_sha}/logs?q=boom")
    assert status == 200
    job = commit.jobs_made[1]
    assert f'<a href="/{UPSTREAM}/job/{job.id}/log?line=3000#L3000">3000</a>' in page
    assert "&lt;b&gt;boom&lt;/b&gt; in job 2" in page
    assert "searched 3 of 3 logs" in page
    assert "/logs?q=boom" not in (await bot.get(f"/{UPSTREAM}/commit/{commit.head_sha}/logs"))[1]


async def test_the_commit_and_its_runs_lead_to_the_search(bot, commit):
    search = f"/{UPSTREAM}/commit/{commit.head_sha}/logs"
    for path, to in (
        (f"commit/{commit.head_sha}", search),
        (f"run/{commit.id}", f"{search}?run={commit.id}"),
    ):
        _, page = await bot.get(f"/{UPSTREAM}/{path}")
        assert f'href="{to}"' in page


async def test_the_logs_of_one_run_alone(bot, github, logs, commit):
    other = await github.start_run(
        UPSTREAM, head_sha=commit.head_sha, event="pull_request", head_branch="topic"
    )
    job = await github.start_job(other, "lint")
    await github.finish_job(job, "failure", log=f"{AT}boom elsewhere\n")
    await bot.settle(horizon=15)
    assert len((await bot.get(json_of(commit, "boom")))[1]["jobs"]) == 4
    _, answer = await bot.get(json_of(commit, "boom", f"&run={other.id}"))
    assert (answer["total"], [one["job_id"] for one in answer["jobs"]]) == (1, [job.id])
    _, page = await bot.get(f"/{UPSTREAM}/commit/{commit.head_sha}/logs?q=boom&run={other.id}")
    assert f'name="run" value="{other.id}"' in page
    assert "searched 1 of 1 log" in page
    assert (await bot.get(json_of(commit, "boom", "&run=77")))[0] == 404


async def test_twenty_lines_of_a_job(bot, commit):
    _, answer = await bot.get(json_of(commit, "line"))
    assert [(len(one["hits"]), one["more"]) for one in answer["jobs"]] == [(20, True)] * 3


async def test_a_search_that_ends_early_goes_on_where_it_was(bot, commit, monkeypatch):
    monkeypatch.setattr(search, "BUDGET", 0.0)
    _, answer = await bot.get(json_of(commit, "boom"))
    assert (answer["searched"], answer["total"], answer["next"], len(answer["jobs"])) == (1, 3, 2, 1)
    _, page = await bot.get(f"/{UPSTREAM}/commit/{commit.head_sha}/logs?q=boom&from=2")
    assert "searched 2 of 3 logs" in page
    assert f"/{UPSTREAM}/commit/{commit.head_sha}/logs?q=boom&amp;from=3" in page
    _, answer = await bot.get(json_of(commit, "boom", "&from=3"))
    assert (answer["searched"], answer["next"]) == (3, None)
    assert [one["job_id"] for one in answer["jobs"]] == [commit.jobs_made[2].id]


async def test_patterns_that_are_refused(bot, commit):
    for pattern, word in (("(?=x)", "RE2"), ("x" * 501, "500"), ("x*", "empty"), ("(", "RE2")):
        status, answer = await bot.get(json_of(commit, pattern))
        assert (status, answer["error"]) == (400, "invalid_parameter")
        assert word in answer["detail"]
        assert (await bot.get(f"/{UPSTREAM}/commit/{commit.head_sha}/logs?q={quote(pattern)}"))[0] == 400
    assert (await bot.get(json_of(commit, "x" * 500)))[0] == 200
    assert (await bot.get(f"/api/ci/logs/{UPSTREAM}/commit/{commit.head_sha}"))[0] == 400


async def test_ten_searches_a_minute(bot, commit, clock):
    for _ in range(10):
        assert (await bot.get(json_of(commit, "boom")))[0] == 200
    async with bot.http.get(bot.url + json_of(commit, "boom")) as answer:
        assert (answer.status, answer.headers["Retry-After"]) == (429, "60")
    assert (await bot.get(f"/{UPSTREAM}/commit/{commit.head_sha}/logs?q=boom"))[0] == 429
    assert (await bot.get(f"/{UPSTREAM}/commit/{commit.head_sha}/logs"))[0] == 200
    clock.advance(61)
    assert (await bot.get(json_of(commit, "boom")))[0] == 200


async def test_no_log_of_a_private_repository_is_searched(bot, commit):
    assert (await bot.get(f"/{UPSTREAM}/commit/{'0' * 40}/logs"))[0] == 404
    async with bot.store.transaction() as tx:
        await tx.run(sa.update(records["repository"]).values(private=True))
    assert (await bot.get(json_of(commit, "boom")))[0] == 404
    assert (await bot.get(f"/{UPSTREAM}/commit/{commit.head_sha}/logs"))[0] == 404


async def test_what_a_stranger_typed_is_compiled_in_the_child_only(bot, commit):
    compiled = re2._Regexp._make.cache_info().misses
    for number in range(4):
        status, answer = await bot.get(json_of(commit, f"b(?:o{{2}}|{number})m"))
        assert (status, len(answer["jobs"])) == (200, 3)
    status, answer = await bot.get(json_of(commit, "b(oom"))
    assert (status, answer["error"]) == (400, "invalid_parameter")
    assert "missing )" in answer["detail"]
    assert re2._Regexp._make.cache_info().misses == compiled
