"""The failing tests of a commit or run, grouped over jobs and backends, and backends that ran too few tests."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from bot.core.escaping import clean, shorten
from bot.evidence.tests import job_parts, result_rows, rows
from bot.evidence.tests.parse import texts
from bot.evidence.tests.parse.block import FAILING, Code
from bot.evidence.tests.verdict import AcrossDevices, Verdict, describe_devices, is_only_here
from bot.ingest import repositories
from bot.oot.allowlist import versions as allowlists
from bot.web import failures
from bot.web.blocks import BlockLine, HeadTests, TestMark
from bot.web.failures import FailurePlace, TestCase

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from bot.db.transaction import Transaction
    from bot.evidence.tests.result_rows import FailingRow
    from bot.evidence.tests.tables import NamedTestRow, TestJobRow
    from bot.web.blocks import HeadSubject, Tone

# what an author wants to see first; what is not judged yet stands with what cannot be
VERDICT_ORDER = (
    Verdict.NEW,
    Verdict.NEW_TEST,
    Verdict.NO_BASELINE,
    Verdict.LIKELY_FLAKY,
    Verdict.KNOWN,
    Verdict.DISABLED,
    Verdict.FLAKY,
)
VERDICT_RANK: dict[str | None, int] = {None: VERDICT_ORDER.index(Verdict.NO_BASELINE)} | {
    verdict.value: rank for rank, verdict in enumerate(VERDICT_ORDER)
}
VERDICT_WORDS: dict[str | None, str] = {
    Verdict.NEW: "passes without this change",
    Verdict.NEW_TEST: "no trusted run has it",
    Verdict.NO_BASELINE: "nothing to compare with",
    None: "",
    Verdict.LIKELY_FLAKY: "fails elsewhere too",
    Verdict.KNOWN: "fails without this change too",
    Verdict.DISABLED: "by an issue",
    Verdict.FLAKY: "also passed here",
}
VERDICT_TONES: dict[str | None, str] = {
    Verdict.NEW: "bad",
    Verdict.NEW_TEST: "bad",
    Verdict.NO_BASELINE: "bad",
    None: "bad",
}
# what templates see
TEMPLATE_VALUES = {"VERDICT_WORDS": VERDICT_WORDS, "VERDICT_TONES": VERDICT_TONES}
COUNTS = ("tests", "passed", "failed", "errors", "skipped", "xfailed", "xpassed", "flaky")
USUAL_RUNS = 5  # the newest trusted ones
LEAST_RUNS = 3  # fewer say nothing of what is usual
SHARE = 0.5
UPSTREAM = "upstream"
LOCATED = 1_000  # failures whose lines are looked at
LISTED = 1_000  # tests of the list of failures
NAME_MOST, MESSAGE_MOST = 200, 160  # characters
UNEXCUSED = frozenset({Verdict.NEW, Verdict.NEW_TEST, Verdict.NO_BASELINE})


@dataclass(frozen=True, kw_only=True)
class FailedCase:
    """A test that failed, or was flaky, in one job."""

    case: FailingRow
    job: TestJobRow


class FewTests(NamedTuple):
    """How many tests ran, and how many usually do."""

    ran: int
    usual: int
    files: int = 0  # left out on purpose, which explains it

    def __str__(self) -> str:
        left_out = f", {self.files:,} files left out by selection" if self.files else ""
        return f"ran {self.ran:,} of {self.usual:,} tests{left_out}"


@dataclass(frozen=True, kw_only=True)
class TestedHead:
    """The tests on a commit of upstream, as far as they may be shown."""

    jobs: list[TestJobRow]  # upstream's own and those of public backends
    labels: Mapping[int, str]  # what to call a repository

    def of_pull(self) -> TestedHead:
        """Return the head without jobs that only a backend attributes to this commit: they concern no pull request."""
        return replace(self, jobs=[job for job in self.jobs if rows.is_proven(job)])


@dataclass(frozen=True, kw_only=True)
class SameTest:
    """A test that fails on some device, seen on all devices."""

    repo: str  # whose test is linked: a backend's where it fails on one
    test: FailingTest
    verdict: str | None  # the one that is closest to the author
    verdicts: Mapping[str, str | None]  # the same in each repository
    words: str  # where it fails and passes
    across: AcrossDevices
    on_backends: int
    jobs: tuple[TestJobRow, ...]  # in which it fails
    cases: frozenset[TestCase]  # what it is called, on all devices

    def fails_only_on(self, repository_ids: Collection[int]) -> bool:
        """Whether it fails on one of these repositories and passes in upstream's own jobs."""
        return is_only_here(self.across) and bool(set(self.across.failed_on) & set(repository_ids))

    @property
    def name(self) -> str:
        """The name with file and suite."""
        return " ".join(part for part in (self.test.file, self.test.suite, self.test.name) if part)


