"""One list of a commit's failures, of backends and upstream's own, with what features know of them. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from bot.oot.verdict.failure import (
    NEW,
    NEW_TEST,
    NOTHING_KNOWN,
    UPSTREAM_JOBS,
    FailedJob,
    Failure,
    FailureDetail,
    FailureList,
    list_reported,
    rank_of,
)
from bot.oot.verdict.view import History
from bot.web.failures import FailurePlace, Failures, JobKey

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence

    from bot.oot.verdict.view import Backend, FailedTest, Job, Pull
    from bot.web.failures import FailingTest, FailureStanding, JobRemark, ReasonLine

    Reported = defaultdict[str, list[tuple[FailedJob, FailedTest]]]  # by the test's name

VAGUE = frozenset({"", "generic"})  # kinds of lines that do not say why a job failed
HISTORIES = {NEW: History.NEW, NEW_TEST: History.NEW, "": History.NO_BASELINE, "flaky": History.FLAKY}


def list_on_backends(pull: Pull) -> FailureList:
    """Return the failures on a head that its backends have reported."""
    return list_failures(list_reported(pull.backends), Failures())


def list_failures(
    jobs: Sequence[FailedJob],
    known_failures: Failures,
    *,
    passed: Collection[JobKey] = (),
    judged: Collection[str] = (),
) -> FailureList:
    """List the failures in some failed jobs, with what features know of them.

    `passed` are jobs that ended without failing, or whose latest attempt did; `judged` are repositories, in
    lower case, whose failed jobs are all among these. Failures so far in a job that still runs are listed.
    """
    counting = _Counting(jobs, passed, judged)
    remarks = _Remarks(jobs, known_failures.jobs)
    known = [*jobs, *remarks.unknown_jobs]
    reported = _by_name(known)
    runs = Counter(job.key[:3] for job in known)
    alone = {job for job in known if job.key.run_id and runs[job.key[:3]] == 1}
    tests = [_known_test(test, known, alone, reported) for test in counting.narrow(known_failures.tests)]
    counted = {
        job for test in tests for job in test.jobs
    }  # all of their tests are listed, or among those left
    tests += _reported_tests(reported)
    listed = Counter(job for test in tests for job in test.jobs)
    tests = [_with_line(test, remarks, listed) for test in tests]
    unnamed = {job: 0 if job in counted else max(job.failed - listed[job], 0) for job in known}
    rest = [_of_job(job, remarks, unnamed=unnamed[job]) for job in known if not listed[job] or unnamed[job]]
    every = sorted([*tests, *_joined(rest)], key=_urgency)
    return FailureList(
        first=tuple(failure for failure in every if failure.blocking or not failure.is_known),
        aside=tuple(failure for failure in every if failure.is_known and not failure.blocking),
        tests_left=known_failures.tests_left,
        links=tuple(known_failures.links),
    )


def settle_histories(backends: Iterable[Backend], failures: FailureList) -> tuple[Backend, ...]:
    """Return backends whose failing jobs have the history that the list of failures gives what failed in them."""
    standings: defaultdict[tuple[JobKey, str], list[FailureStanding]] = defaultdict(list)
    for failure in failures.all:
        for job in failure.jobs:
            standings[job.key, job.group].append(failure.standing_on(job.key.repo))
    return tuple(
        replace(
            backend,
            jobs=tuple(
                _settle(job, standings.get((_history_key(backend, job), job.workflow), ()))
                for job in backend.jobs
            ),
        )
        for backend in backends
    )


class _Counting:
    """Decides whose failed tests count."""

    def __init__(
        self, failed: Sequence[FailedJob], passed: Collection[JobKey], judged: Collection[str]
    ) -> None:
        self._failed = {job.key for job in failed}
        self._runs = {key[:3] for key in self._failed}
        self._repos = {key.repo for key in self._failed}
        self._passed = set(passed)
        self._judged = judged

    def narrow(self, tests: Iterable[FailingTest]) -> Iterator[FailingTest]:
        """Yield the tests that count, each with the jobs in which it counts."""
        for test in tests:
            jobs = frozenset(key for key in test.jobs if self._counts(key))
            if jobs or not test.jobs:
                yield test if jobs == test.jobs else replace(test, jobs=jobs)

    def _counts(self, key: JobKey) -> bool:
        """Whether a job failed, or its run where the job has another name there."""
        if key in self._failed:
            return True
        if key in self._passed:
            return False
        if key.repo not in self._judged:
            return True
        elsewhere = key.run_id.startswith("-")  # of another CI, whose ids are not those of reports
        return key[:3] in self._runs or (elsewhere and key.repo in self._repos)


class _Remarks:
    """What features say of each job."""

    def __init__(self, jobs: Sequence[FailedJob], remarks: Iterable[JobRemark]) -> None:
        self._by_key: defaultdict[JobKey, list[JobRemark]] = defaultdict(list)
        labels = {job.key.repo: job.label for job in jobs}
        known = {job.key for job in jobs}
        alone: dict[JobKey, FailedJob] = {}
        for remark in remarks:
            self._by_key[remark.job].append(remark)
            if remark.alone and remark.job not in known:
                label = labels.get(remark.job.repo, UPSTREAM_JOBS if not remark.job.run_id else "")
                if label:
                    alone[remark.job] = _unknown_job(remark.job, label)
        self.unknown_jobs = self._without_only_ones(jobs, alone)

    def _without_only_ones(
        self, jobs: Sequence[FailedJob], alone: dict[JobKey, FailedJob]
    ) -> list[FailedJob]:
        """Return jobs the page does not know, unless each is its run's only job under another name."""
        mine = Counter(job.key[:3] for job in jobs)
        theirs = Counter(key[:3] for key in alone)
        left = []
        for key, job in alone.items():
            run = key[:3]
            if key.run_id and mine[run] == 1 and theirs[run] == 1:
                same = next(other for other in jobs if other.key[:3] == run)
                self._by_key[same.key] += self._by_key[key]
            else:
                left.append(
                    replace(job, blocking=any(other.blocking for other in jobs if other.key[:3] == run))
                )
        return left

    def line(self, job: FailedJob) -> ReasonLine | None:
        """Return the log line that says why it failed."""
        return next((remark.line for remark in self._by_key.get(job.key, ()) if remark.line), None)

    def standings(self, job: FailedJob) -> tuple[FailureStanding, ...]:
        """Return its standings by all the evidence there is."""
        standings = [job.standing, *(remark.standing for remark in self._by_key.get(job.key, ()))]
        return tuple(standing for standing in standings if standing)


