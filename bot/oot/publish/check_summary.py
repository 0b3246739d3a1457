"""Summaries of check runs: the Markdown of a backend, a job and the gate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.core import escaping, text
from bot.oot.publish import failure_text
from bot.oot.verdict import words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.oot.verdict.view import Backend, Job

ROWS = 100  # of a table; what needs attention comes first, the rest is counted

_NAMES_ONLY = failure_text.Detail(messages=False)


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
    """Return a table of the blocking backends, who had which ignored and why, and a link to the page."""
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


def _gate_row(backend: Backend) -> str:
    result = f"{words.sign(backend.state)} {escaping.text(words.headline(backend))}"
    if backend.ignored_by:
        result += ", ignored"
    results = failure_text.link_line(("results", backend.page_url))
    return f"| {escaping.code(backend.label)} | {result} | {results} |"


def _state_line(backend: Backend) -> str:
    """Return the state and what it means here: whether it blocks, counts, is likely caused by this change."""
    state = f"{words.sign(backend.state)} {escaping.code(backend.label)} {words.word(backend.state)}"
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
        escaping.code(words.job_label(job)),
        f"{words.job_sign(job)} {words.job_word(job)}",
        text.duration(job.execution_time),
        text.duration(job.queue_time),
        str(job.run_attempt),
        failure_text.link_line(("log", job.url), ("artifacts", job.artifact_url)),
    ]
    return f"| {' | '.join(cells)} |"
