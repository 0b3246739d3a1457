"""What does a pull request's head look like right now? The values that check runs, comment and pages render.

Everything here is read from our own rows. Words that came from outside (names, messages, URLs) are kept
as they came: whoever renders them makes them inert (`domain.inert`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from bot.domain.allowlist_entry import Level


class State(StrEnum):
    """Where a backend stands on one head. The first four are unfinished."""

    QUEUED = "queued"  # dispatched (or to be), nothing heard yet
    RUNNING = "running"  # at least one job unfinished
    CONFIRMING = "confirming"  # reported success, GitHub's own word is awaited
    HELD = "held"  # policy: trusted, and nobody with write access has said ok-to-test
    SUCCESS = "success"
    FAILURE = "failure"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    NEUTRAL = "neutral"
    NEVER_STARTED = "never_started"  # dispatched, silent past START_TIMEOUT
    NOT_INSTALLED = "not_installed"  # the App is not installed on the backend
    DISPATCH_FAILED = "dispatch_failed"  # GitHub refused the dispatch for good

    @property
    def finished(self) -> bool:
        """Whether nothing more is expected to happen by itself."""
        return self not in _UNFINISHED

    @property
    def red(self) -> bool:
        """Whether a person should look: finished, and neither passed nor taken back."""
        return self in _RED


_UNFINISHED = frozenset({State.QUEUED, State.RUNNING, State.CONFIRMING, State.HELD})
_RED = frozenset(
    {State.FAILURE, State.TIMED_OUT, State.NEVER_STARTED, State.NOT_INSTALLED, State.DISPATCH_FAILED}
)


class History(StrEnum):
    """How a failing job compares with the same backend and job elsewhere."""

    NEW = "new"  # last succeeded on the base branch or merge base
    KNOWN = "known"  # fails there too, with the same failed tests
    FLAKY = "flaky"  # the same head also succeeded
    NO_BASELINE = "no baseline"


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
    history: History | None = None
    evidence_url: str | None = None  # the run that shows it
    evidence_elsewhere: bool = False  # that run was on another pull request, not on the base branch

    @property
    def red(self) -> bool:
        """Whether this job counts as failed (also with action_required, startup_failure or stale)."""
        return self.status == "completed" and self.conclusion in RED_CONCLUSIONS

    @property
    def unsuccessful(self) -> bool:
        """Whether this job failed or was cancelled: GitHub runs both again."""
        return self.red or (self.status == "completed" and self.conclusion == "cancelled")

    @property
    def finished(self) -> bool:
        """Whether the job has reported that it completed."""
        return self.status == "completed"


_LEVELS = frozenset(Level)
RED_CONCLUSIONS = frozenset({"failure", "timed_out", "action_required", "startup_failure", "stale"})


@dataclass(frozen=True, kw_only=True)
class Backend:
    """One backend on one head: what it was asked, what it said, what that amounts to."""

    repo: str  # owner/name
    level: int  # 1..4
    state: State
    reason: str = ""  # one sentence for people when the state needs one
    device: str | None = None
    oncalls: tuple[str, ...] = ()  # logins, without @
    jobs: tuple[Job, ...] = ()  # latest attempt of each
    attempt: int = 1  # raised by every re-run
    dispatched_at: int | None = None  # epoch milliseconds
    finished_at: int | None = None  # epoch milliseconds of the last completion
    run_url: str | None = None  # the newest run of this dispatch on the backend's CI
    page_url: str = ""  # this pull request and backend on the HUD
    # somebody waits for it here: it blocks, or its label was put on; others are only watched
    asked: bool = True
    ignored_by: str | None = None  # login, with write access on upstream
    ignored_reason: str | None = None

    @property
    def label(self) -> str:
        """The name people know it by: the device where it has one, else owner/repo."""
        return self.device or self.repo

    @property
    def level_unknown(self) -> bool:
        """Whether it is at none of the levels there are."""
        return self.level not in _LEVELS

    @property
    def blocks(self) -> bool:
        """Whether it counts for the gate: L4, and any unknown level, which must never let a commit pass."""
        return self.level == Level.L4 or self.level_unknown

    @property
    def decides(self) -> bool:
        """Whether the gate is green only once it has passed: it blocks, and nobody said to ignore it here."""
        return self.blocks and not self.ignored_by

    @property
    def has_checks(self) -> bool:
        """Whether it has check runs where it is asked for: at L3, and wherever it blocks."""
        return self.level == Level.L3 or self.blocks

    @property
    def failing(self) -> tuple[Job, ...]:
        """The jobs a person should look at."""
        return tuple(job for job in self.jobs if job.red)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What came of one command that somebody gave in a comment."""

    login: str
    command: str  # the line as it was written
    text: str  # a sentence or two
    refused: bool = False
    awaited: bool = False  # somebody waits for the text: a question, or a command without effect
    at: int = 0  # when it was given, epoch milliseconds


@dataclass(frozen=True, kw_only=True)
class Pull:
    """A pull request's head and every backend expected to say something about it."""

    repo: str  # upstream owner/name
    number: int
    head_sha: str
    backends: tuple[Backend, ...] = ()
    page_url: str = ""  # the HUD's page of this pull request
    help_url: str = ""  # where levels, words and commands are explained
    previous: Pull | None = None  # the last head with a verdict, while this one has no report yet
    gate_unknown: str = ""  # why nobody can say who blocks here; empty when that is known
    answers: tuple[Answer, ...] = ()  # to the last commands, oldest first

    @property
    def reported(self) -> bool:
        """Whether any backend has said anything about this head."""
        return any(backend.jobs or backend.state.finished for backend in self.backends)


def anchor_of(backend: str) -> str:
    """Return the page anchor of a backend's section."""
    return "backend-" + backend.casefold().replace("/", "-")
