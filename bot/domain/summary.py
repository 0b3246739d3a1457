"""What does one read after opening a check run? The Markdown of a backend, a job and the gate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.domain import failures, inert, words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.domain.view import Backend, Job

ROWS = 100  # of a table; what needs a look comes first, the others are counted

_NAMES_ONLY = failures.Detail(messages=False)


def of_backend(backend: Backend) -> str:
    """Return standing, table of jobs, failed tests by job, links and the next step."""
    failed = failures.failing_jobs(backend, _NAMES_ONLY)
    blocks = [
        _standing(backend),
        _job_table(backend),
        "\n\n".join(["### Failed", *failed]) if failed else "",
        failures.links(("All results", backend.page_url), ("run", backend.run_url)),
        failures.what_now(backend),
    ]
    return "\n\n".join(block for block in blocks if block)


def of_job(backend: Backend, job: Job) -> str:
    """Return the line on one job and the way to all the others."""
    page = failures.links(("All results of this backend", backend.page_url))
    return "\n\n".join(block for block in (failures.job_line(job), page) if block)


def of_gate(blocking: Sequence[Backend], page_url: str) -> str:
    """Return a table of the backends that decide, who was ignored and why, and the page."""
    if not blocking:
        return "No backend blocks merging here, so there is nothing to wait for."
    rows = [_gate_row(backend) for backend in blocking[:ROWS]]
    rest = len(blocking) - ROWS
    ignored = [failures.ignored(backend) for backend in blocking if backend.ignored_by]
    unknown = [
        f"The level of {inert.code(backend.label)} is unknown, so it cannot pass."
        for backend in blocking
        if backend.level_unknown
    ]
    blocks = [
        "Green once every backend below has passed on this commit.",
        "\n".join(["| Backend | Result | |", "|---|---|---|", *rows]),
        f"…and {words.plural(rest, 'more backend')}." if rest > 0 else "",
        *ignored,
        *unknown,
        failures.links(("All backends of this pull request", page_url)),
    ]
    return "\n\n".join(block for block in blocks if block)


def _gate_row(backend: Backend) -> str:
    result = f"{words.sign(backend.state)} {inert.text(words.verdict(backend))}"
    if backend.ignored_by:
        result += ", ignored"
    results = failures.links(("results", backend.page_url))
    return f"| {inert.code(backend.label)} | {result} | {results} |"


def _standing(backend: Backend) -> str:
    """Return what the verdict means here: whether it blocks, counts, looks like this change's."""
    state = f"{words.sign(backend.state)} {inert.code(backend.label)} {words.word(backend.state)}"
    reason = inert.text(backend.reason.strip().removesuffix("."))
    sentences = [f"{state}: {reason}." if reason else f"{state}."]
    if backend.ignored_by:
        sentences.append(failures.ignored(backend))
    elif backend.state.red:
        sentences.append(failures.weight(backend))
    sentences.append(failures.whose([backend]))
    return " ".join(sentence for sentence in sentences if sentence)


def _job_table(backend: Backend) -> str:
    if not backend.jobs:
        return ""
    jobs = failures.by_urgency(backend.jobs)
    lines = ["| Job | Result | Took | Queued | Attempt | |", "|---|---|---:|---:|---:|---|"]
    lines += [_row(job) for job in jobs[:ROWS]]
    if len(jobs) > ROWS:
        lines += ["", f"…and {words.plural(len(jobs) - ROWS, 'more job')}."]
    return "\n".join(lines)


def _row(job: Job) -> str:
    cells = [
        inert.code(words.job_label(job)),
        f"{words.job_sign(job)} {words.job_word(job)}",
        words.duration(job.execution_time),
        words.duration(job.queue_time),
        str(job.run_attempt),
        failures.links(("log", job.url), ("artifacts", job.artifact_url)),
    ]
    return f"| {' | '.join(cells)} |"