@dataclass(frozen=True, kw_only=True)
class LinkedTest:
    """A test as pages link to it."""

    row: NamedTestRow

    @property
    def digest(self) -> str:
        """The digest, as in the address of the test's page."""
        return texts.shown_digest(self.row["digest"])

    @property
    def file(self) -> str:
        """The file; empty if unknown."""
        return self.row["file"]

    @property
    def suite(self) -> str:
        """Its suite."""
        return self.row["suite"]

    @property
    def name(self) -> str:
        """Its name."""
        return self.row["name"]

    @property
    def place(self) -> str:
        """File and suite."""
        return " ".join(part for part in (self.file, self.suite) if part)


@dataclass(frozen=True, kw_only=True)
class FailingTest(LinkedTest):
    """A failed or flaky test with its jobs; jobs whose verdict concerns the author most come first."""

    jobs: tuple[FailedCase, ...]

    @property
    def repository_id(self) -> int:
        """Whose test it is."""
        return self.jobs[0].case["repository_id"]

    @property
    def canonical(self) -> int:
        """Its device-free name: see bot.evidence.tests.parse.texts."""
        return self.jobs[0].case["canonical"]

    @property
    def verdict(self) -> str | None:
        """The verdict that concerns the author most."""
        return self.jobs[0].case["verdict"]

    @property
    def failed(self) -> bool:
        """Whether its last attempt failed in any job."""
        return any(failed.case["outcome"] in FAILING for failed in self.jobs)

    @property
    def message(self) -> str:
        """The first message that is not empty."""
        return next((failed.case["message"] for failed in self.jobs if failed.case["message"]), "")


def describe_outcome(code: int, *, flaky: bool) -> str:
    """Return the outcome of a case in a word; `flaky` if it passed only on a retry."""
    return "flaky" if flaky and code not in FAILING else Code(code).name.lower()


def group_failures(cases: Iterable[FailingRow], jobs: Iterable[TestJobRow]) -> list[FailingTest]:
    """Group cases by test, in the order in which an author reads them."""
    by_generation = {job["generation"]: job for job in jobs}
    by_test: dict[int, list[FailedCase]] = {}
    for case in cases:
        if job := by_generation.get(case["generation"]):
            by_test.setdefault(case["test_id"], []).append(FailedCase(case=case, job=job))
    return sorted((_failing_test(failed) for failed in by_test.values()), key=_reading_order)


def count_verdicts(tests: Iterable[FailingTest]) -> list[tuple[str, int]]:
    """Count tests by verdict, in order; tests that were only flaky are included."""
    counts = Counter(test.verdict or Verdict.NO_BASELINE.value for test in tests)
    return [(verdict.value, counts[verdict.value]) for verdict in VERDICT_ORDER if counts[verdict.value]]


def sum_counts(jobs: Sequence[TestJobRow]) -> dict[str, int]:
    """Sum the counts of all jobs."""
    return {name: sum(job[name] for job in jobs) for name in COUNTS}  # type: ignore[literal-required]


def compare_with_usual(ran: int, usual: Sequence[int]) -> FewTests | None:
    """Compare a count of tests with the newest trusted runs; None if at least half ran, or nothing is usual.

    >>> compare_with_usual(120, [8400, 8398, 8401, 8396, 8400])
    FewTests(ran=120, usual=8400, files=0)
    """
    newest = usual[:USUAL_RUNS]
    if len(newest) < LEAST_RUNS:
        return None
    middle = median(newest)
    return FewTests(ran, round(middle)) if ran < middle * SHARE else None


