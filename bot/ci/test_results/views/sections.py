"""What test results add to the pages of jobs, runs, commits and pull requests, and to comment and check runs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bot.ci.test_results.losses import Kind
from bot.ci.test_results.store import loss_rows, result_rows, rows
from bot.ci.test_results.verdict import YOURS, Verdict
from bot.ci.test_results.views import failing, lost_tests, on_head
from bot.ci.test_results.views.failing import RANK
from bot.core.escaping import clean, shorten
from bot.ingest import watched
from bot.oot.allowlist import rows as allowlists
from bot.web.blocks import Block, BlockLine, HeadTests, TestLine, TestMark
from bot.web.failures import FailingTest, Failures, JobKey, Standing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bot.ci.test_results.few_tests import FewTests
    from bot.ci.test_results.job_tables import TestJobRow
    from bot.ci.test_results.views.failing import Failed
    from bot.ci.test_results.views.failing import FailingTest as FailingRow
    from bot.ci.test_results.views.on_head import Head, SameTest
    from bot.db.transaction import Transaction
    from bot.web.blocks import Tone
    from bot.web.failures import FailuresSubject
    from bot.web.subjects import CellSubject, CommitSubject, HeadSubject, JobSubject, PullSubject, RunSubject

LOSSES = 100  # that are looked at
SHOWN = 10  # tests of a section or comment; the rest are on the commit's page
NAME_MOST, MESSAGE_MOST = 200, 160  # characters
LISTED = 100  # tests of the list of failures


async def job_blocks(tx: Transaction, subject: JobSubject) -> list[Block]:
    """Return what a job's tests came to."""
    jobs = await rows.jobs_of_run(tx, subject.repository_id, subject.run_id, subject.run_attempt)
    mine = [job for job in jobs if job["job_id"] == subject.job_id]
    page = _tests_page(mine[0], subject.repo, mine[0]["head_sha"]) if mine else ""
    return await _of_jobs(tx, mine, subject.repo, page)


async def run_blocks(tx: Transaction, subject: RunSubject) -> list[Block]:
    """Return what a run's tests came to."""
    jobs = await rows.jobs_of_run(tx, subject.repository_id, subject.run_id)
    return await _of_jobs(tx, jobs, subject.repo, f"/{subject.repo}/run/{subject.run_id}/tests")


async def pull_blocks(tx: Transaction, subject: PullSubject) -> list[Block]:
    """Return which tests the shown head has less of than usual."""
    if not subject.head_sha:
        return []
    return await _fewer(tx, subject.repo, subject.head_sha, of_pull=True)


async def commit_blocks(tx: Transaction, subject: CommitSubject) -> list[Block]:
    """Return which tests a commit has less of than usual."""
    return await _fewer(tx, subject.repo, subject.sha, of_pull=False)


async def find_failures(tx: Transaction, subject: FailuresSubject) -> Failures:
    """Return the tests that fail on a commit, the same test of all backends as one."""
    head = await _read_head(tx, subject.repo, subject.sha, of_pull=subject.of_pull)
    if not head.jobs:
        return Failures()
    found = await on_head.failing_tests(tx, head, repo=subject.repo)
    words = (
        f"all {len(found):,} failing tests, with their jobs"
        if found
        else f"no test failed: {_counts(head.jobs)}"
    )
    page = f"/{subject.repo}/commit/{subject.sha}/tests"
    return Failures(
        tests=[_failing_test(one, head, subject.repo) for one in found[:LISTED]],
        tests_left=max(len(found) - LISTED, 0),
        links=[BlockLine(text=words, url=page, tone=None if found else "good")],
    )


async def cell_lines(tx: Transaction, subject: CellSubject) -> dict[int, BlockLine]:
    """Return what the tests of some jobs came to."""
    return {
        job["job_id"]: BlockLine(
            text=_counts([job]),
            url=_tests_page(job, subject.repo, subject.sha),
            tone="bad" if job["failed"] or job["errors"] else "good",
        )
        for job in await rows.jobs_on(tx, [subject.repository_id], subject.sha)
        if job["job_id"] in subject.job_ids
    }


