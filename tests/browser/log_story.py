"""Jobs that failed, upstream's and a backend's, with logs as CI writes them, and the pages that show them."""

from __future__ import annotations

from datetime import UTC, datetime

from tests.evidence.collect.test_uploads import send
from tests.harness import L4, UPSTREAM
from tests.jobs.branch import push

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
