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


def list_on_backends(pull: Pull) -> FailureList:
    """Return the failures on a head as far as backends have reported them, where nothing else is known."""
    return list_failures(list_reported(pull.backends), Failures())


def list_failures(
    jobs: Sequence[FailedJob],
    found: Failures,
    *,
    passed: Collection[JobKey] = (),
    judged: Collection[str] = (),
) -> FailureList:
    """Return the list of some failed jobs and of what features know of them.

    `passed` are jobs that ended and did not fail, or not in the attempt that counts; `judged` are repositories, in
    lower case, all of whose failed jobs are among these. What has failed so far in a job that still runs is listed.
    """
    counting = _Counting(jobs, passed, judged)
    remarks = _Remarks(jobs, found.jobs)
    known = [*jobs, *remarks.unknown_jobs]
    reported = _by_name(known)
    runs = Counter(job.key[:3] for job in known)
    alone = {job for job in known if job.key.run_id and runs[job.key[:3]] == 1}
    tests = [_known_test(one, known, alone, reported) for one in counting.narrow(found.tests)]
    counted = {job for one in tests for job in one.jobs}  # all of their tests are listed, or among those left
    tests += _reported_tests(reported)
    listed = Counter(job for one in tests for job in one.jobs)
    tests = [_with_line(one, remarks, listed) for one in tests]
    unnamed = {job: 0 if job in counted else max(job.failed - listed[job], 0) for job in known}
    rest = [_of_job(job, remarks, unnamed=unnamed[job]) for job in known if not listed[job] or unnamed[job]]
    every = sorted([*tests, *_joined(rest)], key=_urgency)
    return FailureList(
        first=tuple(one for one in every if one.blocking or not one.is_known),
        aside=tuple(one for one in every if one.is_known and not one.blocking),
        tests_left=found.tests_left,
        links=tuple(found.links),
    )


class _Counting:
    """Which jobs' failed tests count."""

    def __init__(
        self, failed: Sequence[FailedJob], passed: Collection[JobKey], judged: Collection[str]
    ) -> None:
        self._failed = {job.key for job in failed}
        self._runs = {key[:3] for key in self._failed}
        self._repos = {key.repo for key in self._failed}
        self._passed = set(passed)
        self._judged = judged

    def narrow(self, tests: Iterable[FailingTest]) -> Iterator[FailingTest]:
        """Yield the tests that count, each with the jobs in which it does."""
        for one in tests:
            jobs = frozenset(key for key in one.jobs if self._counts(key))
            if jobs or not one.jobs:
                yield one if jobs == one.jobs else replace(one, jobs=jobs)

    def _counts(self, key: JobKey) -> bool:
        """Whether a job failed: itself, or its run where it goes by another name there."""
        if key in self._failed:
            return True
        if key in self._passed:
            return False
        if key.repo not in self._judged:
            return True
        elsewhere = key.run_id.startswith("-")  # of another CI, whose ids are not those of reports
        return key[:3] in self._runs or (elsewhere and key.repo in self._repos)


class _Remarks:
    """What features say of jobs, by job."""

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
        """Return jobs that the page does not know, without those that are the only one of their run by another name."""
        mine = Counter(job.key[:3] for job in jobs)
        theirs = Counter(key[:3] for key in alone)
        left = []
        for key, job in alone.items():
            run = key[:3]
            if key.run_id and mine[run] == 1 and theirs[run] == 1:
                same = next(one for one in jobs if one.key[:3] == run)
                self._by_key[same.key] += self._by_key[key]
            else:
                left.append(replace(job, blocking=any(one.blocking for one in jobs if one.key[:3] == run)))
        return left

    def line(self, job: FailedJob) -> ReasonLine | None:
        """Return the line of its log that says why it failed."""
        return next((one.line for one in self._by_key.get(job.key, ()) if one.line), None)

    def standings(self, job: FailedJob) -> tuple[FailureStanding, ...]:
        """Return how it compares, by every evidence there is."""
        found = [job.standing, *(one.standing for one in self._by_key.get(job.key, ()))]
        return tuple(one for one in found if one)


def _unknown_job(key: JobKey, label: str) -> FailedJob:
    return FailedJob(
        key=key, label=label, name=key.name, group="", word="failed", attempt=key.run_attempt, url=None
    )


def _by_name(jobs: Iterable[FailedJob]) -> Reported:
    found: Reported = defaultdict(list)
    for job in jobs:
        for test in job.tests:
            found[test.name].append((job, test))
    return found


