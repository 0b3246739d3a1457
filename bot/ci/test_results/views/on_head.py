"""The failing tests of a commit of upstream, the same test of all backends as one; and backends that tested little."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from bot.ci.test_results import few_tests
from bot.ci.test_results.across_devices import Across, is_only_here, words
from bot.ci.test_results.parse.block import FAILING
from bot.ci.test_results.store import exclusions, result_rows, rows
from bot.ci.test_results.verdict import Verdict
from bot.ci.test_results.views import failing
from bot.ci.test_results.views.failing import RANK, Failed
from bot.web.failures import Place, TestCase

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from bot.ci.test_results.few_tests import FewTests
    from bot.ci.test_results.job_tables import TestJobRow
    from bot.ci.test_results.views.failing import FailingTest
    from bot.db.transaction import Transaction

UPSTREAM = "upstream"
LOCATED = 1_000  # failures whose lines are looked at
UNEXCUSED = frozenset({Verdict.NEW, Verdict.NEW_TEST, Verdict.NO_BASELINE})


@dataclass(frozen=True, kw_only=True)
class Head:
    """What may be shown of the tests on a commit of upstream."""

    jobs: list[TestJobRow]  # upstream's own and those of public backends
    labels: Mapping[int, str]  # what to call a repository

    def of_pull(self) -> Head:
        """Return the same without what only a backend says to be of this commit: no pull request was its business."""
        return replace(self, jobs=[job for job in self.jobs if rows.is_proven(job)])


@dataclass(frozen=True, kw_only=True)
class SameTest:
    """A test that fails somewhere, on all devices."""

    repo: str  # whose test is linked: a backend's where it fails on one
    test: FailingTest
    verdict: str | None  # the one that is closest to the author
    verdicts: Mapping[str, str | None]  # the same in each repository
    words: str  # where it fails and passes
    across: Across
    on_backends: int
    jobs: tuple[TestJobRow, ...]  # in which it fails
    cases: frozenset[TestCase]  # what it is called, on all devices

    def fails_only_on(self, repository_ids: Collection[int]) -> bool:
        """Whether it fails on one of these repositories and passes in upstream's own jobs."""
        return is_only_here(self.across) and bool(set(self.across.failed_on) & set(repository_ids))

    @property
    def name(self) -> str:
        """Its name with file and suite."""
        return " ".join(part for part in (self.test.file, self.test.suite, self.test.name) if part)


async def read_head(
    tx: Transaction, repo: str, upstream_ids: set[int], sha: str, labels: Mapping[str, str]
) -> Head:
    """Return what was tested on a commit; `labels` are what to call backends, by their names in lower case."""
    found = await result_rows.jobs_testing(tx, sha)
    public = await result_rows.public_repositories(tx, {job["repository_id"] for job in found})
    own = [job for job in found if not job["backend"] and job["repository_id"] in upstream_ids]
    theirs = [
        job
        for job in found
        if job["backend"]
        and job["repository_id"] in public
        and (job["upstream_repo"] or "").casefold() == repo.casefold()
    ]
    named = dict.fromkeys((job["repository_id"] for job in own), UPSTREAM)
    for job in theirs:
        backend = job["backend"] or ""
        named[job["repository_id"]] = labels.get(backend.casefold(), backend)
    return Head(jobs=rows.newest_attempts([*own, *theirs]), labels=named)


async def failing_tests(tx: Transaction, head: Head, *, repo: str) -> list[SameTest]:
    """Return the tests that fail, new ones first, then those that fail on most backends."""
    generations = [job["generation"] for job in head.jobs if job["failed"] or job["errors"]]
    cases = [case for case in await result_rows.failing_cases(tx, generations) if case["outcome"] in FAILING]
    same: dict[int, list[FailingTest]] = defaultdict(list)
    for test in failing.group(cases, head.jobs):
        same[test.canonical].append(test)
    found = [_same(tests, head, repo) for tests in same.values()]
    return sorted(found, key=lambda one: (RANK[one.verdict], -one.on_backends, one.name))


