"""Answers of the API about results. Columns keep their names; times are formatted as GitHub formats them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct

from bot.core.settings import PULL_ACTIONS
from bot.ingest.rows import PullRow
from bot.oot.allowlist import entry as terms
from bot.oot.pages.gate_answer import Gate
from bot.oot.reports.bodies import Conclusion, FailedTest, Status
from bot.oot.results import shown
from bot.oot.results.tables import DispatchRow, JobRow
from bot.oot.statistics.readiness import Word
from bot.oot.statistics.stats import grade
from bot.oot.verdict.gate import GateState
from bot.oot.verdict.verdict import State
from bot.oot.verdict.view import History, Role
from bot.web.answers import Answer, Time, fill, one_of, time
from bot.web.row_answers import RowAnswer

if TYPE_CHECKING:
    from collections.abc import Collection

    from bot.oot.pages.health import Health
    from bot.oot.pages.pulls import BackendSection, HeadLine, PullPage

Level = Annotated[int, Meta(ge=0, le=4)]
Source = Annotated[str, one_of(("callback", "relay"))]


class Backend(Struct, frozen=True):
    """A backend with its numbers of the window: one run is one job of one workflow run at its latest attempt."""

    repo: str
    level: Level
    device: str | None
    listed: bool
    oncalls: list[str]
    grade: Annotated[str, one_of(("green", "amber", "red", "none"))]
    runs: int
    success: int
    failure: Annotated[int, Meta(description="also action_required, startup_failure and stale")]
    timed_out: int
    cancelled: int
    skipped: int
    neutral: int
    running: int
    never_started: Annotated[int, Meta(description="dispatches sent and never reported on")]
    not_run: Annotated[int, Meta(description="the same, of backends that need not answer: no failure")]
    not_dispatched: Annotated[int, Meta(description="refused by GitHub, or without the App on the backend")]
    superseded: Annotated[int, Meta(description="dropped for a newer commit before they were sent")]
    infra: Annotated[int, Meta(description="of failure and timed_out: their logs say it was infrastructure")]
    pass_rate: Annotated[float | None, Meta(description="null when nothing counts")]
    pass_rate_without_infra: Annotated[float | None, Meta(description="the same without infra")]
    median_execution_time: float | None
    p90_execution_time: float | None
    median_queue_time: float | None
    p90_queue_time: float | None
    last_at: Annotated[Time | None, Meta(description="of the last report")]
    trend: Annotated[
        list[float | None], Meta(description="pass rates of the last 30 days and today, oldest first")
    ]
    turned: Annotated[
        Annotated[str, one_of(("red", "green"))] | None, Meta(description="in the last 24 hours")
    ]
    waiting: Annotated[int, Meta(description="open pull requests that wait for it")]
    stale: Annotated[bool, Meta(description="silent for 36 hours")]


class Job(RowAnswer, row=JobRow, without=("job_key", "dispatch_id", "updated_at"), frozen=True):
    """One attempt of one job of a backend's workflow run."""

    status: Status
    conclusion: Conclusion | None
    started_at: Annotated[
        Time | None, Meta(description="as reported where that can be true, else as measured")
    ]
    completed_at: Annotated[Time | None, Meta(description="the same")]
    failed_tests_json: list[FailedTest] | None
    reported_started_at: Annotated[Time | None, Meta(description="as the backend said")]
    reported_completed_at: Annotated[Time | None, Meta(description="as the backend said")]
    triage_verdict: Annotated[
        dict[str, Any] | None, Meta(description="the backend's own verdict on why the job failed")
    ]
    source: Source
    flags: Annotated[dict[str, Any], Meta(description="what is unusual about it")]


UNANSWERED = (
    "delivery_id", "upstream_repo", "event_type", "pr_number", "head_sha", "state", "error", "created_at",
    "dispatched_at",
)  # fmt: skip


class Unanswered(RowAnswer, row=DispatchRow, only=UNANSWERED, rename={"error": "reason"}, frozen=True):
    """A dispatch that ended without a report, and why, as far as known."""

    state: Annotated[str, one_of(("never_started", "not_installed", "failed"))]


class Entry(Struct, frozen=True):
    """A backend of the allowlist and its terms."""

    repo: str
    level: Level
    device: str | None
    oncalls: list[str]
    repository_id: int | None
    events: list[Annotated[str, one_of(terms.EVENTS)]]
    actions: list[Annotated[str, one_of(PULL_ACTIONS)]]
    refs: list[str]
    deletions: bool
    nightly: Annotated[str, one_of(terms.NIGHTLY)]
    policy: Annotated[str, one_of(terms.POLICIES)]
    checks: Annotated[str, one_of(terms.CHECKS)]
    conclusion: Annotated[str, one_of(terms.CONCLUSIONS)]
    confirm: bool
    callback_token: Annotated[str, one_of(terms.CALLBACK_TOKENS)]
    static_key: Annotated[str, one_of(terms.STATIC_KEYS)]
    answers: Annotated[str, one_of(terms.ANSWERS)]
    dispatch: Annotated[str, one_of(terms.DISPATCHES)]
    workflow_file: str | None
    job_timeout: int | None
    start_timeout: int | None
    rate_limit: int | None


SHOWN_OF_PULL = (
    "title", "state", "draft", "merged", "user_login", "author_association", "base_ref", "labels", "html_url",
    "created_at", "updated_at", "closed_at", "merged_at",
)  # fmt: skip


class PullRequest(
    RowAnswer, row=PullRow, only=("repo", "number", "head_sha", "page_url", *SHOWN_OF_PULL), frozen=True
):
    """The pull request itself, and which of its heads is shown."""

    number: int
    page_url: str


