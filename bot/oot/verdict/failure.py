"""The failed jobs of a commit, and its failures: each once, with their counts. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from bot.core import text
from bot.oot.verdict import view
from bot.oot.verdict.view import History
from bot.web.failures import FailureStanding, JobKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from bot.ingest.record_rows import WorkflowJobRow
    from bot.oot.verdict.view import Backend, FailedTest, Job
    from bot.pages.pulls.failures import UpstreamCheck
    from bot.web.blocks import BlockLine, Tone
    from bot.web.failures import FailurePlace, ReasonLine

UPSTREAM_JOBS = "upstream"  # what its own jobs are said to be of
SHARED = "shared"
MACHINE = "infrastructure"
_ALIKE = 60  # characters by which a message is found in a line of a log
NOTHING_KNOWN = FailureStanding(word="", why="", tone="bad")
NEW, NEW_TEST = "new", "new test"
_RANKS = {NEW: 0, NEW_TEST: 0, "": 1}  # by word; all others are likely not the change's


@dataclass(frozen=True, kw_only=True, eq=False)
class FailedJob:
    """A failed job, or a backend that failed without one; compared by identity, as it may have a thousand tests."""

    key: JobKey
    label: str  # whose it is: a backend's, or `UPSTREAM`
    name: str  # empty: the backend failed without a job
    group: str  # the workflow, or the App of a check run
    word: str  # how it ended
    attempt: int
    url: str | None  # where it is shown
    blocking: bool = False  # the gate waits for it
    tests: tuple[FailedTest, ...] = ()  # that failed, as reported
    failed: int = 0  # tests that failed, as reported
    standing: FailureStanding | None = None
    said: str = ""  # why it failed, according to its backend or its check run

    @property
    def is_upstream(self) -> bool:
        """Whether it is upstream's own."""
        return self.label == UPSTREAM_JOBS


@dataclass(frozen=True, kw_only=True)
class FailureDetail:
    """What backends reported of a failed test; identical reports are merged."""

    labels: tuple[str, ...]
    place: str  # file and line
    message: str
    trace: str


def list_reported(backends: Iterable[Backend]) -> list[FailedJob]:
    """Return the failed jobs of backends, or the backend itself where it failed without one."""
    failed: list[FailedJob] = []
    for backend in backends:
        if backend.state.red:
            failed += [_of_job(backend, job) for job in backend.failing] or [_of_backend(backend)]
    return failed


def list_passed(backends: Iterable[Backend]) -> set[JobKey]:
    """Return the finished jobs of backends that are no failures: the job did not fail, or its backend did not."""
    return {
        _key(backend.repo, job)
        for backend in backends
        for job in backend.jobs
        if job.finished and not (backend.state.red and job.red)
    }


def list_judged(backends: Iterable[Backend]) -> set[str]:
    """Return the lower-case names of the backends whose jobs have all ended."""
    return {
        backend.repo.lower()
        for backend in backends
        if backend.jobs and all(job.finished for job in backend.jobs)
    }


def list_jobs(repo: str, label: str, jobs: Iterable[Job]) -> list[FailedJob]:
    """Return the failed jobs that a backend reported on a pushed commit."""
    return [_reported(repo, label, job, blocking=False) for job in jobs if job.red]


def list_unfailed(repo: str, jobs: Iterable[Job]) -> set[JobKey]:
    """Return the jobs a backend reported on a pushed commit that ended without failing."""
    return {_key(repo, job) for job in jobs if job.finished and not job.red}


def list_own(repo: str, checks: Iterable[UpstreamCheck]) -> list[FailedJob]:
    """Return upstream's own failed jobs, and the failed checks of other Apps."""
    return [_of_check(repo, check) for check in checks if check.tone == "bad"]


def key_of(repo: str, check: UpstreamCheck) -> JobKey:
    """Return the key of one of upstream's own jobs or checks."""
    return JobKey(repo.lower(), str(check.run_id or ""), check.attempt or 1, check.name)


def keys_by_id(repo: str, jobs: Sequence[WorkflowJobRow]) -> Mapping[int, JobKey]:
    """Return upstream's jobs by GitHub's ids."""
    return {
        row["id"]: JobKey(repo.lower(), str(row["run_id"]), row["run_attempt"] or 1, row["name"] or "")
        for row in jobs
    }


def rank_of(standing: FailureStanding) -> int:
    """Return the rank of a failure: those that the change likely caused come first."""
    return _RANKS.get(standing.word, len(_RANKS))


