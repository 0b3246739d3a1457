"""Tests of a commit or a run: what failed, and what changed from another commit; pages and JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from msgspec import Meta, Struct

from bot.core.errors import Rejected
from bot.evidence.tests import comparing, failing, result_rows, rows
from bot.evidence.tests.comparing import Change
from bot.evidence.tests.failing import LinkedTest
from bot.evidence.tests.parse import block, texts
from bot.evidence.tests.tables import FailureRow, JobCounts, NamedTestRow
from bot.evidence.tests.verdict import Verdict
from bot.oot.allowlist import versions as allowlists
from bot.pages import job_reads
from bot.web import access, addresses, openapi, parameters
from bot.web.answers import Answer, RowAnswer, fill_struct, matching, one_of
from bot.web.openapi import NOT_FOUND, UNKNOWN_REPOSITORY, DeclaredRefusal
from bot.web.parameters import REPO, REPOSITORY, Parameter
from bot.web.view import Json, Page, View

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from aiohttp import web

    from bot.db.transaction import Transaction
    from bot.evidence.tests.comparing import Comparison
    from bot.evidence.tests.failing import FailedCase, FailingTest, SameTest
    from bot.evidence.tests.parse.block import Block
    from bot.evidence.tests.tables import TestJobRow, TestRow
    from bot.ingest.record_rows import WorkflowRunRow
    from bot.web.parameters import Query

BATCH = 50  # blocks that are held at a time
SHOWN = 200  # tests of one table of a page
CACHED = "With an `ETag`: who sends it as `If-None-Match` gets 304 while nothing has changed."
TestDigest = Annotated[str, Meta(description="of the test, as in its page's address")]
CHANGED = 50  # tests of one kind on a page
TITLES = {
    Change.NEWLY_FAILING: "Newly failing",
    Change.STILL_FAILING: "Still failing",
    Change.FIXED: "Fixed",
    Change.NEW: "New tests",
    Change.GONE: "Gone",
    Change.NEWLY_SKIPPED: "Newly skipped",
}
UNKNOWN_COMMIT = DeclaredRefusal(404, "unknown_commit", "no test of that commit is known")
WholeSha = Annotated[str, matching(addresses.SHA)]
COMMIT_SHA = parameters.commit("a commit, or its beginning")
ROWS = 500  # failures in one answer, unless ?limit= says otherwise
NO_RUN = DeclaredRefusal(404, "not_found", "not the name of a repository, or no run of that id may be shown")
ID = parameters.identifier("id", "GitHub's id of the run")
ATTEMPT = parameters.optional_whole("attempt", 1_000_000, "one attempt only")
VERDICT = parameters.choice("verdict", ["", *Verdict], "only failures that are held to be this", only="json")
LIMIT = parameters.limit(ROWS, most=result_rows.MOST_FAILURES)
BEFORE = Parameter("before", addresses.before_id, None, (openapi.before(openapi.Number),), only="json")


@dataclass(frozen=True, kw_only=True)
class Unreadable:
    """A report that was left out."""

    job: TestJobRow
    member: str
    reason: str


class ChangedTest(
    RowAnswer,
    row=NamedTestRow,
    only=("change", "family", "test", "file", "suite", "name"),
    frozen=True,
    kw_only=True,
):
    """A test that differs from the base."""

    change: Annotated[str, one_of(Change)]
    family: Annotated[str, Meta(description="the jobs it ran in: workflow and name without shard and runner")]
    test: TestDigest


class ComparedTests(Answer, frozen=True, kw_only=True):
    """What changed between two commits, test by test, where the same jobs ran on both"""

    base: str
    head: str
    families: Annotated[int, Meta(description="of jobs that ran on both")]
    only_base: Annotated[list[str], Meta(description="families that ran on the base only; not compared")]
    only_head: list[str]
    counts: Annotated[dict[str, int], Meta(description="tests by change; all of them")]
    tests: Annotated[list[ChangedTest], Meta(description="at most 1,000 of each change")]


class ComparedWith(NamedTuple):
    """What a page says in comparison with other commits."""

    compared: ComparedHeads | None  # with the one that ?base= names
    earlier: str | None  # the newest trusted commit on which the same jobs ran before


@dataclass(frozen=True, kw_only=True)
class TestsOfCommit:
    """The tests of a commit."""

    repo: str
    sha: str
    tested: Tested
    backends: dict[str, Tested]
    across: list[SameTest]
    compared: ComparedHeads | None
    earlier: str | None


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
class TestsOfRun:
    """The tests of a run, of all attempts or of one."""

    run: WorkflowRunRow
    tested: Tested
    verdict: str
    limit: int
    skipped: int
    compared: ComparedHeads | None
    earlier: str | None


@dataclass(frozen=True, kw_only=True)
class Tested:
    """The tests of jobs."""

    jobs: list[TestJobRow]
    tests: list[FailingTest]  # that failed, or were flaky
    whole: bool = True  # whether these are all

    @property
    def counts(self) -> dict[str, int]:
        """The sums of all jobs."""
        return failing.sum_counts(self.jobs)

    @property
    def notes(self) -> list[Unreadable]:
        """Files that are not reports, and what was done to read others."""
        return [
            Unreadable(job=job, member=note["member"], reason=note["reason"])
            for job in self.jobs
            for note in job["notes"] or ()
        ]

    @property
    def unreadable(self) -> list[Unreadable]:
        """The reports that were left out."""
        return [
            Unreadable(job=job, member=report["member"], reason=report["reason"])
            for job in self.jobs
            for report in job["unreadable"]
        ]


async def visible_repositories(query: Query) -> set[int]:
    """Return the repositories in the path; raises Rejected 404, alike for private and unknown ones."""
    visible = await job_reads.visible_ids_of(query, query[REPO])
    if not visible:
        raise UNKNOWN_REPOSITORY.because(f"nothing of {query[REPO]} may be shown here")
    return visible


async def tests_of_jobs(tx: Transaction, jobs: list[TestJobRow]) -> Tested:
    """Read the tests of jobs."""
    generations = [
        job["generation"] for job in jobs if job["failed"] or job["errors"] or job["flaky"] or job["crashed"]
    ]
    cases = await result_rows.failing_cases(tx, generations)
    whole = len(cases) < result_rows.MOST_FAILURES and not any(job["left_out"] for job in jobs)
    return Tested(jobs=jobs, tests=failing.group_failures(cases, jobs), whole=whole)


async def tests_on_commit(tx: Transaction, repository_ids: set[int], sha: str) -> Tested:
    """Read what a repository's own CI tested on one of its commits."""
    jobs = await rows.jobs_on(tx, repository_ids, sha)
    return await tests_of_jobs(tx, jobs[: result_rows.MOST_JOBS])


