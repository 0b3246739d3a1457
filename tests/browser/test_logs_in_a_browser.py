"""Pages of jobs, logs and failures in a real browser: light and dark, phone and desktop."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tests import harness
from tests.browser import chromium
from tests.browser.test_pages_in_a_browser import LOOKS, check
from tests.evidence.collect.test_uploads import send
from tests.harness import L4, UPSTREAM
from tests.jobs.branch import push
from tests.serving import SQLITE

pytestmark = pytest.mark.skipif(chromium.find() is None, reason="no Chromium here: apt-get install chromium")

LONG = "FAILED test/inductor/test_kernels.py::TestKernels::test_matmul_small[cpu-float32] - AssertionError: 3 != 4"
NAME = "linux-jammy-py3.12 / test (default, {}, 2, linux.4xlarge)"


def log(bot, *, failing=LONG):
    """A log of some hundred lines with groups, colours, a long line and a compiler's complaint."""
    lines = [
        "##[group]Set up the runner",
        "Image: ubuntu-24.04",
        "Prepare all required actions",
        "##[endgroup]",
    ]
    lines += [
        "##[group]Run python test/run_test.py",
        "\x1b[36;1mpython test/run_test.py --verbose\x1b[0m",
        "##[endgroup]",
    ]
    lines += [f"test_case_{n} \x1b[32mPASSED\x1b[0m [ {n // 4}%]" for n in range(400)]
    lines += ["src/aten/kernels.cc:31:7: warning: unused variable 'stride' " + "x" * 400]
    lines += [
        "\x1b[1;33mWarning:\x1b[0m retrying",
        "+ python -m pytest -x",
        failing,
        "##[error]Process completed with exit code 1.",
    ]
    at = datetime.fromtimestamp(bot.clock.now() / 1000, UTC)
    return "".join(f"{at:%Y-%m-%dT%H:%M:%S}.1234567Z {line}\n" for line in lines)


async def tell(bot, github):
    """Fill the bot; returns the pages by name."""
    about = {
        "id": github.state.repo(L4).id,
        "full_name": L4,
        "private": False,
        "updated_at": "2026-01-01T00:00:00Z",
    }
    await bot.send("repository", {"action": "publicized", "repository": about})
    await _run(bot, github, "push", "success", sha=None)
    broken = await github.push(UPSTREAM)
    await _push(bot, broken)
    await _run(bot, github, "push", "failure", sha=broken)
    pull = await github.open_pull(UPSTREAM, title="Multiply small matrices without a copy")
    await bot.settle()
    run, job = await _run(bot, github, "pull_request", "failure", sha=pull.head_sha)
    await github.finish_job(await github.start_job(run, "lint"), "failure", log="nothing that a rule knows\n")
    dispatch = bot.dispatch(L4)
    theirs = await github.start_run(L4, event="repository_dispatch", name="CI")
    build = await github.start_job(theirs, "build")
    await bot.report(dispatch, conclusion="failure", run_id=str(theirs.id))
    await github.finish_job(build, "failure", log=log(bot))
    upload = (
        await send(bot, dispatch, log(bot, failing="make: *** [Makefile:3: all] Error 2").encode(), repo=L4)
    )[1]
    await bot.report(dispatch, conclusion="failure")
    await bot.wait(60)
    signature = (await bot.get("/api/ci/failures"))[1]["failures"][0]["signature"]
    return {
        "job": f"/{UPSTREAM}/job/{job.id}", "run": f"/{UPSTREAM}/run/{run.id}",
        "log": f"/{UPSTREAM}/job/{job.id}/log", "log-begin": f"/{UPSTREAM}/job/{job.id}/log?line=1",
        "upload": f"/{L4}/upload/{upload['upload']}",
        "log-search": f"/{UPSTREAM}/commit/{pull.head_sha}/logs?q=test_.*(FAILED|PASSED)",
        "failures": "/failures", "failure": f"/failures/{signature}", "storage": f"/{UPSTREAM}/storage",
        "pull": f"/{UPSTREAM}/pull/{pull.number}", "commit": f"/{UPSTREAM}/commit/{pull.head_sha}",
    }  # fmt: skip


async def _run(bot, github, event, conclusion, *, sha):
    """A run with a build, two shards of tests and artifacts; returns it and the shard that failed, or the last one."""
    run = await github.start_run(UPSTREAM, event=event, head_sha=sha)
    if sha is None:
        await _push(bot, run.head_sha)
    await github.finish_job(await github.start_job(run, "linux-jammy-py3.12 / build"), "success")
    first, last = [await github.start_job(run, NAME.format(shard)) for shard in (1, 2)]
    for kind, size in (("wheels-linux-jammy-py3.12", 240_000), (f"test-reports_{last.id}", 3_000)):
        github.add_artifact(run, kind, bytes(size))
    await github.finish_job(first, "success")
    await github.finish_job(last, conclusion, log=log(bot))
    await github.finish_run(run, conclusion)
    await bot.settle(horizon=30)
    bot.clock.advance(3_600)
    return run, last


async def _push(bot, sha):
    event, body = push(bot, sha, at=(bot.clock.now() - 1_790_000_000_000) // 60_000)
    await bot.send(event, body)
    await bot.settle()


@pytest.fixture
async def bot(settings, github, issuer, clock):
    """A bot that collects."""
    chosen = replace(settings, of_features={})
    async with harness.running(chosen, github=github, issuer=issuer, app=github.app, clock=clock) as made:
        yield made


@SQLITE
@LOOKS
async def test_pages_of_logs_have_nothing_that_troubles_a_reader(bot, github, looks):
    pages = await tell(bot, github)
    async with chromium.running() as tab:
        found = await check(bot, tab, pages, looks)
        assert found == [], "\n".join(found)
        assert tab.complaints == []  # no error in the console, no violation of the policy