@dataclass(frozen=True, kw_only=True)
class Failure:
    """One failure."""

    name: str  # of the test, the job or the backend
    url: str | None
    jobs: tuple[FailedJob, ...]  # in which it is, without those that nothing else is known of
    places: tuple[FailurePlace, ...]
    standings: tuple[FailureStanding, ...] = ()
    line: ReasonLine | None = None
    message: str = ""
    details: tuple[FailureDetail, ...] = ()
    is_test: bool = False
    words: str = ""  # where it fails and passes, if more is known than its places
    unnamed: int = 0  # more failed tests of the job, which are only counted
    # how it compares, by repository in lower case
    on: Mapping[str, FailureStanding] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """How many failures it stands for, including tests that were only counted."""
        return max(self.unnamed, 1)

    def standing_on(self, repo: str) -> FailureStanding:
        """Return its standing on one backend: a test may be new on one and known on another."""
        return self.on.get(repo.lower(), self.standing)

    def kind_on(self, repo: str) -> str:
        """Return the kind it counts as on one backend, such as new, known or flaky; empty without a baseline."""
        return self._kind(self.standing_on(repo))

    def is_known_on(self, repo: str) -> bool:
        """Whether the change likely did not cause it there."""
        return self.kind_on(repo) not in _RANKS

    @property
    def kind(self) -> str:
        """The kind it counts as overall."""
        return self._kind(self.standing)

    def _kind(self, standing: FailureStanding) -> str:
        if self.infra:
            return MACHINE
        return NEW if standing.word == NEW_TEST else standing.word

    @property
    def differing(self) -> tuple[tuple[str, FailureStanding], ...]:
        """The labels of backends where its standing differs from the overall one, each with that standing."""
        labels = {job.key.repo: job.label for job in self.jobs}
        shown = self.standing.word
        return tuple(
            (labels[repo], comparison)
            for repo, comparison in self.on.items()
            if repo in labels and comparison.word != shown
        )

    @property
    def standing(self) -> FailureStanding:
        """Its overall standing: the first evidence that says anything, nearest first."""
        return next(
            (standing for standing in self.standings if standing.word),
            next(iter(self.standings), NOTHING_KNOWN),
        )

    @property
    def others(self) -> tuple[FailureStanding, ...]:
        """Its other standings."""
        shown = self.standing
        return tuple(
            standing for standing in dict.fromkeys(self.standings) if standing is not shown and standing.word
        )

    @property
    def rank(self) -> int:
        """Its rank: new failures come first, then those nothing is known of."""
        return rank_of(self.standing)

    @property
    def is_known(self) -> bool:
        """Whether the change likely did not cause it: it also fails without the change, or passes as often."""
        return self.kind not in _RANKS

    @property
    def infra(self) -> bool:
        """Whether the machine failed rather than what ran on it."""
        return self.line is not None and self.line.infra

    @property
    def line_is_news(self) -> bool:
        """Whether the log line says something that no message says."""
        said = [self.message, *(detail.message for detail in self.details)]
        firsts = [message.split("\n")[0].strip()[:_ALIKE] for message in said if message.strip()]
        return self.line is not None and not any(first in self.line.text for first in firsts)

    @property
    def blocking(self) -> bool:
        """Whether it keeps the gate from passing."""
        return any(job.blocking for job in self.jobs)

    @property
    def failing_on(self) -> tuple[str, ...]:
        """The labels of where it fails."""
        own = [UPSTREAM_JOBS for place in self.places if place.upstream and not place.passed]
        theirs = [place.label for place in self.places if not place.upstream and not place.passed]
        return tuple(dict.fromkeys([*theirs, *own]))

    @property
    def whose(self) -> str:
        """Whose failure it is: a backend's, upstream's, or shared."""
        return self.failing_on[0] if len(self.failing_on) == 1 else SHARED


@dataclass(frozen=True, kw_only=True)
class FailureCounts:
    """How many failures there are of each kind."""

    kinds: Mapping[str, int]
    more: bool = False  # there are more than were counted

    @property
    def total(self) -> int:
        """How many there are."""
        return sum(self.kinds.values())

    @property
    def phrase(self) -> str:
        """The counts after the name of a backend, as in "2 new failures" or "3 failures, 1 new, 1 known"."""
        counted = [(kind, self.kinds[kind]) for kind in _ordered(self.kinds) if kind]
        least = "at least " if self.more else ""
        if len(self.kinds) == 1 and counted:
            ((kind, _),) = counted
            return least + text.plural(self.total, f"{kind} failure")
        return ", ".join(
            [least + text.plural(self.total, "failure"), *(f"{count} {kind}" for kind, count in counted)]
        )

    @property
    def listed(self) -> str:
        """The counts by kind, as in "1 new, 2 known, 1 without a baseline yet"."""
        return ", ".join(
            f"{self.kinds[kind]} {kind or 'without a baseline yet'}" for kind in _ordered(self.kinds)
        )


