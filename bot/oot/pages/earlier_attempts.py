"""What an earlier attempt failed: of the jobs that ran again, on a head of a pull request or on any commit. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.oot.verdict import upstream_checks, words
from bot.oot.verdict.failed_jobs import UPSTREAM
from bot.oot.verdict.view import job_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bot.ingest.rows import WorkflowJobRow
    from bot.oot.results.tables import JobRow
    from bot.oot.verdict.view import Job


@dataclass(frozen=True, kw_only=True)
class EarlierFailure:
    """An attempt of a job that failed, and what became of the job since."""

    label: str  # whose job it is
    name: str
    attempt: int
    word: str  # how it ended
    url: str | None
    since: str  # what became of the job since


@dataclass(frozen=True, kw_only=True)
class Current:
    """The jobs of a backend that count."""

    label: str
    jobs: Sequence[Job]


def list_earlier(
    reported: Iterable[JobRow], current: Mapping[str, Current], own: Iterable[WorkflowJobRow], repo: str
) -> list[EarlierFailure]:
    """Return what failed and does not count any more; `current` are backends by their names in lower case."""
    return [*_of_backends(reported, current), *_of_upstream(own, repo)]


def _of_backends(reported: Iterable[JobRow], current: Mapping[str, Current]) -> list[EarlierFailure]:
    counting = {
        (repo, *_attempt(job), job.workflow, job.name) for repo, one in current.items() for job in one.jobs
    }
    found = []
    for row in reported:
        job, repo = job_of(row), row["downstream_repo"].lower()
        backend = current.get(repo)
        if not job.red or backend is None:
            continue
        if (repo, *_attempt(job), job.workflow, job.name) in counting:
            continue
        found.append(
            EarlierFailure(
                label=backend.label,
                name=words.job_label(job),
                attempt=job.run_attempt,
                word=words.job_word(job),
                url=job.url,
                since=_since(job, backend.jobs),
            )
        )
    return found


def _since(job: Job, jobs: Iterable[Job]) -> str:
    now = [one for one in jobs if (one.workflow, one.name) == (job.workflow, job.name)]
    if not now:
        return "has not run again yet"
    last = max(now, key=_attempt)
    if last.run_id != job.run_id:
        return f"{words.job_word(last)} in a later run"
    return f"{words.job_word(last)} in attempt {last.run_attempt}"


def _attempt(job: Job) -> tuple[str, int]:
    return job.run_id, job.run_attempt


def _of_upstream(own: Iterable[WorkflowJobRow], repo: str) -> list[EarlierFailure]:
    return [
        EarlierFailure(
            label=UPSTREAM,
            name=f"{one.group} / {one.name}",
            attempt=one.attempt or 1,
            word=one.outcome,
            url=f"/{repo}/job/{one.job_id}",
            since=f"{newest.outcome} in attempt {newest.attempt}",
        )
        for one, newest in upstream_checks.list_overtaken(own)
    ]
