"""What check runs, comment and pages show of a pull request's head, built from facts and verdicts.

Text from outside (names, messages, URLs) is kept as it came: rendering escapes it (`bot.core.escaping`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from bot.core import text
from bot.oot.allowlist.entry import Level
from bot.oot.results import shown
from bot.oot.verdict.facts import Reports
from bot.oot.verdict.verdict import RED_CONCLUSIONS, State, judge, judge_reports, level_of, passes_unrun

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.oot.allowlist.allowlist import Entry
    from bot.oot.results.tables import JobRow
    from bot.oot.verdict.facts import Facts
    from bot.oot.verdict.verdict import Verdict
    from bot.web.blocks import BlockLine, HeadTests, JobLine

_LEVELS = frozenset(Level)


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
        """The name it is shown with: the device if it has one of its own, else owner/repo."""
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
        """What its verdict is for here."""
        if self.blocks:
            return Role.BLOCKING
        return Role.REQUESTED if self.requested and self.has_checks else Role.WATCHING

    @property
    def failing(self) -> tuple[Job, ...]:
        """The jobs that need attention."""
        return tuple(job for job in self.jobs if job.red)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The answer to one command in a comment."""

    login: str
    command: str  # the line as it was written
    text: str  # a sentence or two
    refused: bool = False
    awaited: bool = False  # the author waits for the text: a question, or a command without effect
    at: int = 0  # epoch milliseconds of the command


@dataclass(frozen=True, kw_only=True)
class Base:
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
    answers: tuple[Answer, ...] = ()  # to the last commands, oldest first
    tests: HeadTests | None = None  # that fail on backends
    remarks: tuple[BlockLine, ...] = ()  # of other capabilities, for the comment
    base: Base | None = None

    @property
    def reported(self) -> bool:
        """Whether any backend has reported on this head."""
        return any(backend.jobs or backend.state.finished for backend in self.backends)


def job_of(row: JobRow) -> Job:
    """Return a stored job as it is shown."""
    times = shown.times(row)
    return Job(
        workflow=row["workflow_name"],
        name=row["job_name"],
        run_id=row["run_id"],
        run_attempt=row["run_attempt"],
        status=row["status"],
        conclusion=row["conclusion"],
        url=shown.page(row),
        queue_time=row["queue_time"],
        execution_time=shown.seconds(row),
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


def _triage(verdict: dict[str, Any] | None) -> str:
    """Return a backend's own verdict as one line."""
    if not verdict:
        return ""
    suspect = verdict.get("suspected_upstream") or {}
    whom = f" #{suspect['pr']}" if "pr" in suspect else f" {text.short(suspect['commit'])}" if suspect else ""
    return f"{verdict['category']}{whom} ({verdict['confidence']} confidence): {verdict['summary']}"


def dispatched(
    facts: Facts, entry: Entry | None, *, now: int, page_url: str, requested: bool = True
) -> Backend:
    """Return a dispatched backend; `entry` is None when it has left the allowlist."""
    dispatch = facts.dispatch
    verdict = judge(facts, entry, now=now)
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
    """Return a backend that an outside relay reported for, oldest first: it blocks nothing, no confirmation needed."""
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


def _finished_at(verdict: Verdict, dispatched_at: int | None) -> int | None:
    ends = [at for row in verdict.jobs if (at := shown.times(row).completed_at) is not None]
    return max(ends, default=dispatched_at) if verdict.state.finished else None


def _run_url(verdict: Verdict) -> str | None:
    return next((row["workflow_run_url"] for row in reversed(verdict.jobs) if row["workflow_run_url"]), None)


def anchor_of(backend: str) -> str:
    """Return the page anchor of a backend's section."""
    return "backend-" + backend.casefold().replace("/", "-")