def _tests_page(job: TestJobRow, repo: str, sha: str) -> str:
    """Return the page of a job's tests with those of its run; runs of other CIs have none, their commits do."""
    return f"/{repo}/run/{job['run_id']}/tests" if job["run_id"] > 0 else f"/{repo}/commit/{sha}/tests"


async def head_tests(tx: Transaction, subject: HeadSubject) -> HeadTests:
    """Return what comment and check runs say: of backends only, upstream's own failures are not theirs to tell."""
    owners = await watched.ids(tx, subject.repo)
    head = (await on_head.read_head(tx, subject.repo, owners, subject.head_sha, subject.labels)).of_pull()
    failing_now = replace(head, jobs=[job for job in head.jobs if _fails(job, subject)])
    found = await on_head.failing_tests(tx, failing_now, repo=subject.repo)
    little = await on_head.thin_jobs(tx, head)
    return HeadTests(
        lines=tuple(_test_line(one, subject.url) for one in found[:SHOWN]),
        total=len(found),
        new=sum(one.verdict in YOURS for one in found),
        url=f"{subject.url}/{subject.repo}/commit/{subject.head_sha}/tests",
        marks=tuple(_mark(one) for one in await on_head.located(tx, failing_now)),
        thin={backend: str(one) for backend, one in little.items() if not one.files},
    )


def _fails(job: TestJobRow, subject: HeadSubject) -> bool:
    """Whether these are tests of a backend's run that fails now: not of an attempt that was overtaken."""
    runs = subject.failing.get((job["backend"] or "").casefold())
    if not job["backend"] or runs is None:
        return False
    return job["run_id"] < 0 or (str(job["run_id"]), job["run_attempt"]) in runs  # below 0: of another CI


async def _of_jobs(tx: Transaction, jobs: Sequence[TestJobRow], repo: str, page: str) -> list[Block]:
    if not jobs:
        return []
    bad = [
        job["generation"] for job in jobs if job["failed"] or job["errors"] or job["flaky"] or job["crashed"]
    ]
    tests = failing.group(await result_rows.failing_cases(tx, bad), jobs)
    lines = [
        BlockLine(text=_counts(jobs), url=page, tone="bad" if any(one.failed for one in tests) else "good")
    ]
    lines += [_of_test(one, repo) for one in tests[:SHOWN]]
    if len(tests) > SHOWN:
        lines.append(BlockLine(text=f"all {len(tests):,}", url=page))
    unreadable = sum(len(job["unreadable"]) for job in jobs)
    if unreadable:
        read = sum(job["files"] for job in jobs)
        first = next(one for job in jobs for one in job["unreadable"])
        words = f"{unreadable:,} of {read + unreadable:,} reports unreadable: {first['member']}: {first['reason']}"
        lines.append(BlockLine(text=_short(words, NAME_MOST + MESSAGE_MOST), tone="warn"))
    return [Block(heading="Tests", lines=tuple(lines))]


async def _read_head(tx: Transaction, repo: str, sha: str, *, of_pull: bool) -> Head:
    listed = await allowlists.in_force(tx)
    labels = {entry.key: entry.label for entry in listed.entries} if listed else {}
    head = await on_head.read_head(tx, repo, await watched.ids(tx, repo), sha, labels)
    return head.of_pull() if of_pull else head


async def _fewer(tx: Transaction, repo: str, sha: str, *, of_pull: bool) -> list[Block]:
    head = await _read_head(tx, repo, sha, of_pull=of_pull)
    if not head.jobs:
        return []
    return [*_thin(await on_head.thin_jobs(tx, head), head), *await _lost(tx, head, repo, sha)]


async def _lost(tx: Transaction, head: Head, repo: str, sha: str) -> list[Block]:
    """Return what complete runs on the commit have less of than the trusted runs before them."""
    shown = {job["run_id"] for job in head.jobs}
    found = [one for one in await loss_rows.losses_on_commit(tx, sha, limit=LOSSES) if one["run_id"] in shown]
    lines = []
    for one in await lost_tests.with_tests(tx, found[:SHOWN]):
        row = one.row
        whose = head.labels.get(row["repository_id"], "") if row["backend"] else ""
        place = " ".join(part for part in (row["file"], row["suite"]) if part)
        parts = [whose, place, row["family"], one.words]
        lines.append(
            BlockLine(
                text=_short(" · ".join(part for part in parts if part), NAME_MOST + MESSAGE_MOST),
                url=f"/{row['backend'] or repo}/tests/lost",
                tone="idle" if row["kind"] == Kind.GONE else "warn",
            )
        )
    if len(found) > SHOWN:
        lines.append(BlockLine(text="and more", url=f"/{repo}/tests/lost"))
    return [Block(heading="Lost tests", lines=tuple(lines))] if lines else []


