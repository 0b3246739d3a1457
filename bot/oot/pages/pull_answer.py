"""A pull request as JSON: its heads with their gates, the backends on one of them, and jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from bot.ingest.rows import PullRow
from bot.oot.pages.answers import Job, Level, Source, job_answer
from bot.oot.pages.failure_answer import PullFailures, answer_failures
from bot.oot.publish import check_run_text
from bot.oot.results.tables import JobRow
from bot.oot.verdict.gate import GateState, describe_failure
from bot.oot.verdict.verdict import State
from bot.oot.verdict.view import History, Role
from bot.web.answers import Answer, Time, fill, one_of, time
from bot.web.row_answers import RowAnswer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.oot.pages.pulls import BackendSection, HeadLine, PullPage
    from bot.oot.verdict.failure import FailureList

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


class Gate(Struct, frozen=True):
    """The gate of the shown head, as its check run says."""

    name: str
    state: GateState
    title: Annotated[str, Meta(description="of its check run")]
    sentence: Annotated[
        str, Meta(description="what the backends say of merging; upstream's own checks are not judged")
    ]
    blocking: Annotated[int, Meta(description="backends that block")]
    passed: int
    ignored: Annotated[int, Meta(description="that block and count as passed by `/oot ignore`")]
    waiting_since: Time | None
    pull_number: Annotated[
        int, Meta(description="the pull request that decides: several can have one commit")
    ]
    check_run_id: Annotated[int | None, Meta(description="GitHub's; null before it was written")]


class Head(Struct, frozen=True):
    """A head of a pull request, with its gate, and its backends by state where they were judged."""

    sha: str
    current: bool
    gate: Annotated[GateState | None, Meta(description="null where no backend blocks")]
    backends: dict[Annotated[str, one_of(map(str, State))], int] | None


class FailingJob(
    RowAnswer, row=JobRow, only=("workflow_name", "job_name", "run_id", "run_attempt"), frozen=True
):
    """How a failing job compares with the same job elsewhere, and the run that shows it."""

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
    failed: Annotated[
        str,
        Meta(description="its failures, counted as in `failures`, else its state; empty where it is not red"),
    ]
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


class PullAnswer(Answer, frozen=True, kw_only=True):
    """The backends on its newest head, or on `sha`; the newest jobs of all heads, or of it, and whether there are
    `more`. Where very much was dispatched, other heads have null for their `backends`.
    """  # noqa: D205 - one paragraph of the document

    pull: PullRequest
    gate: Annotated[Gate | None, Meta(description="null where the commit has none")]
    heads: list[Head]
    backends: list[OnHead]
    failures: PullFailures
    jobs: list[Job]
    more: bool


def answer_pull(
    found: PullPage, failures: FailureList, jobs: Sequence[JobRow], *, more: bool, prefix: str
) -> PullAnswer:
    """Return a pull request; `prefix` is that of check runs' names."""
    return PullAnswer(
        pull=_pull(found),
        gate=_gate(found, prefix=prefix),
        heads=[_head(line, current=line is found.heads[0]) for line in found.heads],
        backends=[_section(section, failures) for section in found.sections],
        failures=answer_failures(failures),
        jobs=[job_answer(row) for row in jobs],
        more=more,
    )


def _pull(page: PullPage) -> PullRequest:
    """Return the pull request itself, with which of its heads is shown."""
    known: dict[str, object] = dict.fromkeys(PullRequest.__struct_fields__)
    if page.record is not None:
        known |= page.record
    named = {"repo": page.repo, "number": page.number, "head_sha": page.sha, "page_url": page.page_url}
    return fill(PullRequest, known, **named)


def _gate(page: PullPage, *, prefix: str) -> Gate | None:
    """Return the gate of the shown head."""
    if page.gate is None:
        return None
    found = page.gate.gate
    return Gate(
        name=check_run_text.gate_name(prefix),
        state=found.state,
        title=found.title,
        sentence=found.sentence(open_=page.decisive),
        blocking=len(found.blocking),
        passed=found.passed,
        ignored=len(found.blocking) - len(found.deciding),
        waiting_since=time(found.waiting_since),
        pull_number=page.gate.number,
        check_run_id=page.gate.check_run_id,
    )


def _head(line: HeadLine, *, current: bool) -> Head:
    """Return a head with its backends by state."""
    states = [backend.state for backend in line.backends]
    counts = {str(state): states.count(state) for state in State if state in states}
    return Head(sha=line.sha, current=current, gate=line.gate, backends=counts if line.judged else None)


def _section(one: BackendSection, failures: FailureList) -> OnHead:
    """Return where one backend stands on the shown head."""
    failing = [
        fill(FailingJob, job, workflow_name=job.workflow, job_name=job.name) for job in one.backend.failing
    ]
    finished, source = one.backend.state.finished, "relay" if one.relayed else "callback"
    failed = describe_failure(one.backend, failures) if one.backend.state.red else ""
    return fill(
        OnHead, one.backend, role=one.role, failed=failed, finished=finished, failing=failing, source=source
    )
