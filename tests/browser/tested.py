"""A pull request whose tests have reports, upstream's and those of backends, with names as long as they come."""

from __future__ import annotations

from bot.demo import test_reports
from bot.demo.participants import FFT, MATMUL, SCATTER
from tests.harness import L3, L4, UPSTREAM

JOB = "linux-jammy-cuda12.8-py3.10 / test (default, {}, 2, linux.g5.4xlarge.nvidia.gpu)"
LONG = {
    "name": "test_" + "very_long_name_" * 12 + "[dtype=float32,device=cuda:0]",
    "message": "AssertionError: " + "x" * 900,
    "stacktrace": "\n".join(f"File line {number}: " + "y" * 200 for number in range(20)),
}
BROKEN = b"<testsuite><testcase name='cut"


async def tell(bot, github):
    """Have a pull request tested by upstream and two backends; returns its head."""
    fork = github.add_repo("somebody/pytorch", install=[])
    pull = await github.open_pull(UPSTREAM, title="Make the kernels of small tensors faster", author="hubot")
    await bot.settle()
    run = await github.start_run(
        UPSTREAM, event="pull_request", name="pull", head_repo=fork, head_sha=pull.head_sha
    )
    first = await _job(
        github, run, JOB.format(1), {**test_reports.junit("cuda", (MATMUL,)), "broken.xml": BROKEN}
    )
    await _job(github, run, JOB.format(2), {"long.xml": _report(LONG)})
    await github.finish_run(run, "failure")
    for backend, device, failed in ((L3, "npu", (SCATTER, FFT)), (L4, "tpu", (SCATTER, MATMUL))):
        theirs = await github.start_run(backend, event="repository_dispatch")
        reports = test_reports.junit(device, failed, flaky=(test_reports.FLAKY,))
        await _job(github, theirs, "test", reports)
        await bot.report(bot.dispatch(backend), job="test", conclusion="failure", run_id=str(theirs.id))
        await github.finish_run(theirs, "failure")
    await bot.settle(horizon=300)
    return pull.head_sha, run.id, first.id


async def _job(github, run, name, reports):
    job = await github.start_job(run, name)
    github.add_artifact(run, f"test-reports_{job.id}", reports)
    await github.finish_job(job, "failure")
    return job


def _report(test):
    failure = f'<failure message="{test["message"]}">{test["stacktrace"]}</failure>'
    place = (
        'file="test/a_rather_long_folder_name/test_file_with_a_long_name.py" classname="TestAllKindsOfThings"'
    )
    return f'<testsuite name="pytest"><testcase {place} name="{test["name"]}">{failure}</testcase></testsuite>'.encode()