def _unknown_job(key: JobKey, label: str) -> FailedJob:
    return FailedJob(
        key=key, label=label, name=key.name, group="", word="failed", attempt=key.run_attempt, url=None
    )


def _by_name(jobs: Iterable[FailedJob]) -> Reported:
    by_name: Reported = defaultdict(list)
    for job in jobs:
        for test in job.tests:
            by_name[test.name].append((job, test))
    return by_name


def _known_test(
    known_test: FailingTest, jobs: Sequence[FailedJob], alone: Container[FailedJob], reported: Reported
) -> Failure:
    """Return a test that a feature knows, moving what backends reported of it out of `reported`.

    The only job of a run has the run's tests, whatever its backend calls it.
    """
    same: list[tuple[FailedJob, FailedTest]] = []
    for case in sorted(known_test.cases):
        others: list[tuple[FailedJob, FailedTest]] = []
        for job, test in reported[case.name]:
            (same if case.is_reported_as(test.classname, test.name) else others).append((job, test))
        reported[case.name] = others
    runs = {key[:3] for key in known_test.jobs}
    failed = [
        *(job for job in jobs if job.key in known_test.jobs or (job.key[:3] in runs and job in alone)),
        *(job for job, _ in same),
    ]
    failing = tuple(dict.fromkeys(failed))
    on = _compare({key.repo for key in known_test.jobs}, failing, known_test.on)
    told = known_test.standing if known_test.standing and known_test.standing.word else None
    return Failure(
        name=known_test.name,
        url=known_test.url,
        jobs=failing,
        places=_with_places(known_test.places, failing),
        standings=_nearest([told] if told and not known_test.on else [*on.values()]),
        message=known_test.message,
        details=_details(same),
        is_test=True,
        words=known_test.words,
        on=on if known_test.on or not told else dict.fromkeys(on, told),
    )


def _compare(
    repos: Iterable[str], jobs: Sequence[FailedJob], known: Mapping[str, FailureStanding]
) -> dict[str, FailureStanding]:
    """Return a test's standing on each backend: by test results, else by its jobs there.

    A test without a baseline on one backend is new there if it is new on another.
    """
    by_repo = {}
    for repo in dict.fromkeys([*sorted(repos), *(job.key.repo for job in jobs)]):
        told = known.get(repo)
        of_jobs = [job.standing or NOTHING_KNOWN for job in jobs if job.key.repo == repo]
        by_repo[repo] = told if told and told.word else min(of_jobs, key=rank_of, default=NOTHING_KNOWN)
    nearest = min(by_repo.values(), key=rank_of, default=NOTHING_KNOWN)
    if nearest.word in {NEW, NEW_TEST}:
        return {repo: standing if standing.word else nearest for repo, standing in by_repo.items()}
    return by_repo


