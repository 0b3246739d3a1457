"""What check runs, comment and pages show of a pull request's head, and the words they show it in."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from bot.core import text
from bot.core.text import duration, plural
from bot.oot.allowlist.entry import Level
from bot.oot.results import visibility
from bot.oot.verdict.verdict import (
    RED_CONCLUSIONS,
    Reports,
    State,
    judge_backend,
    judge_reports,
    level_of,
    passes_unrun,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bot.oot.allowlist.entry import Entry
    from bot.oot.results.tables import JobRow
    from bot.oot.verdict.failure import FailureList
    from bot.oot.verdict.verdict import Facts, Verdict
    from bot.web.blocks import BlockLine, HeadTests, JobLine

_LEVELS = frozenset(Level)
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


class History(StrEnum):
    """How a failing job compares with the same backend and job elsewhere."""

    NEW = "new"  # last succeeded on the base branch or merge base
    KNOWN = "known"  # fails there too, with the same failed tests
    FLAKY = "flaky"  # the same head also succeeded
    NO_BASELINE = "no baseline"


class Role(StrEnum):
    """What a backend's verdict is for on a pull request."""

    BLOCKING = "blocking"  # the gate needs it
    REQUESTED = "requested"  # by its label: it has a check run
    WATCHING = "watching"  # shown, no gate waits for it


@dataclass(frozen=True, kw_only=True)
class FailedTest:
    """One failed test as the backend reported it."""

    name: str
    classname: str | None = None
    file: str | None = None
    line: int | None = None
    message: str | None = None
    stacktrace: str | None = None


@dataclass(frozen=True, kw_only=True)
class Job:
    """The latest attempt of one job of one workflow run of a backend."""

    workflow: str
    name: str
    run_id: str
    run_attempt: int
    status: str  # in_progress | completed
    conclusion: str | None = None  # GitHub's values, when completed
    url: str | None = None  # http(s) only, checked when the report was accepted
    queue_time: float | None = None  # seconds
    execution_time: float | None = None  # seconds
    started_at: int | None = None  # epoch milliseconds
    completed_at: int | None = None  # epoch milliseconds
    total: int | None = None
    passed: int | None = None
    failed: int | None = None
    skipped: int | None = None
    failed_tests: tuple[FailedTest, ...] = ()
    artifact_url: str | None = None
    environment: dict[str, str] = field(default_factory=dict)
    unsaid: bool = False  # it ended without a reported result
    triage: str = ""  # why it failed, according to its backend
    history: History | None = None
    history_why: str = ""  # in place of the usual words
    evidence_url: str | None = None  # the run that shows it
    evidence_elsewhere: bool = False  # that run was on another pull request, not on the base branch
    lines: tuple[JobLine, ...] = ()  # why it failed, according to its log

    @property
    def red(self) -> bool:
        """Whether this job counts as failed (also with action_required, startup_failure or stale)."""
        return self.status == "completed" and self.conclusion in RED_CONCLUSIONS

    @property
    def finished(self) -> bool:
        """Whether the job has reported that it completed."""
        return self.status == "completed"


@dataclass(frozen=True, kw_only=True)
class CommandAnswer:
    """The answer to one command in a comment."""

    login: str
    command: str  # the line as it was written
    text: str  # a sentence or two
    refused: bool = False
    awaited: bool = False  # the author waits for the text: a question, or a command without effect
    at: int = 0  # epoch milliseconds of the command


@dataclass(frozen=True, kw_only=True)
class BaseCommit:
    """The commit of the base branch that a head is compared with."""

    ref: str
    sha: str
    is_merge_base: bool  # False: what the branch was at when the head was dispatched, until GitHub is asked
    committed_at: int | None = None  # epoch milliseconds, of a merge base


@dataclass(frozen=True, kw_only=True)
class Pull:
    """A pull request's head and every backend that has, or should have, a verdict on it."""

    repo: str  # upstream owner/name
    number: int
    head_sha: str
    backends: tuple[Backend, ...] = ()
    page_url: str = ""  # the HUD's page of this pull request
    help_url: str = ""  # where levels, words and commands are explained
    previous: Pull | None = None  # the last head with a verdict, while this one has no report yet
    gate_unknown: str = ""  # why the blocking backends are unknown; empty when they are known
    answers: tuple[CommandAnswer, ...] = ()  # to the last commands, oldest first
    tests: HeadTests | None = None  # of backends
    failures: FailureList | None = None  # on backends; None: only their reports are known
    remarks: tuple[BlockLine, ...] = ()  # of other capabilities, for the comment
    base: BaseCommit | None = None

    @property
    def reported(self) -> bool:
        """Whether any backend has reported on this head."""
        return any(backend.jobs or backend.state.finished for backend in self.backends)


_HISTORIES = {
    History.NEW: "passes on the base branch",
    History.KNOWN: "fails on the base branch too",
    History.FLAKY: "also passed on this commit",
}


