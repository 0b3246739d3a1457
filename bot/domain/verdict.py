"""Where does a backend stand on one head? Our rows (dispatch, jobs, re-runs, GitHub's word) -> a `Backend`.

Never green by absence: what is missing, unknown or unconfirmed is unfinished or failed.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from bot.domain.allowlist_entry import Level
from bot.domain.view import Backend, FailedTest, Job, State

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.domain.allowlist import Entry

Row = dict[str, Any]
QUIET = 60_000  # milliseconds without news after which an unconfirmed L4 backend counts as finished
ASKED_FOR = frozenset({"repository_dispatch", "workflow_dispatch"})  # what starts a run on our behalf
STATE_OF_DISPATCH = {  # while nothing is reported on it
    "not_installed": State.NOT_INSTALLED,
    "failed": State.DISPATCH_FAILED,
    "never_started": State.NEVER_STARTED,
    "held": State.HELD,
    "superseded": State.CANCELLED,
}
REASONS = {
    "superseded": "superseded before it was sent",
    "unproven": "its reports came with too little proof for L4: run it again",
}
LAST_WORDS = frozenset({"completed", "missing", "unconfirmed", "unreadable"})  # no other will come soon
PASSING = frozenset({"success", "neutral", "skipped"})


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known about one dispatch."""

    dispatch: Row
    jobs: Sequence[Row] = ()  # every attempt
    reruns: Sequence[Row] = ()
    words: dict[tuple[str, int], Row] = field(default_factory=dict)  # GitHub's own, by (run_id, run_attempt)

    @cached_property
    def reported(self) -> dict[str, int]:
        """The newest attempt of each run that anything was reported of."""
        attempts: dict[str, int] = {}
        for row in self.jobs:
            attempts[row["run_id"]] = max(attempts.get(row["run_id"], 1), row["run_attempt"])
        return attempts


def newest(dispatches: Sequence[Row]) -> dict[str, Row]:
    """Return the dispatch that counts of each backend: the newest that was not dropped, else the newest."""
    chosen: dict[str, Row] = {}
    for row in sorted(
        dispatches, key=lambda row: (row["state"] != "superseded", row["created_at"], row["id"])
    ):
        chosen[row["backend_key"]] = row
    return chosen


def backend(facts: Facts, entry: Entry | None, *, now: int, page_url: str, asked: bool = True) -> Backend:
    """Return where a dispatched backend stands; `entry` is None when it left the allowlist meanwhile."""
    dispatch = facts.dispatch
    jobs = _counting(facts, entry, now)
    state, reason = _state(facts, jobs, entry, now)
    ends = [job.completed_at for job in jobs if job.completed_at is not None]
    urls = [job.url for job in jobs if job.url]
    return Backend(
        repo=dispatch["backend"],
        level=level_of(dispatch, entry),
        device=dispatch["device"],
        state=state,
        reason=reason,
        oncalls=entry.oncalls if entry else (),
        jobs=jobs,
        attempt=1 + sum(attempt - 1 for attempt in expected_attempts(facts).values()),
        dispatched_at=dispatch["dispatched_at"],
        finished_at=max(ends, default=dispatch["dispatched_at"]) if state.finished else None,
        run_url=urls[-1] if urls else None,
        page_url=page_url,
        asked=asked,
    )


def level_of(dispatch: Row, entry: Entry | None) -> int:
    """Return the level it was dispatched at; who is not listed as blocking any more blocks nothing at once."""
    level: int = dispatch["level"]
    return min(level, Level.L3) if entry is None or entry.level < Level.L4 else level


def is_due(entry: Entry) -> bool:
    """Return whether a backend has to say something about every open pull request's head."""
    return entry.level >= Level.L4 and entry.wants("pull_request")


def blocking(facts: Facts, entry: Entry | None) -> Facts:
    """Return what counts of a backend that blocks now, whatever its level was when it was dispatched or reported.

    What was taken with less proof than its entry asks for now does not.
    """
    counted = [job for job in facts.jobs if entry is None or _proven(job, entry)]
    dispatch = facts.dispatch | {"level": int(Level.L4)}  # a row: a plain number
    if facts.jobs and not counted:
        dispatch |= {"state": "unproven"}
    return replace(facts, dispatch=dispatch, jobs=counted)