def explain_by_exclusions(little: FewTests, files: int, left_out: int) -> FewTests:
    """Explain missing tests by the files that were left out on purpose, if their tests make up the difference.

    >>> explain_by_exclusions(FewTests(120, 8400), 30, 8280)
    FewTests(ran=120, usual=8400, files=30)
    >>> explain_by_exclusions(FewTests(120, 8400), 30, 400)
    FewTests(ran=120, usual=8400, files=0)
    """
    return little._replace(files=files) if little.ran + left_out >= little.usual * SHARE else little


async def read_head(
    tx: Transaction, repo: str, upstream_ids: set[int], sha: str, labels: Mapping[str, str]
) -> TestedHead:
    """Read what was tested on a commit; `labels` maps a backend's lower-case name to its label."""
    testing = await result_rows.jobs_testing(tx, sha)
    public = await result_rows.public_repositories(tx, {job["repository_id"] for job in testing})
    own = [job for job in testing if not job["backend"] and job["repository_id"] in upstream_ids]
    theirs = [
        job
        for job in testing
        if job["backend"]
        and job["repository_id"] in public
        and (job["upstream_repo"] or "").casefold() == repo.casefold()
    ]
    named = dict.fromkeys((job["repository_id"] for job in own), UPSTREAM)
    for job in theirs:
        backend = job["backend"] or ""
        named[job["repository_id"]] = labels.get(backend.casefold(), backend)
    return TestedHead(jobs=rows.newest_attempts([*own, *theirs]), labels=named)


async def failing_tests(tx: Transaction, head: TestedHead, *, repo: str) -> list[SameTest]:
    """Return the failing tests: new ones first, then those that fail on the most backends."""
    generations = [job["generation"] for job in head.jobs if job["failed"] or job["errors"]]
    cases = [case for case in await result_rows.failing_cases(tx, generations) if case["outcome"] in FAILING]
    same: dict[int, list[FailingTest]] = defaultdict(list)
    for test in group_failures(cases, head.jobs):
        same[test.canonical].append(test)
    failing_somewhere = [_same_test(tests, head, repo) for tests in same.values()]
    return sorted(
        failing_somewhere, key=lambda test: (VERDICT_RANK[test.verdict], -test.on_backends, test.name)
    )


def places_of_test(across: AcrossDevices, names: Mapping[int, str]) -> list[FailurePlace]:
    """Return where a test failed and passed, failures first; `names` holds the repositories that may be shown."""
    own = "upstream" if across.upstream_id in names else ""
    places = [
        *(
            FailurePlace(label=names[backend], passed=False)
            for backend in across.failed_on
            if backend in names
        ),
        *(
            FailurePlace(label=f"{own} {device}".strip(), passed=False, upstream=True)
            for device in across.failed
            if own
        ),
        *(
            FailurePlace(label=names[backend], passed=True)
            for backend in across.passed_on
            if backend in names
        ),
        *(
            FailurePlace(label=f"{own} {device}".strip(), passed=True, upstream=True)
            for device in across.passed
            if own
        ),
    ]
    return sorted(places, key=lambda place: (place.passed, place.upstream, place.label.casefold()))


async def located_on_head(tx: Transaction, head: TestedHead) -> list[FailedCase]:
    """Return the unexcused failures with a known source line, ordered by file and line."""
    by_generation = {job["generation"]: job for job in head.jobs if job["failed"] or job["errors"]}
    cases = await result_rows.located_failures(tx, sorted(by_generation), UNEXCUSED, limit=LOCATED)
    failed = [FailedCase(case=case, job=by_generation[case["generation"]]) for case in cases]
    return sorted(
        failed,
        key=lambda failure: (
            failure.case["source_file"] or "",
            failure.case["line"] or 0,
            failure.case["name"],
        ),
    )


