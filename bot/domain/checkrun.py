"""What does a check run say? One per backend, one per job where asked for, and the gate.

Pure: the same backend gives the same check run, byte for byte. Sending it is the publish task's.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from bot.domain import failures, inert, naming, summary, words
from bot.domain.allowlist_entry import Level
from bot.domain.view import State

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bot.domain.view import Backend, Job

OUTPUT_BYTES = 65_535  # of summary and of text, each; GitHub counts bytes

RERUN_FAILED = {
    "label": "Re-run failed",
    "description": "Run the failed jobs again",
    "identifier": "rerun-failed",
}
RERUN_ALL = {
    "label": "Re-run all",
    "description": "Run every job of this backend again",
    "identifier": "rerun-all",
}

_CONCLUSIONS = {
    State.SUCCESS: "success",
    State.FAILURE: "failure",
    State.TIMED_OUT: "timed_out",
    State.CANCELLED: "cancelled",
    State.NEUTRAL: "neutral",
    State.NEVER_STARTED: "failure",
    State.NOT_INSTALLED: "failure",
    State.DISPATCH_FAILED: "failure",
}
_JOB_CONCLUSIONS = {"success", "failure", "timed_out", "cancelled", "skipped", "neutral"}
_EVERYTHING = failures.Detail(jobs=50, tests=20)  # far more than fits


@dataclass(frozen=True, kw_only=True)
class CheckRun:
    """One check run as it should be on GitHub: names and titles plain text, the rest Markdown."""

    name: str
    head_sha: str
    external_id: str  # our own key, never parsed out of the name
    status: str  # queued | in_progress | completed
    conclusion: str | None = None  # when completed
    title: str
    summary: str  # Markdown
    text: str = ""  # Markdown, shown below the summary
    details_url: str | None = None
    actions: tuple[dict[str, str], ...] = ()
    started_at: int | None = None  # epoch milliseconds
    completed_at: int | None = None  # epoch milliseconds
    annotations: tuple[dict[str, Any], ...] = ()  # as GitHub takes them, in lots

    def body(self) -> dict[str, Any]:
        """Return what is sent to GitHub but the annotations, cut to its limits with a notice that says so."""
        output = {
            "title": self.title,
            "summary": inert.cut(self.summary, OUTPUT_BYTES, all_of_it=self.details_url),
            "text": inert.cut(self.text, OUTPUT_BYTES, all_of_it=self.details_url),
        }
        fields = {
            "name": self.name,
            "head_sha": self.head_sha,
            "external_id": self.external_id,
            "status": self.status,
            "conclusion": self.conclusion,
            "details_url": self.details_url,
            "started_at": _iso(self.started_at),
            "completed_at": _iso(self.completed_at),
            "output": {key: value for key, value in output.items() if value},
            "actions": [dict(action) for action in self.actions],
        }
        return {key: value for key, value in fields.items() if value is not None}


def backend_check(
    backend: Backend,
    *,
    prefix: str,
    head_sha: str,
    external_id: str,
    failure_conclusion: str,
) -> CheckRun:
    """Return the check run of a backend; an L3 failure concludes as `failure_conclusion` says."""
    finished = backend.state.finished
    return CheckRun(
        name=naming.joined(prefix, backend.label),
        head_sha=head_sha,
        external_id=external_id,
        status=_status(backend.state),
        conclusion=_conclusion(backend, failure_conclusion) if finished else None,
        title=inert.title(words.verdict(backend)),
        summary=summary.of_backend(backend),
        text="\n\n".join(failures.failing_jobs(backend, _EVERYTHING)),
        details_url=inert.url(backend.page_url),
        actions=_actions(backend.state),
        started_at=_first_start(backend),
        completed_at=backend.finished_at if finished else None,
    )


def job_checks(
    backend: Backend,
    *,
    prefix: str,
    head_sha: str,
    external_id: Callable[[Job], str],
    failure_conclusion: str,
) -> tuple[CheckRun, ...]:
    """Return one check run per job of a backend, for entries that ask for `checks: jobs`; no two of one name."""
    names = naming.numbered(
        naming.joined(prefix, backend.label, job.workflow, job.name) for job in backend.jobs
    )
    return tuple(
        CheckRun(
            name=name,
            head_sha=head_sha,
            external_id=external_id(job),
            status="completed" if job.finished else "in_progress",
            conclusion=_job_conclusion(backend, job, failure_conclusion),
            title=inert.title(_job_title(backend, job)),
            summary=summary.of_job(backend, job),
            text=failures.failing_job(job, _EVERYTHING) if job.red else "",
            details_url=inert.url(job.url) or inert.url(backend.page_url),
            started_at=job.started_at,
            completed_at=job.completed_at if job.finished else None,
        )
        for job, name in zip(backend.jobs, names, strict=True)
    )


def gate_check(
    backends: Sequence[Backend],
    *,
    prefix: str,
    head_sha: str,
    external_id: str,
    page_url: str,
    unknown: str = "",
) -> CheckRun:
    """Return the aggregate that branch protection requires: green only when all of L4 is.

    `unknown` says why nobody can tell which backends block; the gate then waits.
    """
    blocking = sorted((b for b in backends if b.blocks), key=lambda b: (b.label, b.repo))
    conclusion, title = (None, f"waiting: {unknown}") if unknown else _gate_verdict(blocking)
    ends = [b.finished_at for b in blocking if b.finished_at is not None]
    return CheckRun(
        name=naming.gate(prefix),
        head_sha=head_sha,
        external_id=external_id,
        status="completed" if conclusion else "in_progress",
        conclusion=conclusion,
        title=inert.title(title),
        summary=summary.of_gate(blocking, page_url),
        details_url=inert.url(page_url),
        completed_at=max(ends, default=None) if conclusion else None,
    )


def _gate_verdict(blocking: Sequence[Backend]) -> tuple[str | None, str]:
    """Return conclusion and title; whoever is neither passed nor ignored keeps the gate shut."""
    counted = [b for b in blocking if b.decides]
    failed = [b for b in counted if b.state.finished and b.state is not State.SUCCESS]
    missing = [b for b in counted if not b.state.finished or b.level_unknown]
    if not blocking:
        return "success", "no blocking backend"
    if failed:
        return "failure", words.listing([f"{b.label} {words.word(b.state)}" for b in failed])
    if missing:
        return None, _missing(missing)
    passed = f"{words.plural(len(counted), 'blocking backend')} passed"
    ignored = len(blocking) - len(counted)
    return "success", f"{passed}, {ignored} ignored" if ignored else passed


def _missing(backends: Sequence[Backend]) -> str:
    awaited = [b.label for b in backends if b.state is not State.HELD]
    parts = [f"waiting for {words.listing(awaited)}"] if awaited else []
    if len(awaited) < len(backends):
        parts.append(f"needs {words.OK_TO_TEST}")
    return "; ".join(parts)


def _status(state: State) -> str:
    if state.finished:
        return "completed"
    return "in_progress" if state in {State.RUNNING, State.CONFIRMING} else "queued"


def _conclusion(backend: Backend, failure_conclusion: str) -> str:
    if backend.level == Level.L3 and backend.state.red and failure_conclusion != "failure":
        return failure_conclusion  # an L3 backend never turns a pull request red unless its entry says so
    return _CONCLUSIONS[backend.state]


def _job_conclusion(backend: Backend, job: Job, failure_conclusion: str) -> str | None:
    if not job.finished:
        return None
    conclusion = job.conclusion if job.conclusion in _JOB_CONCLUSIONS else "failure"
    if (
        backend.level == Level.L3
        and conclusion in {"failure", "timed_out"}
        and failure_conclusion != "failure"
    ):
        return failure_conclusion
    return conclusion


def _actions(state: State) -> tuple[dict[str, str], ...]:
    if not state.finished:
        return ()
    return (RERUN_FAILED, RERUN_ALL) if state.red else (RERUN_ALL,)


def _first_start(backend: Backend) -> int | None:
    starts = [job.started_at for job in backend.jobs if job.started_at is not None]
    return min(starts, default=None)


def _job_title(backend: Backend, job: Job) -> str:
    time = words.duration(job.execution_time)
    outcome = words.job_word(job)
    return (f"{outcome} in {time}" if time else outcome) + f" (L{backend.level})"


def _iso(milliseconds: int | None) -> str | None:
    if milliseconds is None:
        return None
    return datetime.fromtimestamp(milliseconds // 1_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
