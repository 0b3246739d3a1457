"""Words for states, outcomes, counts and verdicts, as check runs, comment and pages show them.

Plain text, not escaped: names and reasons are passed on as they came, so callers escape the result
(`bot.core.escaping`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.core.text import duration, plural
from bot.oot.verdict.verdict import State
from bot.oot.verdict.view import History

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bot.oot.verdict.view import Backend, Job

OK_TO_TEST = "oot/ok-to-test"  # the label that releases a held dispatch

_STATES = {
    State.QUEUED: ("⏳", "queued"),
    State.RUNNING: ("⏳", "running"),
    State.CONFIRMING: ("⏳", "being confirmed"),
    State.HELD: ("✋", "held back"),
    State.WAITING: ("⏳", "waiting for a machine"),
    State.UNASKED: ("⏳", "not sent yet"),
    State.SUCCESS: ("✅", "passed"),
    State.FAILURE: ("❌", "failed"),
    State.TIMED_OUT: ("❌", "timed out"),
    State.CANCELLED: ("⚪", "cancelled"),
    State.NEUTRAL: ("⚪", "neutral"),
    State.NEVER_STARTED: ("❌", "never started"),
    State.NOT_RUN: ("⚪", "not run"),
    State.SKIPPED: ("⚪", "not needed"),
    State.NOT_INSTALLED: ("❌", "not installed"),
    State.DISPATCH_FAILED: ("❌", "could not be dispatched"),
}
_CONCLUSIONS = {
    "success": ("✅", "passed"),
    "failure": ("❌", "failed"),
    "timed_out": ("❌", "timed out"),
    "action_required": ("❌", "needs action"),
    "startup_failure": ("❌", "could not start"),
    "stale": ("❌", "went stale"),
    "cancelled": ("⚪", "cancelled"),
    "skipped": ("⚪", "skipped"),
    "neutral": ("⚪", "neutral"),
}

_HISTORIES = {
    History.NEW: "passes on the base branch",
    History.KNOWN: "fails on the base branch too",
    History.FLAKY: "also passed on this commit",
}


def sign(state: State) -> str:
    """Return the sign of a state."""
    return _STATES[state][0]


def word(state: State) -> str:
    """Return the word for a state, as in "npu failed"."""
    return _STATES[state][1]


def job_sign(job: Job) -> str:
    """Return the sign of a job's outcome."""
    return _outcome(job)[0]


def job_word(job: Job) -> str:
    """Return the word for a job's outcome, as in "timed out"."""
    return _outcome(job)[1]


def describe_history(job: Job) -> str:
    """Return how a failing job compares with the same elsewhere; empty where there is nothing to compare with."""
    if job.history is None or job.history is History.NO_BASELINE:
        return ""
    return f"{job.history}: {explain_history(job)}"


def explain_history(job: Job) -> str:
    """Return why a failing job is said to be new, known or flaky."""
    if job.history_why:
        return job.history_why
    if job.history is History.KNOWN and job.evidence_elsewhere:
        return "fails on another pull request too"
    return _HISTORIES.get(job.history, "") if job.history else ""


def job_label(job: Job) -> str:
    """Return the name of a job: workflow, then job."""
    return f"{job.workflow} / {job.name}"


def took(backend: Backend) -> float | None:
    """Return seconds from first start to last completion of the newest attempt; None while a job is unfinished."""
    newest = max((job.run_attempt for job in backend.jobs), default=0)
    # the time between attempts does not count
    jobs = [job for job in backend.jobs if job.run_attempt == newest]
    starts = [job.started_at for job in jobs if job.started_at is not None]
    ends = [job.completed_at for job in jobs if job.completed_at is not None]
    if not starts or not ends or not all(job.finished for job in backend.jobs):
        return None
    return max(0, max(ends) - min(starts)) / 1_000


def tally(backends: Iterable[Backend]) -> str:
    """Return "❌ 1 failed, ⏳ 2 running, ✅ 5 passed", each red state by its own word."""
    counts = dict.fromkeys(_STATES, 0)
    for backend in backends:
        counts[backend.state] += 1
    order = sorted(_STATES, key=lambda state: (not state.red, state.finished))
    return ", ".join(f"{sign(s)} {counts[s]} {word(s)}" for s in order if counts[s])


