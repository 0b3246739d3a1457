"""Check runs of backends, as the tests make them."""

from bot.oot.publish.check_text import backend_check, gate_check, job_checks
from bot.oot.verdict.gate import judge_gate
from bot.oot.verdict.verdict import State
from tests.oot.publish.heads import HEAD, HUD, backend, failed_test, failing_job, job

COMMON = {"prefix": "oot", "head_sha": HEAD, "failure_conclusion": "neutral"}


FAILURE, SUCCESS, RUNNING, HELD = State.FAILURE, State.SUCCESS, State.RUNNING, State.HELD


def check(one, **fields):
    return backend_check(one, external_id="key-1", **COMMON | fields)


def gate(*backends):
    return gate_check(
        judge_gate(backends),
        prefix="oot",
        head_sha=HEAD,
        external_id="key-2",
        page_url=f"{HUD}/octo/core/pull/7",
    )


def per_job(one, **fields):
    return job_checks(one, external_id=lambda job: f"key-{job.name}", **COMMON | fields)


def red(level=4, **fields):
    tests = tuple(failed_test(f"test_{n}") for n in range(2))
    failing = failing_job(failed=2, failed_tests=tests)
    return backend("npu", failing, job("build"), state=FAILURE, level=level, **fields)


DONE = (job("a"), job("b"), job("c"))