async def tests_of_run(tx: Transaction, repository_id: int, run_id: int, attempt: int | None) -> Tested:
    """Read what a run tested, in all its attempts or in one."""
    jobs = await rows.jobs_of_run(tx, repository_id, run_id, attempt)
    return await tests_of_jobs(tx, jobs[: result_rows.MOST_JOBS])


async def tests_of_backends(request: web.Request, tx: Transaction, sha: str) -> dict[str, Tested]:
    """Read what backends tested on a commit of upstream, by backend, as far as it may be shown."""
    by_backend: dict[str, list[TestJobRow]] = {}
    for job in await result_rows.jobs_testing(tx, sha):
        if job["backend"]:
            by_backend.setdefault(job["backend"], []).append(job)
    everything = access.reads_private(request)
    shown = await result_rows.public_repositories(
        tx, {job["repository_id"] for jobs in by_backend.values() for job in jobs}
    )
    return {
        name: await tests_of_jobs(tx, some)
        for name, jobs in sorted(by_backend.items(), key=lambda item: item[0].casefold())
        if (some := [job for job in jobs if everything or job["repository_id"] in shown])
    }


async def compare_jobs(
    tx: Transaction,
    base: Sequence[TestJobRow],
    head: Sequence[TestJobRow],
    *,
    most: int = comparing.CHANGES_MOST,
) -> tuple[Comparison, dict[int, TestRow]]:
    """Compare two sides; return what changed, and the tests concerned."""
    sides = []
    for jobs in (base, head):
        side: comparing.Side = {}
        counted = [job for job in jobs if not job["rerun_disabled"]]
        for at in range(0, len(counted), BATCH):
            some = counted[at : at + BATCH]
            blocks = await rows.blocks_of_jobs(tx, [job["generation"] for job in some])
            comparing.add_jobs(side, _decoded(some, blocks))
        sides.append(side)
    result = comparing.compare_sides(*sides, most=most)
    named = {change.test_id for tests in result.changed.values() for change in tests}
    return result, await result_rows.tests_by_id(tx, named)


def _needed_commit(name: str) -> Parameter[str]:
    schema = openapi.needed(name, WholeSha, "a commit, or its beginning")
    return Parameter(name, lambda request: addresses.commit(addresses.needed(request, name)), "", (schema,))


def _optional_base(request: web.Request) -> str:
    text = addresses.given(request, "base")
    return addresses.commit(text) if text else ""


BASE = Parameter("base", _optional_base, "", only="page")
NEEDED_BASE, NEEDED_HEAD = _needed_commit("base"), _needed_commit("head")