class Head(Struct, frozen=True):
    """A head of a pull request, with its gate, and its backends by state where they were judged."""

    sha: str
    current: bool
    gate: Annotated[GateState | None, Meta(description="null where no backend blocks")]
    backends: dict[Annotated[str, one_of(map(str, State))], int] | None


class FailingJob(Struct, frozen=True):
    """How a failing job compares with the same job elsewhere, and the run that shows it."""

    workflow_name: str
    job_name: str
    run_id: str
    run_attempt: int
    history: History | None
    evidence_url: str | None
    evidence_elsewhere: bool


class OnHead(Struct, frozen=True):
    """Where one backend stands on the shown head."""

    repo: str
    level: Level
    role: Annotated[Role, Meta(description="requested: by its label; watching: nobody waits for it")]
    device: str | None
    state: State
    reason: str
    finished: bool
    attempt: int
    dispatched_at: Time | None
    finished_at: Time | None
    run_url: str | None
    page_url: str
    oncalls: list[str]
    ignored_by: str | None
    ignored_reason: str | None
    failing: list[FailingJob]
    source: Source


class AllowlistVersion(Struct, frozen=True):
    """A version of the allowlist."""

    source: str
    valid: bool
    errors: list[str]
    loaded_at: Time


class Measure(Struct, frozen=True):
    """One measure of a backend, and how it compares with its threshold."""

    name: str
    value: float | None
    shown: str
    threshold: str
    word: Word


class Readiness(Struct, frozen=True):
    """What a backend's numbers suggest about its level."""

    repo: str
    level: Level
    device: str | None
    since: Time | None
    advice: str
    promotion: Word
    demotion: Word
    measures: list[Measure]
    demotion_measures: list[Measure]


class BackendDay(Struct, frozen=True):
    """One backend on one day."""

    repo: str
    day: str
    runs: int
    pass_rate: float | None
    failed: int
    median_execution_time: float | None
    p90_execution_time: float | None
    median_queue_time: float | None
    p90_queue_time: float | None


class Summary(Answer, frozen=True, kw_only=True):
    """From L4 down, the worst first"""

    days: int
    backends: list[Backend]


class BackendAnswer(Answer, frozen=True, kw_only=True):
    """Its numbers, its newest jobs and unanswered dispatches; `next` as with records"""

    days: int
    backend: Backend
    jobs: list[Job]
    next: str | None
    unanswered: list[Unanswered]


class PullAnswer(Answer, frozen=True, kw_only=True):
    """The backends on its newest head, or on `sha`; the newest jobs of all heads, or of it, and whether there are
    `more`. Where very much was dispatched, other heads have null for their `backends`.
    """  # noqa: D205 - one paragraph of the document

    pull: PullRequest
    gate: Annotated[Gate | None, Meta(description="null where the commit has none")]
    heads: list[Head]
    backends: list[OnHead]
    jobs: list[Job]
    more: bool


class CommitAnswer(Answer, frozen=True, kw_only=True):
    """Its jobs, the newest first"""

    repo: str
    jobs: list[Job]


class Allowlist(Answer, frozen=True, kw_only=True):
    """The entries in force, and whether the newest version is valid"""

    in_force: bool
    entries: list[Entry]
    newest: AllowlistVersion | None


class Levels(Answer, frozen=True, kw_only=True):
    """Listed backends that report, with their measures and thresholds"""

    backends: list[Readiness]


class MetricsAnswer(Answer, frozen=True, kw_only=True):
    """Some backends, a row for each day"""

    days: int
    backends: int
    rows: list[BackendDay]


def backend(one: Health) -> Backend:
    """Return a backend with its numbers; rates are 0 to 1, durations seconds."""
    return fill(
        Backend,
        one.stats,
        repo=one.repo,
        level=one.level,
        device=one.device,
        listed=one.listed,
        oncalls=one.oncalls,
        grade=grade(one.stats.pass_rate),
        trend=one.trend,
        turned=one.turned or None,
        waiting=one.waiting,
        stale=one.stale,
    )


def entry(one: terms.Entry, otherwise: Collection[str]) -> Entry:
    """Return a backend of the allowlist; `otherwise` the PULL_ACTIONS setting says its actions."""
    actions = otherwise if one.actions is None else one.actions
    return fill(Entry, one, events=sorted(one.events), actions=sorted(actions))


def pull(page: PullPage) -> PullRequest:
    """Return the pull request itself, with which of its heads is shown."""
    known: dict[str, object] = dict.fromkeys(PullRequest.__struct_fields__)
    if page.record is not None:
        known |= page.record
    named = {"repo": page.repo, "number": page.number, "head_sha": page.sha, "page_url": page.page_url}
    return fill(PullRequest, known, **named)


def head(line: HeadLine, *, current: bool) -> Head:
    """Return a head with its backends by state."""
    states = [backend.state for backend in line.backends]
    counts = {str(state): states.count(state) for state in State if state in states}
    return Head(sha=line.sha, current=current, gate=line.gate, backends=counts if line.judged else None)


def section(one: BackendSection) -> OnHead:
    """Return where one backend stands on the shown head."""
    failing = [
        fill(FailingJob, job, workflow_name=job.workflow, job_name=job.name) for job in one.backend.failing
    ]
    finished, source = one.backend.state.finished, "relay" if one.relayed else "callback"
    return fill(OnHead, one.backend, role=one.role, finished=finished, failing=failing, source=source)


def job(row: JobRow) -> Job:
    """Return a job with its times as they are shown."""
    times = shown.times(row)
    return fill(Job, row, started_at=time(times.started_at), completed_at=time(times.completed_at))
