"""Upstream's own CI on a commit, what an earlier attempt failed, and the one list of failures that pages show."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.core.escaping import web_url
from bot.evidence.logs import failure_lines
from bot.evidence.tests import failing
from bot.jobs import failures as branch_failures
from bot.oot.verdict import view
from bot.oot.verdict.failure import UPSTREAM_JOBS, key_of, keys_by_id, list_own
from bot.oot.verdict.failure_list import list_failures
from bot.oot.verdict.verdict import RED_CONCLUSIONS
from bot.oot.verdict.view import job_of
from bot.pages.backends import job_rows
from bot.pages.jobs.run import find_jobs_elsewhere
from bot.web.failures import FailuresSubject, merge_failures

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from bot.ingest.record_rows import CheckRunRow, WorkflowJobRow
    from bot.oot.results.tables import JobRow
    from bot.oot.verdict.failure import FailedJob, FailureList
    from bot.oot.verdict.view import Job
    from bot.pages.jobs.run import JobElsewhere
    from bot.web.failures import JobKey
    from bot.web.parameters import Query

_WORDS = {"success": "passed", "failure": "failed", "in_progress": "running"}  # as for backends
MOST_UPSTREAM = 2_000  # jobs of a commit, and as many checks


@dataclass(frozen=True, kw_only=True)
class UpstreamCheck:
    """A workflow job, a job on another CI, or a check run that belongs to none."""

    group: str  # the workflow, or the app
    name: str
    status: str
    conclusion: str | None
    url: str | None
    attempt: int | None = None
    seconds: float | None = None
    queued: float | None = None  # seconds that a job waited for its runner
    title: str = ""
    job_id: int | None = None  # GitHub's, of a workflow job; of its run the next
    run_id: int | None = None

    @property
    def tone(self) -> str:
        """The colour and sign it is shown with."""
        if self.status != "completed":
            return "wait"
        if self.conclusion in RED_CONCLUSIONS:
            return "bad"
        return "good" if self.conclusion == "success" else "idle"

    @property
    def outcome(self) -> str:
        """Its outcome in one word."""
        word = (self.conclusion if self.status == "completed" else self.status) or "unknown"
        return _WORDS.get(word, word.replace("_", " "))


@dataclass(frozen=True, kw_only=True)
class UpstreamCi:
    """Upstream's own workflow jobs, its jobs on other CIs, and the checks of other Apps on a commit."""

    jobs: list[WorkflowJobRow]  # of GitHub Actions, every attempt
    elsewhere: dict[int, UpstreamCheck]  # jobs on other CIs, by the number that the grid has for them
    checks: list[UpstreamCheck]  # each job and check once, the red ones first

    @property
    def running(self) -> bool:
        """Whether any of them is unfinished."""
        return any_running(self.checks)

    @property
    def counts(self) -> str:
        """How many passed and failed."""
        return describe_counts(self.checks)


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
class CurrentJobs:
    """The jobs of a backend that count."""

    label: str
    jobs: Sequence[Job]


def merge_checks(
    jobs: Iterable[WorkflowJobRow],
    checks: Iterable[CheckRunRow],
    others: Iterable[UpstreamCheck] = (),
    *,
    ours: int,
) -> list[UpstreamCheck]:
    """Return upstream's own checks, the red ones first, without those of our App, whose id is `ours`.

    `others` are its jobs on other CIs.
    """
    latest: dict[tuple[str | None, str | None, int | None], WorkflowJobRow] = {}
    identifiers = set()
    for row in jobs:
        identifiers.add(row["id"])
        name = (row["workflow_name"], row["name"], row["run_id"])
        known = latest.get(name)
        if known is None or (row["run_attempt"] or 1) >= (known["run_attempt"] or 1):
            latest[name] = row
    newest: dict[tuple[str | None, str | None], CheckRunRow] = {}
    for check in checks:
        # every workflow job is also a check run, with the same id
        if check["id"] not in identifiers and check["app_id"] != ours:
            newest[check["app_slug"], check["name"]] = check
    merged = [*map(_job, latest.values()), *others, *map(_check, newest.values())]
    order = {"bad": 0, "wait": 1, "good": 2, "idle": 3}
    return sorted(merged, key=lambda check: (order[check.tone], check.group, check.name))