@dataclass(frozen=True, kw_only=True)
class Backend:
    """One backend on one head: its dispatch, its reports and the verdict on them."""

    repo: str  # owner/name
    level: int  # 1..4
    state: State
    reason: str = ""  # a sentence where the state needs one
    device: str | None = None
    shares_device: bool = False  # so its own name is owner/repo
    oncalls: tuple[str, ...] = ()  # logins, without @
    jobs: tuple[Job, ...] = ()  # latest attempt of each
    attempt: int = 1  # raised by every re-run
    dispatched_at: int | None = None  # epoch milliseconds
    finished_at: int | None = None  # epoch milliseconds of the last completion
    run_url: str | None = None  # the newest run of this dispatch on the backend's CI
    page_url: str = ""  # this pull request and backend on the HUD
    requested: bool = True  # it blocks, or the pull request has its label; otherwise it is only watched
    ignored_by: str | None = None  # login, with write access on upstream
    ignored_reason: str | None = None
    lines: tuple[JobLine, ...] = ()  # on jobs of its failed runs that were not reported by their names
    passes_unrun: bool = False  # it was not needed, and its entry lets the gate pass without it
    thin: str = ""  # it passed, but ran far fewer tests than usual: how many

    @property
    def label(self) -> str:
        """The name it is shown by: its device if that is its own, else owner/repo."""
        return self.repo if self.shares_device else self.device or self.repo

    @property
    def level_unknown(self) -> bool:
        """Whether its level is none of L1 to L4."""
        return self.level not in _LEVELS

    @property
    def blocks(self) -> bool:
        """Whether it counts for the gate: at L4, and at an unknown level, which must never let a commit pass."""
        return self.level == Level.L4 or self.level_unknown

    @property
    def decides(self) -> bool:
        """Whether the gate needs it to pass: it blocks and is not ignored here."""
        return self.blocks and not self.ignored_by

    @property
    def has_checks(self) -> bool:
        """Whether it has check runs where requested: at L3, and wherever it blocks."""
        return self.level == Level.L3 or self.blocks

    @property
    def role(self) -> Role:
        """What its verdict means here."""
        if self.blocks:
            return Role.BLOCKING
        return Role.REQUESTED if self.requested and self.has_checks else Role.WATCHING

    @property
    def failing(self) -> tuple[Job, ...]:
        """The jobs that need attention."""
        return tuple(job for job in self.jobs if job.red)


def job_of(row: JobRow) -> Job:
    """Return a stored job as it is shown."""
    times = visibility.job_times(row)
    return Job(
        workflow=row["workflow_name"],
        name=row["job_name"],
        run_id=row["run_id"],
        run_attempt=row["run_attempt"],
        status=row["status"],
        conclusion=row["conclusion"],
        url=visibility.job_page(row),
        queue_time=row["queue_time"],
        execution_time=visibility.job_seconds(row),
        started_at=times.started_at,
        completed_at=times.completed_at,
        total=row["total_tests"],
        passed=row["passed_tests"],
        failed=row["failed_tests"],
        skipped=row["skipped_tests"],
        failed_tests=tuple(FailedTest(**test) for test in row["failed_tests_json"] or ()),
        artifact_url=row["artifact_url"],
        environment=row["environment"] or {},
        unsaid="no_conclusion" in row["flags"] and row["status"] == "completed",
        triage=_triage(row["triage_verdict"]),
    )


def dispatched(
    facts: Facts, entry: Entry | None, *, now: int, page_url: str, requested: bool = True
) -> Backend:
    """Return a dispatched backend; `entry` is None when it has left the allowlist."""
    dispatch = facts.dispatch
    verdict = judge_backend(facts, entry, now=now)
    return Backend(
        repo=dispatch["backend"],
        level=level_of(dispatch, entry),
        device=dispatch["device"],
        shares_device=entry is not None and entry.shares_device,
        state=verdict.state,
        reason=verdict.reason,
        oncalls=entry.oncalls if entry else (),
        jobs=tuple(job_of(row) for row in verdict.jobs),
        attempt=1 + sum(attempt - 1 for attempt in facts.expected.values()),
        dispatched_at=dispatch["dispatched_at"],
        finished_at=_finished_at(verdict, dispatch["dispatched_at"]),
        run_url=_run_url(verdict),
        page_url=page_url,
        requested=requested,
        passes_unrun=verdict.state is State.SKIPPED and passes_unrun(dispatch, entry),
    )


def undispatched(entry: Entry, *, page_url: str) -> Backend:
    """Return a blocking backend without a dispatch on this head."""
    return Backend(
        repo=entry.repo,
        level=entry.level,
        device=entry.device,
        state=State.QUEUED,
        reason="not dispatched for this commit",
        oncalls=entry.oncalls,
        page_url=page_url,
    )