def job_counts(jobs: Sequence[Job]) -> str:
    """Return the counts of jobs: "2 of 5 failed", "3 done (1 failed), 1 running", "5 passed"."""
    failing = sum(job.red for job in jobs)
    running = sum(not job.finished for job in jobs)
    passed = sum(job.conclusion == "success" for job in jobs)
    if running:
        failed = f" ({failing} failed)" if failing else ""
        return f"{len(jobs) - running} done{failed}, {running} running"
    if failing:
        timed_out = all(job.conclusion == "timed_out" for job in jobs if job.red)
        return f"{failing} of {len(jobs)} {'timed out' if timed_out else 'failed'}"
    return f"{passed} passed" if passed == len(jobs) else f"{passed} of {len(jobs)} passed"


def headline(backend: Backend) -> str:
    """Return a backend's verdict in one line: the title of its check run."""
    match backend.state:
        case State.QUEUED if backend.attempt > 1 or not (backend.reason and backend.dispatched_at):
            line = "queued" if backend.attempt == 1 else f"queued, attempt {backend.attempt}"
        case State.RUNNING if backend.jobs:
            line = job_counts(backend.jobs)
        case State.CONFIRMING if not backend.reason:
            line = "reported success, being confirmed"
        case State.HELD:
            line = f"needs {OK_TO_TEST}"
        case State.SUCCESS if backend.thin:
            line = f"passed, but {backend.thin}"
        case State.SUCCESS if backend.jobs:
            line = _counted(backend, _passed(backend.jobs))
        case State.FAILURE if backend.failing:
            line = _counted(backend, _failed(backend))
        case _:
            line = _because(backend)
    return line


def being_cancelled(label: str) -> str:
    """Return the answer to a command that cancels a backend's runs."""
    return f"{label} is being cancelled."


def not_cancelled(label: str) -> str:
    """Return the end of the sentence that withdraws this answer."""
    return f" of {label}, so it goes on: "


def _outcome(job: Job) -> tuple[str, str]:
    return _CONCLUSIONS.get(job.conclusion or "", ("⚪", "unknown")) if job.finished else ("⏳", "running")


def _because(backend: Backend) -> str:
    reason = backend.reason.strip().removesuffix(".")
    unfinished = sum(not job.finished or job.conclusion == "timed_out" for job in backend.jobs)
    if not reason and backend.state is State.TIMED_OUT and unfinished:
        reason = f"{unfinished} of {plural(len(backend.jobs), 'job')} did not finish"
    return f"{word(backend.state)}: {reason}" if reason else word(backend.state)


def _counted(backend: Backend, counts: str) -> str:
    running = sum(not job.finished for job in backend.jobs)
    if running:
        return f"{counts}, {running} still running (L{backend.level})"
    time = duration(took(backend))
    return f"{counts} in {time} (L{backend.level})" if time else f"{counts} (L{backend.level})"


def _failed(backend: Backend) -> str:
    """Count tests where every failing job did, else jobs: no failure may look like "0 failed"."""
    failing = backend.failing
    if all(job.failed for job in failing):
        return _tests(backend.jobs)
    return f"{len(failing)} of {plural(len(backend.jobs), 'job')} failed"


def _passed(jobs: Sequence[Job]) -> str:
    if any(job.passed is not None for job in jobs):
        return _tests(jobs)
    passed = sum(job.conclusion == "success" for job in jobs)
    return f"{plural(passed, 'job')} passed"


def _tests(jobs: Sequence[Job]) -> str:
    failed = sum(job.failed or 0 for job in jobs if job.red)
    passed = sum(job.passed or 0 for job in jobs)
    skipped = sum(job.skipped or 0 for job in jobs)
    tolerated = sum(job.failed or 0 for job in jobs if not job.red)
    parts = [
        f"{failed} failed" if failed else "",
        f"{passed} passed",
        f"{skipped} skipped" if skipped else "",
        f"{tolerated} failed without failing their job" if tolerated else "",
    ]
    return ", ".join(part for part in parts if part)