async def backends_with_few_tests(tx: Transaction, head: TestedHead) -> dict[str, FewTests]:
    """Return the worst case of each backend (in lower case) that passed but ran far fewer tests than usual."""
    families: dict[tuple[str, int, str], list[TestJobRow]] = defaultdict(list)
    for job in head.jobs:
        if job["backend"] and not job["rerun_disabled"]:
            families[job["backend"].casefold(), job["repository_id"], job["family"]].append(job)
    worst: dict[str, FewTests] = {}
    for (backend, repository_id, family), jobs in sorted(families.items()):
        little = await compare_family(tx, repository_id, family, jobs)
        if little and (backend not in worst or _worse(little, worst[backend])):
            worst[backend] = little
    return worst


async def compare_family(
    tx: Transaction, repository_id: int, family: str, jobs: Sequence[TestJobRow]
) -> FewTests | None:
    """Check whether a family's jobs ran far fewer tests than usual; None if one failed or is running, or enough ran."""
    if any(job["failed"] or job["errors"] or job["crashed"] or job["partial"] for job in jobs):
        return None
    began, runs = min(job["at"] for job in jobs), USUAL_RUNS
    usual = await result_rows.usual_counts(tx, repository_id, family, before=began, limit=runs)
    newest = _of_newest_attempt(jobs)
    little = compare_with_usual(sum(job["tests"] - job["skipped"] for job in newest), usual)
    if little and (files := await job_parts.excluded_files(tx, newest)):
        left_out = await job_parts.usual_tests(tx, repository_id, family, files, before=began, runs=runs)
        little = explain_by_exclusions(little, len(files), left_out)
    return little


async def find_failures(tx: Transaction, subject: failures.FailuresSubject) -> failures.Failures:
    """Return the failing tests of a commit, with the same test on all backends as one."""
    head = await read_shown_head(tx, subject.repo, subject.sha, of_pull=subject.of_pull)
    if not head.jobs:
        return failures.Failures()
    tests = await failing_tests(tx, head, repo=subject.repo)
    words = (
        f"all {len(tests):,} failing tests, with their jobs"
        if tests
        else f"no test failed: {describe_counts(head.jobs)}"
    )
    page = f"/{subject.repo}/commit/{subject.sha}/tests"
    return failures.Failures(
        tests=[_describe_failing(test, head, subject.repo) for test in tests[:LISTED]],
        tests_left=max(len(tests) - LISTED, 0),
        links=[BlockLine(text=words, url=page, tone=None if tests else "good")],
    )


async def head_tests(tx: Transaction, subject: HeadSubject) -> HeadTests:
    """Return where tests failed on backends, for check runs, and which backends passed with too few tests."""
    owners = await repositories.read_ids(tx, subject.repo)
    head = (await read_head(tx, subject.repo, owners, subject.head_sha, subject.labels)).of_pull()
    failing_now = replace(head, jobs=[job for job in head.jobs if _fails(job, subject)])
    little = await backends_with_few_tests(tx, head)
    return HeadTests(
        marks=tuple(_mark(failed) for failed in await located_on_head(tx, failing_now)),
        thin={backend: str(few) for backend, few in little.items() if not few.files},
    )


async def read_shown_head(tx: Transaction, repo: str, sha: str, *, of_pull: bool) -> TestedHead:
    """Read what may be shown of the tests on a commit of upstream."""
    listed = await allowlists.read_in_force(tx)
    labels = {entry.key: entry.label for entry in listed.entries} if listed else {}
    head = await read_head(tx, repo, await repositories.read_ids(tx, repo), sha, labels)
    return head.of_pull() if of_pull else head


def verdict_words(of: str | None) -> str:
    """Return a verdict in a word or two; empty if there is nothing to say."""
    return "" if of in (None, Verdict.NO_BASELINE) else str(of).replace("_", " ")


def verdict_tone(of: str | None) -> Tone:
    """Return the tone of a verdict."""
    return "bad" if VERDICT_RANK[of] <= VERDICT_RANK[Verdict.NO_BASELINE] else "warn"


def describe_counts(jobs: Sequence[TestJobRow]) -> str:
    """Describe the counts of jobs in words."""
    counts = sum_counts(jobs)
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


def shorten_line(text: str, most: int) -> str:
    """Return a text on one line, shortened."""
    return shorten(" ".join(clean(text).split()), most)