def _proven(job: Row, entry: Entry) -> bool:
    return (entry.callback_token == "optional" or "no_callback_token" not in job["flags"]) and (  # noqa: S105 - a mode
        entry.static_key == "allowed" or "static_key" not in job["flags"]
    )


def undispatched(entry: Entry, *, page_url: str) -> Backend:
    """Return a blocking backend that was not told about this head."""
    return Backend(
        repo=entry.repo,
        level=entry.level,
        device=entry.device,
        state=State.QUEUED,
        reason="not dispatched for this commit",
        oncalls=entry.oncalls,
        page_url=page_url,
    )


def latest(rows: Sequence[Row]) -> tuple[Job, ...]:
    """Return each job's latest attempt, in the order the jobs were first heard of."""
    chosen: dict[tuple[str, str, str], Row] = {}
    for row in rows:
        name = (row["run_id"], row["workflow_name"], row["job_name"])
        if name not in chosen or row["run_attempt"] > chosen[name]["run_attempt"]:
            chosen[name] = row
    return tuple(job(row) for row in chosen.values())


def job(row: Row) -> Job:
    """Return a stored job as it is shown."""
    return Job(
        workflow=row["workflow_name"],
        name=row["job_name"],
        run_id=row["run_id"],
        run_attempt=row["run_attempt"],
        status=row["status"],
        conclusion=row["conclusion"],
        url=row["workflow_run_url"],
        queue_time=row["queue_time"],
        execution_time=row["execution_time"],
        started_at=row["started_at"],
        completed_at=row["completed_at"],
        total=row["total_tests"],
        passed=row["passed_tests"],
        failed=row["failed_tests"],
        skipped=row["skipped_tests"],
        failed_tests=tuple(FailedTest(**test) for test in row["failed_tests_json"] or ()),
        artifact_url=row["artifact_url"],
        environment=row["environment"] or {},
    )


def expected_attempts(facts: Facts) -> dict[str, int]:
    """Return the attempt each run is at, counting re-runs asked for that have not reported yet."""
    attempts = dict(facts.reported)
    for row in facts.reruns:
        if row["state"] != "impossible":
            attempts[row["run_id"]] = max(attempts.get(row["run_id"], 1), row["from_attempt"] + 1)
    return attempts


def run_again(facts: Facts) -> dict[str, int]:
    """Return the newest attempt of the runs in which an unsuccessful job was run again that GitHub has yet to judge."""
    return _again(facts, latest(facts.jobs), facts.reported)


def _again(facts: Facts, jobs: Sequence[Job], newest: dict[str, int]) -> dict[str, int]:
    again = {job.run_id for job in jobs if job.unsuccessful and job.run_attempt < newest[job.run_id]}
    return {run: newest[run] for run in again if not _last_word(facts, run, newest[run])}


def _counting(facts: Facts, entry: Entry | None, now: int) -> tuple[Job, ...]:
    """Return the jobs as they count: an unsuccessful one of an attempt before its run's newest was run again meanwhile.

    Until it reports it is unfinished. It need not report: GitHub's word on that attempt says whether it passed, and
    where nobody can ask GitHub, a minute without news says that it was not run again.
    """
    known, newest = latest(facts.jobs), facts.reported
    waiting = _again(facts, known, newest)
    jobs: list[Job] = []
    for job in known:
        if not job.unsuccessful or job.run_attempt == newest[job.run_id]:
            jobs.append(job)
        elif job.run_id in waiting:
            jobs.append(
                replace(job, status="in_progress", conclusion=None, completed_at=None, execution_time=None)
            )
        elif facts.words[job.run_id, newest[job.run_id]]["conclusion"] != "success":
            jobs.append(job)
    others_run = any(not job.finished for job in known)
    if waiting and entry and not entry.confirm and not others_run and _quiet(facts, now):
        return known
    return tuple(jobs)