def _thin(found: Mapping[str, FewTests], head: Head) -> list[Block]:
    names = {
        (job["backend"] or "").casefold(): (head.labels[job["repository_id"]], job["backend"] or "")
        for job in head.jobs
        if job["backend"]
    }
    lines = [
        BlockLine(
            text=f"{names[backend][0]} passed, but {little}",
            url=f"/oot/{names[backend][1]}",
            tone="idle" if little.files else "warn",
        )
        for backend, little in sorted(found.items())
    ]
    return [Block(heading="Fewer tests than usual", lines=tuple(lines))] if lines else []


def _failing_test(one: SameTest, head: Head, repo: str) -> FailingTest:
    test = one.test
    return FailingTest(
        name=_short(one.name, NAME_MOST),
        cases=one.cases,
        url=f"/{one.repo}/test/{test.digest}",
        message=_short(test.message, MESSAGE_MOST),
        standing=Standing(word=verdict(one.verdict), why=failing.WORDS[one.verdict], tone=_tone(one.verdict)),
        places=tuple(on_head.places(one.across, head.labels)),
        jobs=frozenset(_job_key(job, repo) for job in one.jobs),
    )


def _job_key(job: TestJobRow, repo: str) -> JobKey:
    return JobKey((job["backend"] or repo).lower(), str(job["run_id"]), job["run_attempt"], job["name"])


def _of_test(one: FailingRow, repo: str) -> BlockLine:
    name = " ".join(part for part in (one.file, one.suite, one.name) if part)
    words = verdict(one.verdict) if one.failed else "flaky: passed when tried again"
    parts = [_short(name, NAME_MOST), words, _short(one.message, MESSAGE_MOST)]
    return BlockLine(
        text=" · ".join(part for part in parts if part),
        url=f"/{repo}/test/{one.digest}",
        tone=_tone(one.verdict) if one.failed else "warn",
    )


def _test_line(one: SameTest, url: str) -> TestLine:
    return TestLine(
        name=shorten(clean(one.name), NAME_MOST),
        words=one.words,
        verdict=verdict(one.verdict),
        url=f"{url}/{one.repo}/test/{one.test.digest}",
        cases=one.cases,
    )


def _mark(one: Failed) -> TestMark:
    case, job = one.case, one.job
    return TestMark(
        backend=(job["backend"] or "").casefold(),
        job=job["name"],
        file=case["source_file"] or "",
        line=case["line"] or 0,
        name=_short(".".join(part for part in (case["suite"], case["name"]) if part), NAME_MOST),
        message=case["message"],
    )


def verdict(of: str | None) -> str:
    """Return a verdict in a word or two; empty where it says nothing."""
    return "" if of in (None, Verdict.NO_BASELINE) else str(of).replace("_", " ")


def _tone(of: str | None) -> Tone:
    return "bad" if RANK[of] <= RANK[Verdict.NO_BASELINE] else "warn"


def _counts(jobs: Sequence[TestJobRow]) -> str:
    counts = failing.sums(jobs)
    failed = counts["failed"] + counts["errors"]
    parts = [
        f"{counts['tests']:,} tests",
        f"{counts['passed']:,} passed",
        f"{failed:,} failed" if failed else "",
        f"{counts['skipped']:,} skipped" if counts["skipped"] else "",
        f"{counts['flaky']:,} flaky" if counts["flaky"] else "",
    ]
    so_far = "so far " if any(job["partial"] for job in jobs) else ""
    return so_far + ", ".join(part for part in parts if part)


def _short(text: str, most: int) -> str:
    return shorten(" ".join(clean(text).split()), most)
