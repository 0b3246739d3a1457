"""The failed jobs of a commit as its list of failures names them: those of backends, and upstream's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.oot.verdict import words
from bot.oot.verdict.view import History
from bot.web.failures import JobKey, Standing

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bot.ingest.rows import WorkflowJobRow
    from bot.oot.verdict.upstream_checks import UpstreamCheck
    from bot.oot.verdict.view import Backend, FailedTest, Job
    from bot.web.blocks import Tone

UPSTREAM = "upstream"  # what its own jobs are said to be of


@dataclass(frozen=True, kw_only=True, eq=False)
class FailedJob:
    """A failed job, or a backend that failed without one; compared by identity: it may have a thousand tests."""

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
    standing: Standing | None = None
    said: str = ""  # why it failed, according to its backend or its check run

    @property
    def is_upstream(self) -> bool:
        """Whether it is upstream's own."""
        return self.label == UPSTREAM


def list_reported(backends: Iterable[Backend]) -> list[FailedJob]:
    """Return the failed jobs of backends; of one that failed without any, the backend itself."""
    found: list[FailedJob] = []
    for one in backends:
        if one.state.red:
            found += [_of_job(one, job) for job in one.failing] or [_of_backend(one)]
    return found


def list_passed(backends: Iterable[Backend]) -> set[JobKey]:
    """Return the jobs of backends that ended and are no failures: they did not fail, or their backend did not."""
    return {
        _key(one.repo, job)
        for one in backends
        for job in one.jobs
        if job.finished and not (one.state.red and job.red)
    }


def list_judged(backends: Iterable[Backend]) -> set[str]:
    """Return the backends all of whose jobs have ended, by their names in lower case."""
    return {one.repo.lower() for one in backends if one.jobs and all(job.finished for job in one.jobs)}


def list_jobs(repo: str, label: str, jobs: Iterable[Job]) -> list[FailedJob]:
    """Return the failed jobs that a backend reported on a pushed commit."""
    return [_reported(repo, label, job, blocking=False) for job in jobs if job.red]


def list_unfailed(repo: str, jobs: Iterable[Job]) -> set[JobKey]:
    """Return the jobs that ended and did not fail of those a backend reported on a pushed commit."""
    return {_key(repo, job) for job in jobs if job.finished and not job.red}


def list_own(repo: str, checks: Iterable[UpstreamCheck]) -> list[FailedJob]:
    """Return upstream's own failed jobs, and the failed checks of other Apps."""
    return [_of_check(repo, one) for one in checks if one.tone == "bad"]


def key_of(repo: str, one: UpstreamCheck) -> JobKey:
    """Return the key of one of upstream's own jobs or checks."""
    return JobKey(repo.lower(), str(one.run_id or ""), one.attempt or 1, one.name)


def keys_by_id(repo: str, jobs: Sequence[WorkflowJobRow]) -> Mapping[int, JobKey]:
    """Return upstream's jobs by GitHub's ids."""
    return {
        row["id"]: JobKey(repo.lower(), str(row["run_id"]), row["run_attempt"] or 1, row["name"] or "")
        for row in jobs
    }


def _of_job(backend: Backend, job: Job) -> FailedJob:
    return _reported(backend.repo, backend.label, job, blocking=backend.decides)


def _reported(repo: str, label: str, job: Job, *, blocking: bool) -> FailedJob:
    return FailedJob(
        key=_key(repo, job),
        label=label,
        name=job.name,
        group=job.workflow,
        word=words.job_word(job),
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


def _standing(job: Job) -> Standing | None:
    if job.history is None or job.history is History.NO_BASELINE:
        return None
    tone: Tone = "bad" if job.history is History.NEW else "warn"
    return Standing(word=job.history.value, why=words.explain_history(job), url=job.evidence_url, tone=tone)


def _of_backend(backend: Backend) -> FailedJob:
    return FailedJob(
        key=JobKey(backend.repo.lower(), "", 0, ""),
        label=backend.label,
        name="",
        group="",
        word=words.word(backend.state),
        attempt=backend.attempt,
        url=backend.run_url,
        blocking=backend.decides,
        said=backend.reason,
    )


def _of_check(repo: str, one: UpstreamCheck) -> FailedJob:
    attempt = one.attempt or 1
    return FailedJob(
        key=key_of(repo, one),
        label=UPSTREAM,
        name=one.name,
        group=one.group,
        word=one.outcome,
        attempt=attempt,
        url=f"/{repo}/job/{one.job_id}" if one.job_id else one.url,
        said=one.title,
    )