def _last_word(facts: Facts, run: str, attempt: int) -> bool:
    word = facts.words.get((run, attempt))
    return word is not None and word["status"] in LAST_WORDS


def _state(facts: Facts, jobs: Sequence[Job], entry: Entry | None, now: int) -> tuple[State, str]:
    if not jobs:
        return _unheard(facts.dispatch)
    expected = expected_attempts(facts)
    if awaited := {run: at for run, at in expected.items() if at > facts.reported.get(run, 0)}:
        return _ended(facts, awaited) or _of_rerun(facts, awaited)
    if red := [job for job in jobs if job.red]:
        timed_out = all(job.conclusion == "timed_out" for job in red)
        return (State.TIMED_OUT if timed_out else State.FAILURE), ""
    blocks = facts.dispatch["level"] >= Level.L4
    confirmed = blocks and (entry is None or entry.confirm)
    if confirmed and (denied := _denied(facts, expected)):
        return denied
    state, reason = _outcome(jobs)
    if state is State.SUCCESS and blocks:
        settled = _confirmed(facts, expected) if confirmed else _quiet(facts, now)
        state = State.SUCCESS if settled else State.CONFIRMING
    return state, reason


def _outcome(jobs: Sequence[Job]) -> tuple[State, str]:
    """Return what jobs that did not fail amount to."""
    if not all(job.finished for job in jobs):
        return State.RUNNING, ""
    if any(job.conclusion not in PASSING for job in jobs):
        return State.CANCELLED, ""
    if not any(job.conclusion == "success" for job in jobs):
        return State.NEUTRAL, "nothing was run"
    return State.SUCCESS, ""


def _unheard(dispatch: Row) -> tuple[State, str]:
    state = STATE_OF_DISPATCH.get(dispatch["state"], State.QUEUED)
    said = dispatch["error"] if state.finished else ""
    return state, said or REASONS.get(dispatch["state"], "")


def _of_rerun(facts: Facts, awaited: dict[str, int]) -> tuple[State, str]:
    """Return what a re-run nobody has reported on amounts to."""
    vain = [row for row in facts.reruns if row["state"] == "never_started"]
    if any(awaited.get(row["run_id"]) == row["from_attempt"] + 1 for row in vain):
        return State.NEVER_STARTED, "the re-run asked for did not report in time"
    return State.QUEUED, "re-run requested"


def _denied(facts: Facts, expected: dict[str, int]) -> tuple[State, str] | None:
    """Return the failure when GitHub's own word contradicts the reports."""
    for run, attempt in expected.items():
        word = facts.words.get((run, attempt))
        if word is None:
            continue
        if word["status"] == "missing":
            return State.FAILURE, f"GitHub knows no run {run} of this backend"
        if word["status"] == "unreadable":
            return State.TIMED_OUT, f"the App may not read run {run} of this backend: it needs actions: read"
        if word["status"] == "unconfirmed":
            return State.TIMED_OUT, f"GitHub did not confirm run {run} in time"
        if (started := word.get("event")) and started not in ASKED_FOR:
            return State.FAILURE, f"run {run} was started by {started}, not by our dispatch"
    return _ended(facts, expected)


def _ended(facts: Facts, attempts: dict[str, int]) -> tuple[State, str] | None:
    """Return the failure when GitHub says that an attempt ended in anything but success."""
    for run, attempt in attempts.items():
        word = facts.words.get((run, attempt))
        if word is None or word["status"] != "completed" or word["conclusion"] == "success":
            continue
        if word["conclusion"] == "cancelled":
            return State.CANCELLED, f"run {run} was cancelled"
        return State.FAILURE, f"GitHub says run {run} concluded {word['conclusion']}"
    return None


def _confirmed(facts: Facts, expected: dict[str, int]) -> bool:
    words = [facts.words.get((run, attempt)) for run, attempt in expected.items()]
    return all(word and word["status"] == "completed" and word["conclusion"] == "success" for word in words)


def _quiet(facts: Facts, now: int) -> bool:
    """Whether a minute has brought no new job; such a backend has no other way to say that it is finished."""
    last: int = max(row["updated_at"] for row in facts.jobs)
    return now - last >= QUIET