def relayed(rows: Sequence[JobRow], *, page_url: str) -> Backend:
    """Return a backend that an outside relay reported for, oldest first: it blocks nothing and needs no confirming."""
    reports, last = Reports(jobs=rows), rows[-1]
    verdict = judge_reports(reports, None, blocks=False, now=last["updated_at"])
    return Backend(
        repo=last["downstream_repo"],
        level=last["downstream_repo_level"],
        state=verdict.state,
        reason=verdict.reason,
        jobs=tuple(job_of(row) for row in verdict.jobs),
        attempt=1 + sum(attempt - 1 for attempt in reports.expected.values()),
        finished_at=_finished_at(verdict, None),
        run_url=_run_url(verdict),
        page_url=page_url,
    )


def anchor_of(backend: str) -> str:
    """Return the page anchor of a backend's section."""
    return "backend-" + backend.casefold().replace("/", "-")


def state_sign(state: State) -> str:
    """Return the sign of a state."""
    return _STATES[state][0]


def state_word(state: State) -> str:
    """Return the word for a state, as in "npu failed"."""
    return _STATES[state][1]


def job_sign(job: Job) -> str:
    """Return the sign of a job's outcome."""
    return _outcome(job)[0]


def job_word(job: Job) -> str:
    """Return the word for a job's outcome, as in "timed out"."""
    return _outcome(job)[1]


def describe_history(job: Job) -> str:
    """Describe how a failing job compares with the same job elsewhere; empty without anything to compare with."""
    if job.history is None or job.history is History.NO_BASELINE:
        return ""
    return f"{job.history}: {explain_history(job)}"


def explain_history(job: Job) -> str:
    """Explain why a failing job is called new, known or flaky."""
    if job.history_why:
        return job.history_why
    if job.history is History.KNOWN and job.evidence_elsewhere:
        return "fails on another pull request too"
    return _HISTORIES.get(job.history, "") if job.history else ""


def job_label(job: Job) -> str:
    """Return the name of a job: workflow, then job."""
    return f"{job.workflow} / {job.name}"


def run_time(backend: Backend) -> float | None:
    """Return seconds from first start to last completion of the newest attempt; None while a job is unfinished."""
    newest = max((job.run_attempt for job in backend.jobs), default=0)
    # the time between attempts does not count
    jobs = [job for job in backend.jobs if job.run_attempt == newest]
    starts = [job.started_at for job in jobs if job.started_at is not None]
    ends = [job.completed_at for job in jobs if job.completed_at is not None]
    if not starts or not ends or not all(job.finished for job in backend.jobs):
        return None
    return max(0, max(ends) - min(starts)) / 1_000


def tally_states(backends: Iterable[Backend]) -> str:
    """Return "❌ 1 failed, ⏳ 2 running, ✅ 5 passed", each red state by its own word."""
    counts = dict.fromkeys(_STATES, 0)
    for backend in backends:
        counts[backend.state] += 1
    order = sorted(_STATES, key=lambda state: (not state.red, state.finished))
    return ", ".join(
        f"{state_sign(state)} {counts[state]} {state_word(state)}" for state in order if counts[state]
    )


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


def _triage(verdict: dict[str, Any] | None) -> str:
    """Return a backend's own verdict as one line."""
    if not verdict:
        return ""
    suspect = verdict.get("suspected_upstream") or {}
    whom = f" #{suspect['pr']}" if "pr" in suspect else f" {text.short(suspect['commit'])}" if suspect else ""
    return f"{verdict['category']}{whom} ({verdict['confidence']} confidence): {verdict['summary']}"


def _finished_at(verdict: Verdict, dispatched_at: int | None) -> int | None:
    ends = [at for row in verdict.jobs if (at := visibility.job_times(row).completed_at) is not None]
    return max(ends, default=dispatched_at) if verdict.state.finished else None


def _run_url(verdict: Verdict) -> str | None:
    return next((row["workflow_run_url"] for row in reversed(verdict.jobs) if row["workflow_run_url"]), None)


def _outcome(job: Job) -> tuple[str, str]:
    return _CONCLUSIONS.get(job.conclusion or "", ("⚪", "unknown")) if job.finished else ("⏳", "running")


def _because(backend: Backend) -> str:
    reason = backend.reason.strip().removesuffix(".")
    unfinished = sum(not job.finished or job.conclusion == "timed_out" for job in backend.jobs)
    if not reason and backend.state is State.TIMED_OUT and unfinished:
        reason = f"{unfinished} of {plural(len(backend.jobs), 'job')} did not finish"
    return f"{state_word(backend.state)}: {reason}" if reason else state_word(backend.state)


def _counted(backend: Backend, counts: str) -> str:
    running = sum(not job.finished for job in backend.jobs)
    if running:
        return f"{counts}, {running} still running (L{backend.level})"
    time = duration(run_time(backend))
    return f"{counts} in {time} (L{backend.level})" if time else f"{counts} (L{backend.level})"


def _failed(backend: Backend) -> str:
    """Count failed tests where every failing job counted them, else jobs: no failure may look like "0 failed"."""
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
