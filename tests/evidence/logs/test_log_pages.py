"""What people see of logs: verdicts on the pages of job, commit and pull request, lines of the log, the whole of it."""

from __future__ import annotations

import sqlalchemy as sa

from bot.evidence.collect.blobs import BLOBS
from bot.ingest.tables import records
from tests.harness import UPSTREAM
from tests.pages.page_checks import failures
from tests.serving import SQLITE

pytestmark = SQLITE
AT = "2026-11-22T10:00:00.1234567Z "


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