def _nearest(standings: Iterable[FailureStanding]) -> tuple[FailureStanding, ...]:
    """Return the standing nearest to the author: missing data never makes a failure a known one."""
    nearest = min(standings, key=rank_of, default=NOTHING_KNOWN)
    return (nearest,) if nearest.word else ()


def _reported_tests(reported: Reported) -> list[Failure]:
    """Return the tests that only backends reported; the same test of several backends appears once."""
    same: dict[tuple[str, str], list[tuple[FailedJob, FailedTest]]] = {}
    for name, several in reported.items():
        for job, test in several:
            same.setdefault((test.classname or "", name), []).append((job, test))
    return [_reported_test(each) for each in same.values()]


def _reported_test(reported: Sequence[tuple[FailedJob, FailedTest]]) -> Failure:
    jobs = tuple(dict.fromkeys(job for job, _ in reported))
    test = reported[0][1]
    on = _compare((), jobs, {})
    return Failure(
        name=f"{test.classname}.{test.name}" if test.classname else test.name,
        url=None,
        jobs=jobs,
        places=_with_places((), jobs),
        standings=_nearest(on.values()),
        message=next((alike.message for _, alike in reported if alike.message), "") or "",
        details=_details(reported),
        is_test=True,
        on=on,
    )


def _with_places(places: Sequence[FailurePlace], jobs: Iterable[FailedJob]) -> tuple[FailurePlace, ...]:
    known = {place.label for place in places}
    own = any(place.upstream and not place.passed for place in places)
    more = [
        FailurePlace(label=job.label, passed=False, upstream=job.is_upstream)
        for job in jobs
        if job.label not in known and not (job.is_upstream and own)
    ]
    return tuple(dict.fromkeys([*more, *places]))


def _details(reported: Iterable[tuple[FailedJob, FailedTest]]) -> tuple[FailureDetail, ...]:
    same: dict[tuple[str, str, str], list[str]] = {}
    for job, test in reported:
        place = f"{test.file}:{test.line}" if test.file and test.line is not None else test.file or ""
        same.setdefault((place, test.message or "", test.stacktrace or ""), []).append(job.label)
    return tuple(
        FailureDetail(labels=tuple(dict.fromkeys(labels)), place=place, message=message, trace=trace)
        for (place, message, trace), labels in same.items()
    )


def _with_line(failure: Failure, remarks: _Remarks, listed: Mapping[FailedJob, int]) -> Failure:
    """Return a test with the log line about it, or that of a job with no other failed test."""
    for job in failure.jobs:
        line = remarks.line(job)
        if line and (listed[job] == 1 or failure.name.split()[-1] in line.text):
            if failure.standings:
                return replace(failure, line=line)
            standings = remarks.standings(job)
            on = {job.key.repo: standings[0]} if standings else {}
            return replace(failure, line=line, standings=standings, on={**failure.on, **on})
    return failure


def _of_job(job: FailedJob, remarks: _Remarks, *, unnamed: int) -> Failure:
    name = " / ".join(part for part in (job.group, job.name) if part) or job.label
    line, standings = remarks.line(job), remarks.standings(job)
    return Failure(
        name=name,
        url=line.page if line else job.url,
        jobs=(job,),
        places=(FailurePlace(label=job.label, passed=False, upstream=job.is_upstream),),
        standings=standings,
        line=line,
        message=job.said,
        unnamed=unnamed,
        on={job.key.repo: next((standing for standing in standings if standing.word), NOTHING_KNOWN)},
    )


def _joined(failures: Sequence[Failure]) -> list[Failure]:
    """Merge failed jobs of one backend whose logs give the same line as the reason."""
    same: dict[object, list[Failure]] = {}
    for at, failure in enumerate(failures):
        alike: object = at
        if failure.line and failure.line.kind not in VAGUE:
            alike = failure.jobs[0].label, failure.line.text, failure.standing.word, failure.standing.why
        same.setdefault(alike, []).append(failure)
    return [
        replace(
            several[0],
            jobs=tuple(job for failure in several for job in failure.jobs),
            unnamed=sum(failure.unnamed for failure in several),
        )
        for several in same.values()
    ]


def _urgency(failure: Failure) -> tuple[bool, int, bool, int, str]:
    return not failure.blocking, failure.rank, not failure.is_test, -len(failure.failing_on), failure.name


def _history_key(backend: Backend, job: Job) -> JobKey:
    return JobKey(backend.repo.lower(), job.run_id, job.run_attempt, job.name)


def _settle(job: Job, standings: Sequence[FailureStanding]) -> Job:
    if not job.red or not standings:
        return job
    nearest = min(standings, key=rank_of)
    history = HISTORIES.get(nearest.word, History.KNOWN)
    if history is (job.history or History.NO_BASELINE):
        return job
    return replace(job, history=history, history_why=nearest.why, evidence_url=None, evidence_elsewhere=False)