@dataclass(frozen=True, kw_only=True)
class ComparedHeads:
    """A comparison of two commits, with its tests."""

    base: str
    head: str = ""
    result: Comparison
    tests: dict[int, TestRow]

    def listed(self) -> list[tuple[Change, str, list[tuple[str, LinkedTest]], int]]:
        """Return, for each change, its title, the first tests with their families, and the number of tests."""
        return [
            (
                change,
                TITLES[change],
                sorted(
                    (
                        (change.family, LinkedTest(row=self.tests[change.test_id]))
                        for change in named[:CHANGED]
                        if change.test_id in self.tests
                    ),
                    key=lambda shown: (shown[1].file, shown[1].suite, shown[1].name, shown[0]),
                ),
                self.result.counts[change],
            )
            for change, named in self.result.changed.items()
            if self.result.counts[change]
        ]


async def read_compared_with(query: Query, owners: set[int], jobs: list[TestJobRow]) -> ComparedWith:
    """Read what changed since the commit in ?base= and since the previous commit."""
    if not query.for_page:
        return ComparedWith(None, None)
    compared = None
    if query[BASE]:
        base = await _whole_sha(query.tx, owners, query[BASE])
        jobs_before = await rows.jobs_on(query.tx, owners, base)
        result, tests = await compare_jobs(query.tx, jobs_before, jobs, most=CHANGED)
        compared = ComparedHeads(base=base, result=result, tests=tests)
    earlier = await result_rows.trusted_before(query.tx, owners, jobs[0]) if jobs else None
    return ComparedWith(compared, earlier)


async def read_comparison(query: Query) -> ComparedHeads:
    """Read what changed between two commits."""
    owners = await visible_repositories(query)
    base, head = [
        await _whole_sha(query.tx, owners, query[parameter]) for parameter in (NEEDED_BASE, NEEDED_HEAD)
    ]
    sides = [await rows.jobs_on(query.tx, owners, sha) for sha in (base, head)]
    result, tests = await compare_jobs(query.tx, *sides)
    return ComparedHeads(base=base, head=head, result=result, tests=tests)


def comparison_json(heads: ComparedHeads) -> ComparedTests:
    """Return the JSON of a comparison."""
    result, tests = heads.result, heads.tests
    changed = [
        fill_struct(
            ChangedTest,
            tests[changed_test.test_id],
            change=change.value,
            family=changed_test.family,
            test=texts.shown_digest(tests[changed_test.test_id]["digest"]),
        )
        for change, named in result.changed.items()
        for changed_test in named
        if changed_test.test_id in tests
    ]
    return ComparedTests(
        base=heads.base,
        head=heads.head,
        families=result.families,
        only_base=result.only_base,
        only_head=result.only_head,
        counts={change.value: count for change, count in result.counts.items()},
        tests=changed,
    )


COMPARE_VIEW = View(
    read=read_comparison,
    parameters=(REPO, NEEDED_BASE, NEEDED_HEAD),
    json=Json(
        path="/api/ci/compare/{owner}/{repo}",
        answer=comparison_json,
        content=ComparedTests,
        name="compareTests",
        summary="What changed between two commits, test by test",
        topic=openapi.CI,
        description=CACHED,
        refusals=(NOT_FOUND, UNKNOWN_REPOSITORY, UNKNOWN_COMMIT),
        etag=True,
    ),
)


async def read_commit_tests(query: Query) -> TestsOfCommit:
    """Read the tests of a commit, upstream's own and those of backends."""
    tx, repo = query.tx, query[REPO]
    owners = await visible_repositories(query)
    sha = await result_rows.full_sha(tx, owners, query[COMMIT_SHA]) or query[COMMIT_SHA]
    tested = await tests_on_commit(tx, owners, sha)
    backends = await tests_of_backends(query.request, tx, sha)
    across = await _across(tx, repo, owners, sha) if backends else []
    beside = await read_compared_with(query, owners, tested.jobs)
    if not tested.jobs and not backends:
        raise Rejected(404, "not_found", f"no test of commit {query[COMMIT_SHA][:12]} is known here")
    return TestsOfCommit(
        repo=repo,
        sha=sha,
        tested=tested,
        backends=backends,
        across=across,
        compared=beside.compared,
        earlier=beside.earlier,
    )


def commit_page(commit: TestsOfCommit) -> dict[str, Any]:
    """Return the values of the page."""
    repo, sha, compared = commit.repo, commit.sha, commit.compared
    return {
        "repo": repo,
        "title": f"Tests of {sha[:12]}",
        "up": f"/{repo}/commit/{sha}",
        "up_words": f"commit {sha[:12]}",
        "tested": commit.tested,
        "backends": commit.backends,
        "across": commit.across,
        "compared": compared,
        "earlier": commit.earlier,
        "tally": failing.count_verdicts,
        "most": SHOWN,
        "json_url": f"/api/ci/compare/{repo}?base={compared.base}&head={sha}" if compared else "",
    }


