"""What was tested on a commit or in a run, and what changed from another commit: read once for pages and JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from bot.ci.collect import job_reads
from bot.ci.test_results import comparing
from bot.ci.test_results.parse import block
from bot.ci.test_results.store import result_rows, rows
from bot.ci.test_results.views import failing
from bot.web import access
from bot.web.refusals import UNKNOWN_REPOSITORY
from bot.web.view_parameters import REPO

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from aiohttp import web

    from bot.ci.test_results.comparing import Comparison
    from bot.ci.test_results.job_tables import TestJobRow
    from bot.ci.test_results.parse.block import Block
    from bot.ci.test_results.tables import TestRow
    from bot.ci.test_results.views.failing import FailingTest
    from bot.db.transaction import Transaction
    from bot.web.asked import Asked

BATCH = 50  # blocks that are held at a time
SHOWN = 200  # tests of one table of a page
CACHED = "With an `ETag`: who sends it as `If-None-Match` gets 304 while nothing has changed."
TestDigest = Annotated[str, Meta(description="of the test, as in its page's address")]


@dataclass(frozen=True, kw_only=True)
class Unreadable:
    """A report that was left out."""

    job: TestJobRow
    member: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Tested:
    """What jobs said of tests."""

    jobs: list[TestJobRow]
    tests: list[FailingTest]  # that failed, or were flaky
    whole: bool = True  # whether these are all

    @property
    def counts(self) -> dict[str, int]:
        """The sums of all jobs."""
        return failing.sums(self.jobs)

    @property
    def notes(self) -> list[Unreadable]:
        """Files that are no reports, and what was done to read others."""
        return [
            Unreadable(job=job, member=one["member"], reason=one["reason"])
            for job in self.jobs
            for one in job["notes"] or ()
        ]

    @property
    def unreadable(self) -> list[Unreadable]:
        """The reports that were left out."""
        return [
            Unreadable(job=job, member=one["member"], reason=one["reason"])
            for job in self.jobs
            for one in job["unreadable"]
        ]


async def owners(asked: Asked) -> set[int]:
    """Return the repositories in the path; raises Rejected 404, the same for private and unknown."""
    found = await job_reads.visible_to(asked, asked[REPO])
    if not found:
        raise UNKNOWN_REPOSITORY.because(f"nothing of {asked[REPO]} may be shown here")
    return found


async def tests_of_jobs(tx: Transaction, jobs: list[TestJobRow]) -> Tested:
    """Return what jobs said."""
    generations = [
        job["generation"] for job in jobs if job["failed"] or job["errors"] or job["flaky"] or job["crashed"]
    ]
    cases = await result_rows.failing_cases(tx, generations)
    whole = len(cases) < result_rows.MOST_FAILURES and not any(job["left_out"] for job in jobs)
    return Tested(jobs=jobs, tests=failing.group(cases, jobs), whole=whole)


async def tests_on_commit(tx: Transaction, repository_ids: set[int], sha: str) -> Tested:
    """Return what a repository's own CI tested on one of its commits."""
    jobs = await rows.jobs_on(tx, repository_ids, sha)
    return await tests_of_jobs(tx, jobs[: result_rows.MOST_JOBS])


async def tests_of_run(tx: Transaction, repository_id: int, run_id: int, attempt: int | None) -> Tested:
    """Return what a run tested, in all its attempts without one."""
    jobs = await rows.jobs_of_run(tx, repository_id, run_id, attempt)
    return await tests_of_jobs(tx, jobs[: result_rows.MOST_JOBS])


async def tests_of_backends(request: web.Request, tx: Transaction, sha: str) -> dict[str, Tested]:
    """Return what backends tested on a commit of upstream, by their names, as far as it may be shown."""
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


async def compared(
    tx: Transaction, base: Sequence[TestJobRow], head: Sequence[TestJobRow], *, most: int = comparing.MOST
) -> tuple[Comparison, dict[int, TestRow]]:
    """Return what changed between two sides, and the tests it names."""
    sides = []
    for jobs in (base, head):
        side: comparing.Side = {}
        counted = [job for job in jobs if not job["rerun_disabled"]]
        for at in range(0, len(counted), BATCH):
            some = counted[at : at + BATCH]
            found = await rows.blocks_of_jobs(tx, [job["generation"] for job in some])
            comparing.add(side, _decoded(some, found))
        sides.append(side)
    result = comparing.compare(*sides, most=most)
    named = {one.test_id for tests in result.changed.values() for one in tests}
    return result, await result_rows.tests_by_id(tx, named)


def _decoded(jobs: Iterable[TestJobRow], blocks: dict[int, bytes]) -> Iterator[tuple[str, Block]]:
    for job in jobs:
        if content := blocks.get(job["generation"]):
            yield job["family"], block.decode(content)
