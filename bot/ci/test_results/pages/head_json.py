"""GET /api/ci/runs/{owner}/{repo}/{id}/tests and /api/ci/compare/{owner}/{repo}: what failed, and what changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from bot.ci.collect import job_reads
from bot.ci.test_results import identity, rows
from bot.ci.test_results.pages import failing, heads, result_rows
from bot.ci.test_results.pages.comparing import Change
from bot.ci.test_results.verdict import Verdict
from bot.core.errors import Rejected
from bot.web import parameters
from bot.web.answers import Answer, one_of, send
from bot.web.app_keys import CONTEXT
from bot.web.page_cache import tagged

if TYPE_CHECKING:
    from aiohttp import web

    from bot.ci.test_results.pages.failing import Failed

ROWS = 500  # failures in one answer, unless ?limit= says otherwise
TestDigest = Annotated[str, Meta(description="of the test, as in its page's address")]


class TestCounts(Struct, frozen=True, kw_only=True):
    """Cases by how they ended; a flaky one is counted by its outcome, too."""

    tests: int
    passed: int
    failed: int
    errors: int
    skipped: int
    xfailed: int
    xpassed: int
    flaky: int


class RunTestFailure(Struct, frozen=True, kw_only=True):
    """A case that failed in a job, or was flaky there."""

    job_id: Annotated[int | None, Meta(description="GitHub's; null: the reports are of no job it knows")]
    run_attempt: int
    test: TestDigest
    file: str
    suite: str
    name: str
    outcome: Annotated[str, one_of(["failed", "error", "flaky", "crashed", "timed_out"])]
    attempts: int
    failed_attempts: int
    verdict: Annotated[str | None, Meta(description="null: not judged yet")]
    message: str
    source_file: Annotated[str | None, Meta(description="where it failed, as its report names the file")]
    line: int | None


class UnreadableReport(Struct, frozen=True, kw_only=True):
    """A report that was left out."""

    member: str
    reason: str


class RunTests(Answer, frozen=True, kw_only=True):
    """The tests of a run"""

    counts: TestCounts
    failures: list[RunTestFailure]
    unreadable: list[UnreadableReport]
    next: Annotated[str | None, Meta(description="the `before` of the following page")]


class ChangedTest(Struct, frozen=True, kw_only=True):
    """A test that differs from the base."""

    change: Annotated[str, one_of(Change)]
    family: Annotated[str, Meta(description="the jobs it ran in: workflow and name without shard and runner")]
    test: TestDigest
    file: str
    suite: str
    name: str


class ComparedTests(Answer, frozen=True, kw_only=True):
    """What changed between two commits, test by test, where the same jobs ran on both"""

    base: str
    head: str
    families: Annotated[int, Meta(description="of jobs that ran on both")]
    only_base: Annotated[list[str], Meta(description="families that ran on the base only; not compared")]
    only_head: list[str]
    counts: Annotated[dict[str, int], Meta(description="tests by change; all of them")]
    tests: Annotated[list[ChangedTest], Meta(description="at most 1,000 of each change")]


@tagged
async def run_json(request: web.Request) -> web.Response:
    """Answer with the tests of a run."""
    limit = parameters.limit(request, default=ROWS, most=result_rows.MOST_FAILURES)
    wanted = parameters.choice(request, "verdict", ["", *Verdict])
    skipped, attempt = parameters.before_id(request) or 0, parameters.attempt(request)
    async with request.app[CONTEXT].store.read() as tx:
        owners = await job_reads.visible(request, tx, parameters.repo(request))
        run_id = parameters.number(request.match_info["id"])
        newest = (await job_reads.shown_attempts(tx, owners, run_id))[0]
        found = await heads.of_run(tx, newest["repository_id"], newest["id"], attempt)
    failed = [one for test in found.tests for one in test.jobs if not wanted or one.case["verdict"] == wanted]
    following = skipped + limit
    return send(
        RunTests(
            counts=TestCounts(**found.counts),
            failures=[_failure(one) for one in failed[skipped:following]],
            unreadable=[UnreadableReport(member=one.member, reason=one.reason) for one in found.unreadable],
            next=str(following) if following < len(failed) else None,
        )
    )


@tagged
async def compare_json(request: web.Request) -> web.Response:
    """Answer with what changed between two commits."""
    base, head = (parameters.commit(parameters.needed(request, name)) for name in ("base", "head"))
    async with request.app[CONTEXT].store.read() as tx:
        owners = await heads.owners(request, tx)
        sides = []
        for sha in (base, head):
            whole = await result_rows.full_sha(tx, owners, sha)
            if whole is None:
                raise Rejected(404, "unknown_commit", f"no test of commit {sha[:12]} is known here")
            sides.append((whole, await rows.jobs_on(tx, owners, whole)))
        result, tests = await heads.compared(tx, sides[0][1], sides[1][1])
    changed = [
        ChangedTest(
            change=change.value,
            family=one.family,
            test=identity.shown(tests[one.test_id]["digest"]),
            file=tests[one.test_id]["file"],
            suite=tests[one.test_id]["suite"],
            name=tests[one.test_id]["name"],
        )
        for change, named in result.changed.items()
        for one in named
        if one.test_id in tests
    ]
    return send(
        ComparedTests(
            base=sides[0][0],
            head=sides[1][0],
            families=result.families,
            only_base=result.only_base,
            only_head=result.only_head,
            counts={change.value: count for change, count in result.counts.items()},
            tests=changed,
        )
    )


def _failure(one: Failed) -> RunTestFailure:
    case, job = one.case, one.job
    return RunTestFailure(
        job_id=job["job_id"] if job["job_id"] > 0 else None,
        run_attempt=job["run_attempt"],
        test=identity.shown(case["digest"]),
        file=case["file"],
        suite=case["suite"],
        name=case["name"],
        outcome=failing.outcome(case["outcome"], flaky=case["flaky"]),
        attempts=case["attempts"],
        failed_attempts=case["failed_attempts"],
        verdict=case["verdict"],
        message=case["message"],
        source_file=case["source_file"],
        line=case["line"],
    )