def list_overtaken(jobs: Iterable[WorkflowJobRow]) -> list[tuple[UpstreamCheck, UpstreamCheck]]:
    """Return the failed attempts of jobs that ran again, each with the latest attempt."""
    attempts: dict[tuple[str | None, str | None, int | None], list[WorkflowJobRow]] = {}
    for row in jobs:
        attempts.setdefault((row["workflow_name"], row["name"], row["run_id"]), []).append(row)
    overtaken = []
    for rows in attempts.values():
        newest = max(rows, key=lambda row: row["run_attempt"] or 1)
        before = [_job(row) for row in rows if (row["run_attempt"] or 1) < (newest["run_attempt"] or 1)]
        overtaken += [(check, _job(newest)) for check in before if check.tone == "bad"]
    return overtaken


def any_running(checks: Iterable[UpstreamCheck]) -> bool:
    """Return whether any of them is unfinished."""
    return any(check.tone == "wait" for check in checks)


def describe_counts(checks: Sequence[UpstreamCheck]) -> str:
    """Return their counts, as in "3 of 4 passed, 1 failed"."""
    tones = Counter(check.tone for check in checks)
    parts = [f"{tones['good']} of {len(checks)} passed"]
    parts += [f"{tones['bad']} failed"] if tones["bad"] else []
    parts += [f"{tones['wait']} running"] if tones["wait"] else []
    return ", ".join(parts)


def seconds_between(earlier: int | None, later: int | None) -> float | None:
    """Return the seconds between two times; None if either is unknown."""
    return None if earlier is None or later is None else float(max(0, later - earlier)) / 1000


async def read_upstream_ci(query: Query, repo: str, sha: str) -> UpstreamCi:
    """Return upstream's own CI on a commit, without the check runs of our App."""
    tx, ours = query.tx, query.settings.app_id
    jobs = await job_rows.upstream_jobs(tx, repo, sha, limit=MOST_UPSTREAM)
    checks = await job_rows.upstream_checks(tx, repo, sha, limit=MOST_UPSTREAM)
    others = {job.id: _check_elsewhere(job) for job in await find_jobs_elsewhere(tx, repo, sha)}
    merged = merge_checks(jobs, checks, others.values(), ours=ours)
    return UpstreamCi(jobs=jobs, elsewhere=others, checks=merged)


def list_earlier(
    reported: Iterable[JobRow], current: Mapping[str, CurrentJobs], own: Iterable[WorkflowJobRow], repo: str
) -> list[EarlierFailure]:
    """List the failures that no longer count; `current` holds backends by their names in lower case."""
    return [*_earlier_of_backends(reported, current), *_earlier_of_upstream(own, repo)]


async def read_failure_list(
    query: Query,
    repo: str,
    sha: str,
    *,
    reported: Sequence[FailedJob],
    passed: AbstractSet[JobKey],
    own: UpstreamCi,
    of_pull: bool,
    judged: AbstractSet[str] = frozenset(),
    base_ref: str | None = None,
) -> FailureList:
    """List the failures on a commit: those `reported` by backends, its `own`, and what logs and tests say of them.

    `passed` and `judged`: see `list_failures`.
    """
    keys = {
        **keys_by_id(repo, own.jobs),
        **{number: key_of(repo, check) for number, check in own.elsewhere.items()},
    }
    failed = list_own(repo, own.checks)
    subject = FailuresSubject(
        repo=repo,
        sha=sha,
        base_ref=base_ref,
        of_pull=of_pull,
        upstream_jobs=keys,
        github=web_url(query.settings.github_api_url),
        settings=query.settings,
    )
    known = merge_failures(
        [
            await branch_failures.find_failures(query.tx, subject),
            await failure_lines.find_failures(query.tx, subject),
            await failing.find_failures(query.tx, subject),
        ]
    )
    ended = {keys[row["id"]] for row in own.jobs if row["status"] == "completed"}
    ended |= {keys[number] for number, check in own.elsewhere.items() if check.status == "completed"}
    others = ended - {job.key for job in failed}
    return list_failures([*reported, *failed], known, passed=passed | others, judged=judged)