def _failing_test(failed: list[FailedCase]) -> FailingTest:
    ordered = sorted(
        failed,
        key=lambda in_job: (
            VERDICT_RANK[in_job.case["verdict"]],
            in_job.job["name"],
            in_job.case["generation"],
        ),
    )
    return FailingTest(row=ordered[0].case, jobs=tuple(ordered))


def _reading_order(test: FailingTest) -> tuple[bool, int, str, str, str]:
    return not test.failed, VERDICT_RANK[test.verdict], test.file, test.suite, test.name


def _same_test(tests: Sequence[FailingTest], head: TestedHead, repo: str) -> SameTest:
    by_rank = sorted(tests, key=lambda test: (VERDICT_RANK[test.verdict], test.repository_id))
    theirs = [test for test in by_rank if test.jobs[0].job["backend"]]
    chosen = (theirs or by_rank)[0]
    across = _across(by_rank)
    return SameTest(
        repo=chosen.jobs[0].job["backend"] or repo,
        test=chosen,
        verdict=by_rank[0].verdict,
        verdicts={test.jobs[0].job["backend"] or repo: test.verdict for test in reversed(by_rank)},
        words=describe_devices(across, head.labels),
        across=across,
        on_backends=len({test.repository_id for test in theirs}),
        jobs=tuple(failed.job for test in by_rank for failed in test.jobs),
        cases=frozenset(TestCase(test.suite, test.name) for test in by_rank),
    )


def _across(tests: Sequence[FailingTest]) -> AcrossDevices:
    """Return the stored comparison of a test across devices, else one made of these failures alone."""
    for test in tests:
        for failed in test.jobs:
            evidence = failed.case["evidence"]
            if isinstance(evidence, dict) and (stored := evidence.get("across")):
                return msgspec.convert(stored, AcrossDevices)
    theirs = sorted({test.repository_id for test in tests if test.jobs[0].job["backend"]})
    upstream = next((test.repository_id for test in tests if not test.jobs[0].job["backend"]), 0)
    return AcrossDevices(upstream_id=upstream, failed=[""] if upstream else [], failed_on=theirs)


def _worse(little: FewTests, other: FewTests) -> bool:
    return (little.files > 0, little.ran) < (other.files > 0, other.ran)


def _of_newest_attempt(jobs: Sequence[TestJobRow]) -> list[TestJobRow]:
    newest = max((job["run_id"], job["run_attempt"]) for job in jobs)
    return [job for job in jobs if (job["run_id"], job["run_attempt"]) == newest]


def _fails(job: TestJobRow, subject: HeadSubject) -> bool:
    """Whether a job belongs to a backend's run that fails now, not to an attempt that was overtaken."""
    runs = subject.failing.get((job["backend"] or "").casefold())
    if not job["backend"] or runs is None:
        return False
    return job["run_id"] < 0 or (str(job["run_id"]), job["run_attempt"]) in runs  # below 0: of another CI


def _describe_failing(same: SameTest, head: TestedHead, repo: str) -> failures.FailingTest:
    test = same.test
    return failures.FailingTest(
        name=shorten_line(same.name, NAME_MOST),
        cases=same.cases,
        url=f"/{same.repo}/test/{test.digest}",
        message=shorten_line(test.message, MESSAGE_MOST),
        standing=_standing(same.verdict),
        places=tuple(places_of_test(same.across, head.labels)),
        jobs=frozenset(_job_key(job, repo) for job in same.jobs),
        on={name.lower(): _standing(said) for name, said in same.verdicts.items()},
        words=same.words,
    )


def _standing(of: str | None) -> failures.FailureStanding:
    return failures.FailureStanding(word=verdict_words(of), why=VERDICT_WORDS[of], tone=verdict_tone(of))


def _job_key(job: TestJobRow, repo: str) -> failures.JobKey:
    return failures.JobKey(
        (job["backend"] or repo).lower(), str(job["run_id"]), job["run_attempt"], job["name"]
    )


def _mark(failed: FailedCase) -> TestMark:
    case, job = failed.case, failed.job
    return TestMark(
        backend=(job["backend"] or "").casefold(),
        job=job["name"],
        file=case["source_file"] or "",
        line=case["line"] or 0,
        name=shorten_line(".".join(part for part in (case["suite"], case["name"]) if part), NAME_MOST),
        message=case["message"],
    )