def _known_test(
    one: FailingTest, jobs: Sequence[FailedJob], alone: Container[FailedJob], reported: Reported
) -> Failure:
    """Return a test that a feature knows, with what backends reported of it: that is taken out of `reported`.

    A job that is the only one of its run has the run's tests, whatever its backend calls it.
    """
    same: list[tuple[FailedJob, FailedTest]] = []
    for case in sorted(one.cases):
        others: list[tuple[FailedJob, FailedTest]] = []
        for job, test in reported[case.name]:
            (same if case.is_reported_as(test.classname, test.name) else others).append((job, test))
        reported[case.name] = others
    runs = {key[:3] for key in one.jobs}
    failed = [
        *(job for job in jobs if job.key in one.jobs or (job.key[:3] in runs and job in alone)),
        *(job for job, _ in same),
    ]
    failing = tuple(dict.fromkeys(failed))
    on = _compare({key.repo for key in one.jobs}, failing, one.on)
    told = one.standing if one.standing and one.standing.word else None
    return Failure(
        name=one.name,
        url=one.url,
        jobs=failing,
        places=_with_places(one.places, failing),
        standings=_nearest([told] if told and not one.on else [*on.values()]),
        message=one.message,
        details=_details(same),
        is_test=True,
        words=one.words,
        on=on if one.on or not told else dict.fromkeys(on, told),
    )


def _compare(
    repos: Iterable[str], jobs: Sequence[FailedJob], known: Mapping[str, FailureStanding]
) -> dict[str, FailureStanding]:
    """Return how a test compares on each backend: as results of tests say, else as its jobs do there.

    Where one has nothing to compare with, a test that is new on another is new there, too.
    """
    found = {}
    for repo in dict.fromkeys([*sorted(repos), *(job.key.repo for job in jobs)]):
        told = known.get(repo)
        of_jobs = [job.standing or NOTHING_KNOWN for job in jobs if job.key.repo == repo]
        found[repo] = told if told and told.word else min(of_jobs, key=rank_of, default=NOTHING_KNOWN)
    nearest = min(found.values(), key=rank_of, default=NOTHING_KNOWN)
    if nearest.word in {NEW, NEW_TEST}:
        return {repo: one if one.word else nearest for repo, one in found.items()}
    return found


def _nearest(standings: Iterable[FailureStanding]) -> tuple[FailureStanding, ...]:
    """Return the one that is nearest to the author: absence of data never makes a failure a known one."""
    found = min(standings, key=rank_of, default=NOTHING_KNOWN)
    return (found,) if found.word else ()


def _reported_tests(reported: Reported) -> list[Failure]:
    """Return the tests that only backends reported, the same test of several backends once."""
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
        message=next((one.message for _, one in reported if one.message), "") or "",
        details=_details(reported),
        is_test=True,
        on=on,
    )


def _with_places(places: Sequence[FailurePlace], jobs: Iterable[FailedJob]) -> tuple[FailurePlace, ...]:
    known = {one.label for one in places}
    own = any(one.upstream and not one.passed for one in places)
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


def _with_line(one: Failure, remarks: _Remarks, listed: Mapping[FailedJob, int]) -> Failure:
    """Return a test with the line of its job's log that is about it, or of a job that has no other test."""
    for job in one.jobs:
        line = remarks.line(job)
        if line and (listed[job] == 1 or one.name.split()[-1] in line.text):
            if one.standings:
                return replace(one, line=line)
            standings = remarks.standings(job)
            on = {job.key.repo: standings[0]} if standings else {}
            return replace(one, line=line, standings=standings, on={**one.on, **on})
    return one


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
        on={job.key.repo: next((one for one in standings if one.word), NOTHING_KNOWN)},
    )


def _joined(failures: Sequence[Failure]) -> list[Failure]:
    """Return the jobs, as one those of one backend whose logs give the same line as the reason."""
    same: dict[object, list[Failure]] = {}
    for at, one in enumerate(failures):
        alike: object = at
        if one.line and one.line.kind not in VAGUE:
            alike = one.jobs[0].label, one.line.text, one.standing.word, one.standing.why
        same.setdefault(alike, []).append(one)
    return [
        replace(
            several[0],
            jobs=tuple(job for one in several for job in one.jobs),
            unnamed=sum(one.unnamed for one in several),
        )
        for several in same.values()
    ]


def _urgency(one: Failure) -> tuple[bool, int, bool, int, str]:
    return not one.blocking, one.rank, not one.is_test, -len(one.failing_on), one.name


HISTORIES = {NEW: History.NEW, NEW_TEST: History.NEW, "": History.NO_BASELINE, "flaky": History.FLAKY}


def settle_histories(backends: Iterable[Backend], failures: FailureList) -> tuple[Backend, ...]:
    """Return backends whose failing jobs say what the list of failures says of what failed in them."""
    found: defaultdict[tuple[JobKey, str], list[FailureStanding]] = defaultdict(list)
    for one in failures.all:
        for job in one.jobs:
            found[job.key, job.group].append(one.standing_on(job.key.repo))
    return tuple(
        replace(
            backend,
            jobs=tuple(
                _settle(job, found.get((_history_key(backend, job), job.workflow), ()))
                for job in backend.jobs
            ),
        )
        for backend in backends
    )


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