def _same(tests: Sequence[FailingTest], head: Head, repo: str) -> SameTest:
    by_rank = sorted(tests, key=lambda one: (RANK[one.verdict], one.repository_id))
    theirs = [one for one in by_rank if one.jobs[0].job["backend"]]
    chosen = (theirs or by_rank)[0]
    found = _across(by_rank)
    return SameTest(
        repo=chosen.jobs[0].job["backend"] or repo,
        test=chosen,
        verdict=by_rank[0].verdict,
        verdicts={one.jobs[0].job["backend"] or repo: one.verdict for one in reversed(by_rank)},
        words=words(found, head.labels),
        across=found,
        on_backends=len({one.repository_id for one in theirs}),
        jobs=tuple(failed.job for one in by_rank for failed in one.jobs),
        cases=frozenset(TestCase(one.suite, one.name) for one in by_rank),
    )


def _across(tests: Sequence[FailingTest]) -> Across:
    """Return what was stored of a test on all devices, else what these failures say by themselves."""
    for test in tests:
        for one in test.jobs:
            evidence = one.case["evidence"]
            if isinstance(evidence, dict) and (stored := evidence.get("across")):
                return msgspec.convert(stored, Across)
    theirs = sorted({one.repository_id for one in tests if one.jobs[0].job["backend"]})
    upstream = next((one.repository_id for one in tests if not one.jobs[0].job["backend"]), 0)
    return Across(upstream_id=upstream, failed=[""] if upstream else [], failed_on=theirs)


def places(across: Across, names: Mapping[int, str]) -> list[Place]:
    """Return where it failed and passed, failures first; `names` are those that may be shown."""
    own = "upstream" if across.upstream_id in names else ""
    found = [
        *(Place(label=names[one], passed=False) for one in across.failed_on if one in names),
        *(
            Place(label=f"{own} {device}".strip(), passed=False, upstream=True)
            for device in across.failed
            if own
        ),
        *(Place(label=names[one], passed=True) for one in across.passed_on if one in names),
        *(
            Place(label=f"{own} {device}".strip(), passed=True, upstream=True)
            for device in across.passed
            if own
        ),
    ]
    return sorted(found, key=lambda one: (one.passed, one.upstream, one.label.casefold()))


async def located(tx: Transaction, head: Head) -> list[Failed]:
    """Return failures that nothing excuses and whose line in the source is known, in the order of these lines."""
    by_generation = {job["generation"]: job for job in head.jobs if job["failed"] or job["errors"]}
    found = await result_rows.located_failures(tx, sorted(by_generation), UNEXCUSED, limit=LOCATED)
    failed = [Failed(case=case, job=by_generation[case["generation"]]) for case in found]
    return sorted(
        failed, key=lambda one: (one.case["source_file"] or "", one.case["line"] or 0, one.case["name"])
    )


async def thin_jobs(tx: Transaction, head: Head) -> dict[str, FewTests]:
    """Return backends (in lower case) that ran far fewer tests than usual, none of which failed; the worst of each."""
    families: dict[tuple[str, int, str], list[TestJobRow]] = defaultdict(list)
    for job in head.jobs:
        if job["backend"] and not job["rerun_disabled"]:
            families[job["backend"].casefold(), job["repository_id"], job["family"]].append(job)
    found: dict[str, FewTests] = {}
    for (backend, repository_id, family), jobs in sorted(families.items()):
        little = await compare_family(tx, repository_id, family, jobs)
        if little and (backend not in found or _worse(little, found[backend])):
            found[backend] = little
    return found


async def compare_family(
    tx: Transaction, repository_id: int, family: str, jobs: Sequence[TestJobRow]
) -> FewTests | None:
    """Return that jobs of a family ran far fewer tests than usual; None where one failed or runs, or enough ran."""
    if any(job["failed"] or job["errors"] or job["crashed"] or job["partial"] for job in jobs):
        return None
    began, runs = min(job["at"] for job in jobs), few_tests.USUAL_RUNS
    usual = await result_rows.usual_counts(tx, repository_id, family, before=began, limit=runs)
    newest = _of_newest_attempt(jobs)
    little = few_tests.compare_with_usual(sum(job["tests"] - job["skipped"] for job in newest), usual)
    if little and (files := await exclusions.files_of(tx, newest)):
        left_out = await exclusions.usual_tests(tx, repository_id, family, files, before=began, runs=runs)
        little = few_tests.explain_by_exclusions(little, len(files), left_out)
    return little


def _worse(one: FewTests, other: FewTests) -> bool:
    return (one.files > 0, one.ran) < (other.files > 0, other.ran)


def _of_newest_attempt(jobs: Sequence[TestJobRow]) -> list[TestJobRow]:
    newest = max((job["run_id"], job["run_attempt"]) for job in jobs)
    return [job for job in jobs if (job["run_id"], job["run_attempt"]) == newest]
