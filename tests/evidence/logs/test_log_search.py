"""What people see of logs: verdicts on pages, lines of the log, and searching the logs of a commit."""

from __future__ import annotations

from urllib.parse import quote

import pytest
import re2
import sqlalchemy as sa

from bot.evidence.collect.blobs import BLOBS
from bot.evidence.logs import search
from bot.ingest.tables import records
from tests.harness import UPSTREAM
from tests.pages.page_checks import failures
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


async def test_a_job_says_why_it_failed(bot, logs):
    job = await logs.arrives("+ pytest\nFAILED tests/test_a.py::test_b - <b>boom</b>\n")
    status, page = await bot.get(f"/{UPSTREAM}/job/{job.id}")
    assert status == 200
    assert "Why it failed" in page
    assert "test · FAILED tests/test_a.py::test_b - &lt;b&gt;boom&lt;/b&gt; · line 2" in page
    assert f"/{UPSTREAM}/job/{job.id}/log?line=2#L2" in page
    assert f"/{UPSTREAM}/job/{job.id}/log.txt" in page
    lines = [line for line in page.splitlines() if '<td class="mono">' in line]
    assert ["+ pytest</td>" in lines[0], 'class="marked"' in lines[0]] == [True, False]
    assert ["&lt;b&gt;boom&lt;/b&gt;</td>" in lines[1], 'class="marked"' in lines[1]] == [True, True]
    status, answer = await bot.get(f"/api/ci/jobs/{UPSTREAM}/{job.id}")
    assert answer["log"]["lines"] == 2
    (verdict,) = answer["verdicts"]
    assert (verdict["rank"], verdict["rule"], verdict["line_num"]) == (0, "pytest failure", 2)
    assert (verdict["captures"], verdict["context"]) == (["tests/test_a.py::test_b"], ["+ pytest"])


async def test_a_commit_says_why_its_jobs_failed(bot, logs):
    job = await logs.arrives("make: *** [Makefile:3: all] Error 2\n")
    _, page = await bot.get(f"/{UPSTREAM}/commit/{job.run.head_sha}")
    (row,) = failures(page)
    assert "build: make: *** [Makefile:3: all] Error 2 · line 1" in row[0]
    _, page = await bot.get(f"/{UPSTREAM}/run/{job.run.id}")
    assert "build · make: *** [Makefile:3: all] Error 2 · line 1" in page


async def test_lines_around_one_with_colours_folds_and_nothing_from_outside(bot, logs):
    lines = [f"line {n}" for n in range(1, 1001)]
    lines[499] = f"{AT}\x1b[31;1m<script>\x1b[0m plain \x1b[48;5;9mx"
    lines[500:503] = [f"{AT}##[group]Set up", "inside", f"{AT}##[endgroup]"]
    lines[503] = f"{AT}##[error]it broke"
    job = await logs.arrives("\n".join(lines) + "\n")
    status, page = await bot.get(f"/{UPSTREAM}/job/{job.id}/log?line=500&around=5")
    assert status == 200
    assert 'id="L495"' in page
    assert 'id="L494"' not in page
    assert '<span class="ansi1 bold">&lt;script&gt;</span> plain x' in page
    assert "\x1b" not in page
    assert '<summary class="mono">Set up</summary>' in page
    assert '<td class="mono bad">it broke</td>' in page
    _, page = await bot.get(f"/{UPSTREAM}/job/{job.id}/log")
    assert '<tr id="L504" class="marked">' in page
    _, page = await bot.get(f"/{UPSTREAM}/job/{job.id}/log?line=99999999&around=x")
    assert 'id="L1000"' in page


async def test_the_plain_log_whole_and_in_parts(bot, logs):
    text = "".join(f"{AT}line {n} ghp_{'a' * 36}\n" for n in range(20_000))
    job = await logs.arrives(text)
    masked = text.replace(f"ghp_{'a' * 36}", "***").encode()
    address = f"{bot.url}/{UPSTREAM}/job/{job.id}/log.txt"
    async with bot.http.get(address) as answer:
        assert answer.status == 200
        assert await answer.read() == masked
        assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert "sandbox" in answer.headers["Content-Security-Policy"]
    size = len(masked)
    ranges = {"bytes=0-9": (0, 10), "bytes=300000-600000": (300_000, 600_001), "bytes=-5": (size - 5, size),
              f"bytes={size - 3}-": (size - 3, size)}  # fmt: skip
    for asked, (start, end) in ranges.items():
        async with bot.http.get(address, headers={"Range": asked}) as answer:
            assert (answer.status, await answer.read()) == (206, masked[start:end])
            assert answer.headers["Content-Range"] == f"bytes {start}-{end - 1}/{size}"
    async with bot.http.get(address, headers={"Range": f"bytes={size}-"}) as answer:
        assert answer.status == 416