def _job(row: WorkflowJobRow) -> UpstreamCheck:
    return UpstreamCheck(
        group=row["workflow_name"] or "workflow",
        name=row["name"] or "",
        status=row["status"] or "",
        conclusion=row["conclusion"],
        url=row["html_url"],
        attempt=row["run_attempt"],
        seconds=_seconds(row),
        queued=seconds_between(row["created_at"], row["started_at"]),
        job_id=row["id"],
        run_id=row["run_id"],
    )


def _check(row: CheckRunRow) -> UpstreamCheck:
    return UpstreamCheck(
        group=row["app_slug"] or "check run",
        name=row["name"] or "",
        status=row["status"] or "",
        conclusion=row["conclusion"],
        url=row["html_url"],
        seconds=_seconds(row),
        title=row["output_title"] or "",
    )


def _seconds(row: WorkflowJobRow | CheckRunRow) -> float | None:
    return seconds_between(row["started_at"], row["completed_at"])


def _check_elsewhere(job: JobElsewhere) -> UpstreamCheck:
    allowed = job.conclusion == "allowed"
    return UpstreamCheck(
        group=job.workflow or "commit status",
        name=job.name,
        status=job.status,
        conclusion="neutral" if allowed else job.conclusion,
        url=job.url,
        attempt=job.attempt,
        seconds=seconds_between(job.started_at, job.completed_at),
        queued=seconds_between(job.queued_at, job.started_at),
        title="failed, which is allowed" if allowed else "",
    )


def _earlier_of_backends(
    reported: Iterable[JobRow], current: Mapping[str, CurrentJobs]
) -> list[EarlierFailure]:
    counting = {
        (repo, *_attempt_of(job), job.workflow, job.name)
        for repo, backend in current.items()
        for job in backend.jobs
    }
    failures = []
    for row in reported:
        job, repo = job_of(row), row["downstream_repo"].lower()
        backend = current.get(repo)
        if not job.red or backend is None:
            continue
        if (repo, *_attempt_of(job), job.workflow, job.name) in counting:
            continue
        failures.append(
            EarlierFailure(
                label=backend.label,
                name=view.job_label(job),
                attempt=job.run_attempt,
                word=view.job_word(job),
                url=job.url,
                since=_word_since(job, backend.jobs),
            )
        )
    return failures


def _word_since(job: Job, jobs: Iterable[Job]) -> str:
    now = [other for other in jobs if (other.workflow, other.name) == (job.workflow, job.name)]
    if not now:
        return "has not run again yet"
    last = max(now, key=_attempt_of)
    if last.run_id != job.run_id:
        return f"{view.job_word(last)} in a later run"
    return f"{view.job_word(last)} in attempt {last.run_attempt}"


def _attempt_of(job: Job) -> tuple[str, int]:
    return job.run_id, job.run_attempt


def _earlier_of_upstream(own: Iterable[WorkflowJobRow], repo: str) -> list[EarlierFailure]:
    return [
        EarlierFailure(
            label=UPSTREAM_JOBS,
            name=f"{check.group} / {check.name}",
            attempt=check.attempt or 1,
            word=check.outcome,
            url=f"/{repo}/job/{check.job_id}",
            since=f"{newest.outcome} in attempt {newest.attempt}",
        )
        for check, newest in list_overtaken(own)
    ]
