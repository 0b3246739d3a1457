"""Markdown of failures, shared by check runs and comment: jobs, tests, what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.core import escaping, text
from bot.oot.verdict import view
from bot.oot.verdict.verdict import State
from bot.oot.verdict.view import History

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.oot.verdict.view import Backend, FailedTest, Job
    from bot.web.blocks import JobLine

LINE_LIMIT = 300  # characters of a line of a log
MESSAGE_LIMIT = 600  # characters; the rest of a message is on the page
TRACE_LIMIT = 1_500  # characters from the end of a stack trace, where the error is

_WHOSE = {
    History.NEW: "new with this change",
    History.KNOWN: "known to fail without this change",
    History.FLAKY: "flaky",
    History.NO_BASELINE: "without a baseline",
}  # in the order of interest to an author
_EVIDENCE = {
    History.NEW: "passing run",
    History.KNOWN: "same failure on base",
    History.FLAKY: "run that passed",
}


@dataclass(frozen=True, kw_only=True)
class FailureExtent:
    """How much of each failing backend is shown."""

    jobs: int = 20  # failing jobs; the others are counted
    tests: int = 5  # failed tests of each job; the others are counted
    messages: bool = True
    traces: bool = True


def failing_jobs(backend: Backend, detail: FailureExtent) -> list[str]:
    """Return a block of Markdown for each failing job, with its failed tests."""
    shown = by_urgency(backend.failing)[: detail.jobs]
    blocks = [failing_job(job, detail) for job in shown]
    rest = len(backend.failing) - len(shown)
    if rest:
        where = escaping.link("their results", backend.page_url)
        blocks.append(f"…and {text.plural(rest, 'more failing job')}: {where}.")
    if backend.lines:
        items = [f"- **{escaping.code(line.job)}** · {_why(line)}" for line in backend.lines[: detail.jobs]]
        blocks.append("\n".join(items))
    return blocks


def failing_job(job: Job, detail: FailureExtent) -> str:
    """Return the line on a failing job and its first failed tests."""
    shown = job.failed_tests[: detail.tests]
    rest = max(job.failed or 0, len(job.failed_tests)) - len(shown)
    why = [_why(line) for line in job.lines]
    if not shown:
        return "\n\n".join([job_line(job, failed=rest), *why])
    items = [_test(test, detail) for test in shown]
    if rest:
        items.append(f"- …and {rest} more")
    return "\n\n".join([job_line(job), *why, "\n".join(items).rstrip()])


def job_line(job: Job, *, failed: int = 0) -> str:
    """Return one line on a job: name, outcome, time, how many tests `failed` if none is listed, history, links."""
    time = text.duration(job.execution_time)
    outcome = f"{view.job_sign(job)} {view.job_word(job)}"
    parts = [
        f"**{escaping.code(view.job_label(job))}** {outcome}" + (time and f" in {time}"),
        text.plural(failed, "failed test") if failed else "",
        view.describe_history(job),
        link_line(("log", job.url), ("artifacts", job.artifact_url), (_evidence(job), job.evidence_url)),
    ]
    return " · ".join(part for part in parts if part)


def link_line(*targets: tuple[str, str | None]) -> str:
    """Return the links that have a target, side by side."""
    return " · ".join(escaping.link(label, to) for label, to in targets if label and escaping.url(to))


def by_urgency(jobs: Sequence[Job]) -> list[Job]:
    """Sort jobs: failing ones first, new failures before others, then running ones, each by name."""
    ranks = {history: rank for rank, history in enumerate(_WHOSE)}

    def urgency(job: Job) -> tuple[bool, int, bool, str, str, str]:
        rank = ranks[job.history or History.NO_BASELINE] if job.red else 0
        return not job.red, rank, job.finished, job.workflow, job.name, job.run_id

    return sorted(jobs, key=urgency)


def describe_missing_baseline(backends: Sequence[Backend]) -> str:
    """Name the backends without anything to compare failures with; empty for none."""
    names = [
        escaping.code(backend.label)
        for backend in backends
        if backend.state.red and any(job.history in (None, History.NO_BASELINE) for job in backend.failing)
    ]
    return f"No baseline yet for {text.listing(names)}: nothing to compare with." if names else ""


def describe_cause(backends: Sequence[Backend]) -> str:
    """Say in one sentence whether this change likely caused the failures; empty without failures."""
    histories = [job.history or History.NO_BASELINE for backend in backends for job in backend.failing]
    kinds = [(histories.count(kind), phrase) for kind, phrase in _WHOSE.items()]
    if not histories:
        return ""
    if len(histories) == 1:
        return f"The failing job is {_WHOSE[histories[0]]}."
    if len(set(histories)) == 1:
        return f"All {len(histories)} failing jobs are {_WHOSE[histories[0]]}."
    parts = [f"{count} {'is' if count == 1 else 'are'} {kind}" for count, kind in kinds if count]
    return f"Of {len(histories)} failing jobs, {', '.join(parts)}."


def describe_weight(backend: Backend) -> str:
    """Say what a red backend means for the pull request."""
    if backend.blocks:
        return "This blocks merging."
    return f"Level {backend.level}: this does not block merging."


def describe_ignored(backend: Backend) -> str:
    """Say who had a backend ignored here, and why."""
    by = escaping.code(backend.ignored_by or "")
    reason = escaping.text((backend.ignored_reason or "").strip().removesuffix("."))
    name = escaping.code(backend.label)
    return f"{name} is ignored on this commit by {by}: {reason or 'no reason given'}."


def what_now(backend: Backend) -> str:
    """Say what a person can do about a red or held backend; empty for any other."""
    name = escaping.code(backend.label)
    command = escaping.code(f"/oot rerun {backend.label}")
    match backend.state:
        case State.FAILURE | State.TIMED_OUT:
            return f"Push a fix, or comment {command} to run the failed jobs again."
        case State.NEVER_STARTED:
            return f"The CI of {name} has not answered. Comment {command} to ask it again."
        case State.NOT_INSTALLED:
            repo = escaping.code(backend.repo)
            return f"The maintainers of {repo} install the App; then comment {command}."
        case State.DISPATCH_FAILED:
            return f"Nothing runs on {name}. Comment {command} to try again."
        case State.HELD:
            label = escaping.code(view.OK_TO_TEST)
            return f"Somebody with write access reads the change and adds the label {label}."
    return ""


def message_block(message: str | None, trace: str | None, detail: FailureExtent) -> str:
    """Return message and stack trace for below a list item; empty if there are none."""
    body = _message(message, trace, detail)
    return _indented(escaping.fence(body)) if body else ""


def _why(line: JobLine) -> str:
    """Return what a log says of a failure: its kind, the line and its place."""
    code = escaping.code(line.code, limit=LINE_LIMIT) if line.code else ""
    parts = [escaping.text(line.words), code, link_line((line.place, line.url))]
    return " · ".join(part for part in parts if part)


def _evidence(job: Job) -> str:
    if job.history is History.KNOWN and job.evidence_elsewhere:
        return "same failure there"
    return _EVIDENCE.get(job.history, "") if job.history else ""


def _test(test: FailedTest, detail: FailureExtent) -> str:
    name = f"{test.classname}.{test.name}" if test.classname else test.name
    line = f"- {escaping.code(name)}"
    if test.file:
        place = test.file if test.line is None else f"{test.file}:{test.line}"
        line += f" at {escaping.code(place)}"
    block = message_block(test.message, test.stacktrace, detail)
    return f"{line}\n\n{block}\n" if block else line


def _message(message: str | None, trace: str | None, detail: FailureExtent) -> str:
    parts = []
    if detail.messages and message:
        parts.append(escaping.shorten(escaping.clean(message).strip(), MESSAGE_LIMIT))
    if detail.messages and detail.traces and trace:
        shown = escaping.clean(trace).strip()
        parts.append(shown if len(shown) <= TRACE_LIMIT else "…" + shown[-TRACE_LIMIT:])
    return "\n\n".join(part for part in parts if part)


def _indented(block: str) -> str:
    return "\n".join(f"  {line}" if line else "" for line in block.split("\n"))