COMMIT_VIEW = View(
    read=read_commit_tests,
    parameters=(REPO, COMMIT_SHA, BASE),
    page=Page(path=f"{REPOSITORY}/commit/{{sha}}/tests", template="head_tests.html", values=commit_page),
)


async def read_run_tests(query: Query) -> TestsOfRun:
    """Read what a run tested."""
    shown = await job_reads.visible_ids_of(query, query[REPO])
    newest = (await job_reads.shown_attempts(query.tx, shown, query[ID]))[0]
    owners = {newest["repository_id"]}
    tested = await tests_of_run(query.tx, newest["repository_id"], newest["id"], query[ATTEMPT])
    beside = await read_compared_with(query, owners, tested.jobs)
    return TestsOfRun(
        run=newest,
        tested=tested,
        verdict=query[VERDICT],
        limit=query[LIMIT],
        skipped=query[BEFORE] or 0,
        compared=beside.compared,
        earlier=beside.earlier,
    )


def run_page(of_run: TestsOfRun) -> dict[str, Any]:
    """Return the values of the page."""
    run = of_run.run
    return {
        "repo": run["repo"],
        "title": f"Tests of {run['name'] or 'run'} {run['id']}",
        "up": f"/{run['repo']}/run/{run['id']}",
        "up_words": f"run {run['id']}",
        "tested": of_run.tested,
        "backends": {},
        "across": [],
        "compared": of_run.compared,
        "earlier": of_run.earlier,
        "tally": failing.count_verdicts,
        "most": SHOWN,
    }


def run_json(of_run: TestsOfRun) -> RunTests:
    """Return the JSON of a run's tests."""
    cases = (failed_case for test in of_run.tested.tests for failed_case in test.jobs)
    failed = [
        failed_case
        for failed_case in cases
        if not of_run.verdict or failed_case.case["verdict"] == of_run.verdict
    ]
    following = of_run.skipped + of_run.limit
    return RunTests(
        counts=TestCounts(**of_run.tested.counts),
        failures=[_failure(failed_case) for failed_case in failed[of_run.skipped : following]],
        unreadable=[
            UnreadableReport(member=report.member, reason=report.reason)
            for report in of_run.tested.unreadable
        ],
        next=str(following) if following < len(failed) else None,
    )


RUN_VIEW = View(
    read=read_run_tests,
    parameters=(REPO, ID, ATTEMPT, VERDICT, LIMIT, BEFORE, BASE),
    page=Page(path=rf"{REPOSITORY}/run/{{id:\d+}}/tests", template="head_tests.html", values=run_page),
    json=Json(
        path=r"/api/ci/runs/{owner}/{repo}/{id:\d+}/tests",
        answer=run_json,
        content=RunTests,
        name="runTests",
        summary="The tests of a run",
        topic=openapi.CI,
        description=CACHED,
        refusals=(NO_RUN,),
        etag=True,
        link=lambda of_run: {"repo": of_run.run["repo"], "id": of_run.run["id"]},
    ),
)


def _decoded(jobs: Iterable[TestJobRow], blocks: dict[int, bytes]) -> Iterator[tuple[str, Block]]:
    for job in jobs:
        if content := blocks.get(job["generation"]):
            yield job["family"], block.decode(content)


async def _whole_sha(tx: Transaction, owners: set[int], sha: str) -> str:
    whole = await result_rows.full_sha(tx, owners, sha)
    if whole is None:
        raise UNKNOWN_COMMIT.because(f"no test of commit {sha[:12]} is known here")
    return whole


async def _across(tx: Transaction, repo: str, owners: set[int], sha: str) -> list[SameTest]:
    """Return the tests that fail on backends, each once, with where else they fail or pass."""
    listed = await allowlists.read_in_force(tx)
    labels = {entry.key: entry.label for entry in listed.entries} if listed else {}
    head = await failing.read_head(tx, repo, owners, sha, labels)
    return [test for test in await failing.failing_tests(tx, head, repo=repo) if test.on_backends]


def _failure(failed: FailedCase) -> RunTestFailure:
    case, job = failed.case, failed.job
    return fill_struct(
        RunTestFailure,
        case,
        job_id=job["job_id"] if job["job_id"] > 0 else None,
        run_attempt=job["run_attempt"],
        test=texts.shown_digest(case["digest"]),
        outcome=failing.describe_outcome(case["outcome"], flaky=case["flaky"]),
    )