async def test_the_lines_around_the_verdict_outlive_the_log(bot, logs):
    job = await logs.arrives("before\nFAILED t.py::test_x\nafter\n")
    await bot.context.resource(BLOBS).delete(f"log/{job.run.repo.id}/{job.id}")
    status, page = await bot.get(f"/{UPSTREAM}/job/{job.id}/log")
    assert status == 200
    assert "has been deleted" in page
    assert "FAILED t.py::test_x" in page
    async with bot.http.get(f"{bot.url}/{UPSTREAM}/job/{job.id}/log.txt") as answer:
        assert answer.status == 404


async def test_a_job_without_log_has_no_page_of_it(bot, github, logs):
    github.faults.add(path="/logs$", status=410)
    job = await logs.arrives("##[error]x\n")
    assert (await bot.get(f"/{UPSTREAM}/job/{job.id}/log"))[0] == 404
    assert (await bot.get(f"/{UPSTREAM}/job/4711/log"))[0] == 404


async def test_nothing_of_a_private_repository_is_shown(bot, github, logs):
    job = await logs.arrives("FAILED t.py::test_secret\n")
    async with bot.store.transaction() as tx:
        await tx.run(sa.update(records["repository"]).values(private=True))
    for address in ("", "/log", "/log.txt"):
        async with bot.http.get(f"{bot.url}/{UPSTREAM}/job/{job.id}{address}") as answer:
            assert answer.status == 404
            assert "test_secret" not in await answer.text()


async def test_lines_as_json(bot, logs):
    job = await logs.arrives("".join(f"{AT}\x1b[1mline {n}\x1b[0m\n" for n in range(1, 301)))
    address = f"/api/ci/logs/{UPSTREAM}/{job.id}"
    _, answer = await bot.get(f"{address}?from=299&to=400")
    assert answer["total"] == 300
    assert [(one["number"], one["text"]) for one in answer["lines"]] == [(299, "line 299"), (300, "line 300")]
    assert answer["lines"][0]["at"] == "2026-11-22T10:00:00.123Z"
    assert len((await bot.get(address))[1]["lines"]) == 100
    assert (await bot.get(f"{address}?from=500"))[1]["lines"] == []
    assert (await bot.get(f"{address}?from=x"))[0] == 400
    assert (await bot.get(f"/api/ci/logs/{UPSTREAM}/4711"))[0] == 404


async def test_the_page_opens_at_the_verdict_not_at_the_first_line_found(bot, logs):
    lines = ["filler"] * 1000
    lines[9], lines[899] = "##[error]early", "FAILED t.py::test_x"
    job = await logs.arrives("\n".join(lines))
    _, page = await bot.get(f"/{UPSTREAM}/job/{job.id}/log")
    assert '<tr id="L900" class="marked">' in page
    assert 'id="L10"' not in page


async def test_from_one_error_to_the_next(bot, logs):
    lines = ["filler"] * 1000
    lines[9], lines[899] = "make: *** [Makefile:3: all] Error 2", "FAILED t.py::test_x"
    lines[499] = "make: *** [Makefile:4: all] Error 2"
    job = await logs.arrives("\n".join(lines))
    page = f"/{UPSTREAM}/job/{job.id}/log"
    _, text = await bot.get(f"{page}?line=700")
    assert f'<a href="{page}?line=500#L500">previous error</a>' in text
    assert f'<a href="{page}?line=900#L900">next error</a>' in text
    _, text = await bot.get(f"{page}?line=500")
    assert (
        f'<a href="{page}?line=10#L10">previous error</a>' in text
    )  # the first error of the build, whatever won
    _, text = await bot.get(f"{page}?line=1")
    assert "previous error" not in text
    assert f'<a href="{page}?line=10#L10">line 10</a> (first build error)' in text
