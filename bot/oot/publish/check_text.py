"""Content of check runs: one per backend, one per job where its entry asks for them, and the gate."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from bot.core import escaping, text
from bot.core import text as core_text
from bot.oot.allowlist.entry import Level
from bot.oot.publish import failure_text
from bot.oot.verdict import view
from bot.oot.verdict.verdict import State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from bot.oot.verdict.gate import Gate
    from bot.oot.verdict.view import Backend, Job

ROWS = 100  # of a table; what needs attention comes first, the rest is counted

_NAMES_ONLY = failure_text.FailureExtent(messages=False)
MOST_CHARACTERS = 255
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
    State.NOT_RUN: "neutral",
    State.SKIPPED: "skipped",
    State.NOT_INSTALLED: "failure",
    State.DISPATCH_FAILED: "failure",
}
_JOB_CONCLUSIONS = {"success", "failure", "timed_out", "cancelled", "skipped", "neutral"}
_EVERYTHING = failure_text.FailureExtent(jobs=50, tests=20)  # far more than fits


def summarize_backend(backend: Backend) -> str:
    """Return the state, a table of jobs, failed tests by job, links and the next step."""
    failed = failure_text.failing_jobs(backend, _NAMES_ONLY)
    blocks = [
        _state_line(backend),
        _job_table(backend),
        "\n\n".join(["### Failed", *failed]) if failed else "",
        failure_text.link_line(("All results", backend.page_url), ("run", backend.run_url)),
        failure_text.what_now(backend),
    ]
    return "\n\n".join(block for block in blocks if block)


def summarize_job(backend: Backend, job: Job) -> str:
    """Return the line on one job and a link to all the others."""
    page = failure_text.link_line(("All results of this backend", backend.page_url))
    return "\n\n".join(block for block in (failure_text.job_line(job), page) if block)


def summarize_gate(blocking: Sequence[Backend], page_url: str) -> str:
    """Return a table of the blocking backends, who had which of them ignored and why, and a link to the page."""
    if not blocking:
        return "No backend blocks merging here, so there is nothing to wait for."
    rows = [_gate_row(backend) for backend in blocking[:ROWS]]
    rest = len(blocking) - ROWS
    ignored = [failure_text.describe_ignored(backend) for backend in blocking if backend.ignored_by]
    unknown = [
        f"The level of {escaping.code(backend.label)} is unknown, so it cannot pass."
        for backend in blocking
        if backend.level_unknown
    ]
    blocks = [
        "Green once every backend below has passed on this commit.",
        "\n".join(["| Backend | Result | |", "|---|---|---|", *rows]),
        f"…and {text.plural(rest, 'more backend')}." if rest > 0 else "",
        *ignored,
        *unknown,
        failure_text.link_line(("All backends of this pull request", page_url)),
    ]
    return "\n\n".join(block for block in blocks if block)


def join_name(*parts: str) -> str:
    """Join parts to a name, which ends with their hash if a part was changed or the name is ambiguous.

    The last part may contain a slash, as jobs of called workflows do: it is ambiguous only in earlier parts.
    """
    shown = tuple(escaping.title(part, limit=MOST_CHARACTERS) for part in parts)
    name = " / ".join(shown)
    if shown == parts and len(name) <= MOST_CHARACTERS and not any(" / " in part for part in parts[:-1]):
        return name
    return _marked(name, f" ({hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:8]})")


def gate_name(prefix: str) -> str:
    """Return the name that branch protection requires; no device may be called "gate"."""
    return join_name(prefix, "gate")


def crcr_job_name(repo: str, workflow: str, job: str) -> str:
    """Return the name of a job's check run in the form that today's merge guards read.

    Where a part had to be changed or cut, the name ends with a hash but keeps its form: a guard that cannot read it
    might let a failure pass.
    """
    first, parts = f"crcr/{repo}", (workflow, job)
    shown = [escaping.title(part, limit=MOST_CHARACTERS) for part in parts]
    name = "/".join((first, *shown))
    if tuple(shown) == parts and len(name) <= MOST_CHARACTERS:
        return name
    mark = f" ({hashlib.sha256(json.dumps([repo, *parts]).encode()).hexdigest()[:8]})"
    left = MOST_CHARACTERS - len(f"{first}//{mark}")
    kept = escaping.shorten(shown[0], max(left - len(shown[1]), left // 2))
    return f"{first}/{kept}/{escaping.shorten(shown[1], left - len(kept))}{mark}"


def number_names(names: Iterable[str]) -> list[str]:
    """Number repeated names: two runs of one dispatch may have jobs of the same name."""
    numbered: dict[str, None] = {}
    for name in names:
        chosen, count = name, 1
        while chosen in numbered:
            count += 1
            chosen = _marked(name, f" ({count})")
        numbered[chosen] = None
    return list(numbered)


@dataclass(frozen=True, kw_only=True)
class CheckRun:
    """A check run as it should be on GitHub: names and titles in plain text, the rest in Markdown."""

    name: str
    head_sha: str
    external_id: str  # our own key, never parsed out of the name
    sent_id: str = ""  # what is sent to GitHub in its place
    status: str  # queued | in_progress | completed
    conclusion: str | None = None  # when completed
    title: str
    summary: str  # Markdown
    text: str = ""  # Markdown, shown below the summary
    details_url: str | None = None
    actions: tuple[dict[str, str], ...] = ()
    started_at: int | None = None  # epoch milliseconds
    completed_at: int | None = None  # epoch milliseconds
    annotations: tuple[dict[str, Any], ...] = ()  # in GitHub's format; sent in batches

    def body(self) -> dict[str, Any]:
        """Return what is sent to GitHub without the annotations, cut to its limits with a notice."""
        output = {
            "title": self.title,
            "summary": escaping.cut(self.summary, OUTPUT_BYTES, all_of_it=self.details_url),
            "text": escaping.cut(self.text, OUTPUT_BYTES, all_of_it=self.details_url),
        }
        fields = {
            "name": self.name,
            "head_sha": self.head_sha,
            "external_id": self.sent_id or self.external_id,
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
    """Return the check run of a backend; `failure_conclusion` is how a failure at L3 concludes."""
    finished = backend.state.finished
    return CheckRun(
        name=join_name(prefix, backend.label),
        head_sha=head_sha,
        external_id=external_id,
        status=_status(backend.state),
        conclusion=_conclusion(backend, failure_conclusion) if finished else None,
        title=escaping.title(view.headline(backend)),
        summary=summarize_backend(backend),
        text="\n\n".join(failure_text.failing_jobs(backend, _EVERYTHING)),
        details_url=escaping.url(backend.page_url),
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
    of_pull: int | None = None,
) -> tuple[CheckRun, ...]:
    """Return one check run per job of a backend; all names differ.

    With `of_pull`, the number of the pull request, they are named and identified as today's tools read them, and
    conclude as reported at L3 too.
    """
    if of_pull is None:
        names = number_names(join_name(prefix, backend.label, job.workflow, job.name) for job in backend.jobs)
    else:
        names = number_names(crcr_job_name(backend.repo, job.workflow, job.name) for job in backend.jobs)
        failure_conclusion = "failure"
    return tuple(
        CheckRun(
            name=name,
            head_sha=head_sha,
            external_id=external_id(job),
            sent_id="" if of_pull is None else f"{job.run_id}:{of_pull}",
            status="completed" if job.finished else "in_progress",
            conclusion=_job_conclusion(backend, job, failure_conclusion),
            title=escaping.title(_job_title(backend, job)),
            summary=summarize_job(backend, job),
            text=failure_text.failing_job(job, _EVERYTHING) if job.red else "",
            details_url=escaping.url(job.url) or escaping.url(backend.page_url),
            started_at=job.started_at,
            completed_at=job.completed_at if job.finished else None,
        )
        for job, name in zip(backend.jobs, names, strict=True)
    )


def gate_check(verdict: Gate, *, prefix: str, head_sha: str, external_id: str, page_url: str) -> CheckRun:
    """Return the check run that branch protection requires: green only when all of L4 is."""
    ends = [backend.finished_at for backend in verdict.blocking if backend.finished_at is not None]
    return CheckRun(
        name=gate_name(prefix),
        head_sha=head_sha,
        external_id=external_id,
        status="completed" if verdict.conclusion else "in_progress",
        conclusion=verdict.conclusion,
        title=escaping.title(verdict.title),
        summary=summarize_gate(verdict.blocking, page_url),
        details_url=escaping.url(page_url),
        completed_at=max(ends, default=None) if verdict.conclusion else None,
    )


def _gate_row(backend: Backend) -> str:
    result = f"{view.state_sign(backend.state)} {escaping.text(view.headline(backend))}"
    if backend.ignored_by:
        result += ", ignored"
    results = failure_text.link_line(("results", backend.page_url))
    return f"| {escaping.code(backend.label)} | {result} | {results} |"


def _state_line(backend: Backend) -> str:
    """Return the state and what it means here: whether it blocks, counts, or likely comes from this change."""
    state = (
        f"{view.state_sign(backend.state)} {escaping.code(backend.label)} {view.state_word(backend.state)}"
    )
    reason = escaping.text(backend.reason.strip().removesuffix("."))
    sentences = [f"{state}: {reason}." if reason else f"{state}."]
    if backend.ignored_by:
        sentences.append(failure_text.describe_ignored(backend))
    elif backend.state.red:
        sentences.append(failure_text.describe_weight(backend))
    sentences.append(failure_text.describe_cause([backend]))
    return " ".join(sentence for sentence in sentences if sentence)


def _job_table(backend: Backend) -> str:
    if not backend.jobs:
        return ""
    jobs = failure_text.by_urgency(backend.jobs)
    lines = ["| Job | Result | Took | Queued | Attempt | |", "|---|---|---:|---:|---:|---|"]
    lines += [_row(job) for job in jobs[:ROWS]]
    if len(jobs) > ROWS:
        lines += ["", f"…and {text.plural(len(jobs) - ROWS, 'more job')}."]
    return "\n".join(lines)


def _row(job: Job) -> str:
    cells = [
        escaping.code(view.job_label(job)),
        f"{view.job_sign(job)} {view.job_word(job)}",
        text.duration(job.execution_time),
        text.duration(job.queue_time),
        str(job.run_attempt),
        failure_text.link_line(("log", job.url), ("artifacts", job.artifact_url)),
    ]
    return f"| {' | '.join(cells)} |"


def _marked(name: str, mark: str) -> str:
    return escaping.shorten(name, MOST_CHARACTERS - len(mark)) + mark


def _status(state: State) -> str:
    if state.finished:
        return "completed"
    return "in_progress" if state in {State.RUNNING, State.CONFIRMING} else "queued"


def _conclusion(backend: Backend, failure_conclusion: str) -> str:
    if backend.level == Level.L3 and backend.state.red and failure_conclusion != "failure":
        return failure_conclusion  # L3 turns a pull request red only if its entry says so
    return _CONCLUSIONS[backend.state]


def _job_conclusion(backend: Backend, job: Job, failure_conclusion: str) -> str | None:
    if not job.finished:
        return None
    if job.unsaid and backend.blocks:
        return "failure"
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
    time = core_text.duration(job.execution_time)
    outcome = "did not say how it ended" if job.unsaid else view.job_word(job)
    return (f"{outcome} in {time}" if time else outcome) + f" (L{backend.level})"


def _iso(milliseconds: int | None) -> str | None:
    if milliseconds is None:
        return None
    return datetime.fromtimestamp(milliseconds // 1_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