@dataclass(frozen=True, kw_only=True)
class FailureList:
    """All failures of a commit; those that the change likely caused come first."""

    first: tuple[Failure, ...]  # new, of which nothing is known, or that block merging
    aside: tuple[Failure, ...]  # likely not the change's
    tests_left: int
    links: tuple[BlockLine, ...]

    @property
    def total(self) -> int:
        """How many there are."""
        return sum(failure.count for failure in self.all) + self.tests_left

    @property
    def all(self) -> tuple[Failure, ...]:
        """The failures that are listed."""
        return (*self.first, *self.aside)

    @property
    def summary(self) -> str:
        """How many of them are new, known, flaky or of a machine, as in "2 failures: 1 new, 1 known"."""
        left = f", {self.tests_left} more tests" if self.tests_left else ""
        return f"{text.plural(self.total, 'failure')}: {_count(self.all).listed}{left}"

    @property
    def aside_summary(self) -> str:
        """The same for failures that the change likely did not cause."""
        return _count(self.aside).listed

    def on_any(self, repos: AbstractSet[str]) -> FailureList:
        """Return the failures on any of these repositories, given in lower case."""
        return replace(
            self,
            first=tuple(failure for failure in self.first if failure.on.keys() & repos),
            aside=tuple(failure for failure in self.aside if failure.on.keys() & repos),
        )

    def on_backend(self, repo: str) -> tuple[Failure, ...]:
        """Return the failures on one backend."""
        return tuple(failure for failure in self.all if repo.lower() in failure.on)

    def count_on(self, repo: str) -> FailureCounts:
        """Count the failures on one backend by kind."""
        kinds: Counter[str] = Counter()
        for failure in self.on_backend(repo):
            kinds[failure.kind_on(repo)] += failure.count
        return FailureCounts(kinds=kinds, more=self.tests_left > 0)


def _of_job(backend: Backend, job: Job) -> FailedJob:
    return _reported(backend.repo, backend.label, job, blocking=backend.decides)


def _reported(repo: str, label: str, job: Job, *, blocking: bool) -> FailedJob:
    return FailedJob(
        key=_key(repo, job),
        label=label,
        name=job.name,
        group=job.workflow,
        word=view.job_word(job),
        attempt=job.run_attempt,
        url=job.url,
        blocking=blocking,
        tests=job.failed_tests,
        failed=max(job.failed or 0, len(job.failed_tests)),
        standing=_standing(job),
        said=job.triage,
    )


def _key(repo: str, job: Job) -> JobKey:
    return JobKey(repo.lower(), job.run_id, job.run_attempt, job.name)


def _standing(job: Job) -> FailureStanding | None:
    if job.history is None or job.history is History.NO_BASELINE:
        return None
    tone: Tone = "bad" if job.history is History.NEW else "warn"
    return FailureStanding(
        word=job.history.value, why=view.explain_history(job), url=job.evidence_url, tone=tone
    )


def _of_backend(backend: Backend) -> FailedJob:
    return FailedJob(
        key=JobKey(backend.repo.lower(), "", 0, ""),
        label=backend.label,
        name="",
        group="",
        word=view.state_word(backend.state),
        attempt=backend.attempt,
        url=backend.run_url,
        blocking=backend.decides,
        said=backend.reason,
    )


def _of_check(repo: str, check: UpstreamCheck) -> FailedJob:
    attempt = check.attempt or 1
    return FailedJob(
        key=key_of(repo, check),
        label=UPSTREAM_JOBS,
        name=check.name,
        group=check.group,
        word=check.outcome,
        attempt=attempt,
        url=f"/{repo}/job/{check.job_id}" if check.job_id else check.url,
        said=check.title,
    )


def _ordered(kinds: Iterable[str]) -> list[str]:
    return sorted(kinds, key=lambda kind: (_RANKS.get(kind, len(_RANKS)), kind))


def _count(failures: Iterable[Failure]) -> FailureCounts:
    kinds: Counter[str] = Counter()
    for failure in failures:
        kinds[failure.kind] += failure.count
    return FailureCounts(kinds=kinds)
