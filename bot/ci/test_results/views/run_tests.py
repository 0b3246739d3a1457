"""GET /{owner}/{repo}/run/{id}/tests and its JSON: what failed in a run, and what changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct

from bot.ci.collect import job_reads
from bot.ci.test_results.job_tables import JobCounts
from bot.ci.test_results.parse import identity
from bot.ci.test_results.store import result_rows
from bot.ci.test_results.tables import FailureRow
from bot.ci.test_results.verdict import Verdict
from bot.ci.test_results.views import compare_tests, failing, heads
from bot.ci.test_results.views.compare_tests import BASE
from bot.ci.test_results.views.heads import CACHED, TestDigest
from bot.web import operations as op
from bot.web import parameters
from bot.web import view_parameters as declare
from bot.web.answers import Answer, fill, one_of
from bot.web.asked import Parameter
from bot.web.refusals import Refused
from bot.web.row_answers import RowAnswer
from bot.web.view import Json, Page, View
from bot.web.view_parameters import REPO, REPOSITORY

if TYPE_CHECKING:
    from bot.ci.test_results.views.compare_tests import ComparedHeads
    from bot.ci.test_results.views.failing import Failed
    from bot.ci.test_results.views.heads import Tested
    from bot.ingest.rows import WorkflowRunRow
    from bot.web.asked import Asked

ROWS = 500  # failures in one answer, unless ?limit= says otherwise
NO_RUN = Refused(404, "not_found", "not the name of a repository, or no run of that id may be shown")
ID = declare.identifier("id", "GitHub's id of the run")
ATTEMPT = declare.optional_whole("attempt", 1_000_000, "one attempt only")
VERDICT = declare.choice("verdict", ["", *Verdict], "only failures that are held to be this", only="json")
LIMIT = declare.limit(ROWS, most=result_rows.MOST_FAILURES)
BEFORE = Parameter("before", parameters.before_id, None, (op.before(op.Number),), only="json")


class TestCounts(RowAnswer, row=JobCounts, frozen=True, kw_only=True):
    """Cases by how they ended; a flaky one is counted by its outcome, too."""


class RunTestFailure(
    RowAnswer,
    row=FailureRow,
    only=(
        "job_id", "run_attempt", "test", "file", "suite", "name", "outcome", "attempts", "failed_attempts", "verdict",
        "message", "source_file", "line",
    ),
    frozen=True,
    kw_only=True,
):  # fmt: skip
    """A case that failed in a job, or was flaky there."""

    job_id: Annotated[int | None, Meta(description="GitHub's; null: the reports are of no job it knows")]
    run_attempt: int
    test: TestDigest
    file: str
    suite: str
    name: str
    outcome: Annotated[str, one_of(["failed", "error", "flaky", "crashed", "timed_out"])]
    verdict: Annotated[str | None, Meta(description="null: not judged yet")]
    source_file: Annotated[str | None, Meta(description="where it failed, as its report names the file")]


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


@dataclass(frozen=True, kw_only=True)
class Found:
    """The tests of a run: all attempts together, unless one is chosen."""

    run: WorkflowRunRow
    tested: Tested
    verdict: str
    limit: int
    skipped: int
    compared: ComparedHeads | None
    earlier: str | None


async def read_run_tests(asked: Asked) -> Found:
    """Read what a run tested."""
    shown = await job_reads.visible_to(asked, asked[REPO])
    newest = (await job_reads.shown_attempts(asked.tx, shown, asked[ID]))[0]
    owners = {newest["repository_id"]}
    tested = await heads.tests_of_run(asked.tx, newest["repository_id"], newest["id"], asked[ATTEMPT])
    beside = await compare_tests.read_beside(asked, owners, tested.jobs)
    return Found(
        run=newest,
        tested=tested,
        verdict=asked[VERDICT],
        limit=asked[LIMIT],
        skipped=asked[BEFORE] or 0,
        compared=beside.compared,
        earlier=beside.earlier,
    )


def show(found: Found) -> dict[str, Any]:
    """Return what the page shows."""
    run = found.run
    return {
        "repo": run["repo"],
        "title": f"Tests of {run['name'] or 'run'} {run['id']}",
        "up": f"/{run['repo']}/run/{run['id']}",
        "up_words": f"run {run['id']}",
        "found": found.tested,
        "backends": {},
        "across": [],
        "compared": found.compared,
        "earlier": found.earlier,
        "tally": failing.verdicts,
        "most": heads.SHOWN,
    }


def answer(found: Found) -> RunTests:
    """Return the JSON of a run's tests."""
    cases = (one for test in found.tested.tests for one in test.jobs)
    failed = [one for one in cases if not found.verdict or one.case["verdict"] == found.verdict]
    following = found.skipped + found.limit
    return RunTests(
        counts=TestCounts(**found.tested.counts),
        failures=[_failure(one) for one in failed[found.skipped : following]],
        unreadable=[
            UnreadableReport(member=one.member, reason=one.reason) for one in found.tested.unreadable
        ],
        next=str(following) if following < len(failed) else None,
    )


def _failure(one: Failed) -> RunTestFailure:
    case, job = one.case, one.job
    return fill(
        RunTestFailure,
        case,
        job_id=job["job_id"] if job["job_id"] > 0 else None,
        run_attempt=job["run_attempt"],
        test=identity.shown_digest(case["digest"]),
        outcome=failing.outcome(case["outcome"], flaky=case["flaky"]),
    )


VIEW = View(
    read=read_run_tests,
    parameters=(REPO, ID, ATTEMPT, VERDICT, LIMIT, BEFORE, BASE),
    page=Page(path=rf"{REPOSITORY}/run/{{id:\d+}}/tests", template="head_tests.html", values=show),
    json=Json(
        path=r"/api/ci/runs/{owner}/{repo}/{id:\d+}/tests",
        answer=answer,
        content=RunTests,
        name="runTests",
        summary="The tests of a run",
        topic=op.CI,
        description=CACHED,
        refusals=(NO_RUN,),
        etag=True,
        link=lambda found: {"repo": found.run["repo"], "id": found.run["id"]},
    ),
)
