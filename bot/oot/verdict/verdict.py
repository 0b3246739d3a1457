"""Verdict on a backend: its state on one head, judged from what is known of its dispatches and runs."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from bot.oot.allowlist.entry import Level
from bot.oot.results import jobs
from bot.oot.results.runs import read_announced, read_reruns, read_run_statuses

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from bot.db.transaction import Transaction
    from bot.oot.allowlist.entry import Entry
    from bot.oot.results.tables import DispatchRow, JobRow, RerunRow, RunStatusRow

T = TypeVar("T")
RED_CONCLUSIONS = frozenset({"failure", "timed_out", "action_required", "startup_failure", "stale"})
PASSING = frozenset({"success", "neutral", "skipped"})
SKIPPED_BY = "skipped_"  # begins the state of a dispatch that a rule decided against; the rule follows
QUIET = 60_000  # milliseconds without news after which an unconfirmed L4 backend counts as finished
DISPATCH_EVENTS = frozenset({"repository_dispatch", "workflow_dispatch"})  # that start a run on our behalf
REASONS = {
    "superseded": "superseded before it was sent",
    "unproven": "its reports came with too little proof for L4: run it again",
}
FINAL_STATUSES = frozenset({"completed", "missing", "unconfirmed", "unreadable"})  # no other will follow soon


class State(StrEnum):
    """The state of a backend on one head. The first six are unfinished."""

    QUEUED = "queued"  # dispatched (or to be), no report yet
    RUNNING = "running"  # at least one job unfinished
    CONFIRMING = "confirming"  # reported success, waiting for GitHub's confirmation
    HELD = "held"  # policy: trusted, and no one with write access has given ok-to-test
    WAITING = "waiting"  # its machines are busy, or its dispatches of a day are used up
    UNASKED = "unasked"  # it blocks, and was not sent this commit
    SUCCESS = "success"
    FAILURE = "failure"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    NEUTRAL = "neutral"
    NEVER_STARTED = "never_started"  # dispatched, silent past START_TIMEOUT
    NOT_RUN = "not_run"  # the same, of a backend that need not answer
    SKIPPED = "skipped"  # not worth running by its entry
    NOT_INSTALLED = "not_installed"  # the App is not installed on the backend
    DISPATCH_FAILED = "dispatch_failed"  # GitHub refused the dispatch for good

    @property
    def finished(self) -> bool:
        """Whether nothing more is expected to happen on its own."""
        return self not in _UNFINISHED

    @property
    def red(self) -> bool:
        """Whether it needs attention: it finished otherwise than passed, neutral, cancelled, skipped or not run."""
        return self in _RED


_UNFINISHED = frozenset(
    {State.QUEUED, State.RUNNING, State.CONFIRMING, State.HELD, State.WAITING, State.UNASKED}
)
_RED = frozenset(
    {State.FAILURE, State.TIMED_OUT, State.NEVER_STARTED, State.NOT_INSTALLED, State.DISPATCH_FAILED}
)
WORST_FIRST = (State.FAILURE, State.TIMED_OUT, State.CANCELLED)  # of what GitHub says about several runs
STATE_OF_DISPATCH = {  # while nothing is reported on it
    "not_installed": State.NOT_INSTALLED,
    "failed": State.DISPATCH_FAILED,
    "never_started": State.NEVER_STARTED,
    "not_run": State.NOT_RUN,
    "held": State.HELD,
    "waiting": State.WAITING,
    "unasked": State.UNASKED,
    "superseded": State.CANCELLED,
    "cancelled": State.CANCELLED,
}


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The state of a backend, with a reason where it needs one, and the jobs it was judged by."""

    state: State
    reason: str
    jobs: Sequence[JobRow] = ()  # the latest attempt of each, unfinished where it is being run again


@dataclass(frozen=True, kw_only=True)
class Reports:
    """What is known about the runs of one backend."""

    jobs: Sequence[JobRow] = ()  # every attempt
    reruns: Sequence[RerunRow] = ()
    # by run_id, run_attempt
    run_statuses: Mapping[tuple[str, int], RunStatusRow] = field(default_factory=dict)
    announced: Sequence[RunStatusRow] = ()  # runs that our event started and that have not reported

    @cached_property
    def reported(self) -> dict[str, int]:
        """The newest reported attempt of each run."""
        attempts: dict[str, int] = {}
        for row in self.jobs:
            attempts[row["run_id"]] = max(attempts.get(row["run_id"], 1), row["run_attempt"])
        return attempts

    @cached_property
    def expected(self) -> dict[str, int]:
        """The current attempt of each run, counting requested re-runs that have not reported yet."""
        attempts = dict(self.reported)
        for row in self.reruns:
            if row["state"] != "impossible":
                attempts[row["run_id"]] = max(attempts.get(row["run_id"], 1), row["from_attempt"] + 1)
        return attempts

    @cached_property
    def latest(self) -> list[JobRow]:
        """The latest attempt of each job."""
        return latest_attempts(self.jobs)


@dataclass(frozen=True, kw_only=True)
class Facts(Reports):
    """What is known about a dispatch, and about dispatches of pushes for the same commit of the pull request."""

    dispatch: DispatchRow

    @property
    def answered(self) -> bool:
        """Whether the dispatch itself was reported on, or need not be."""
        kind = self.dispatch["event_type"]
        return self.dispatch["answers"] == "some" or any(row["event_type"] == kind for row in self.jobs)

    def dispatch_of(self, run_id: str) -> str:
        """Return the id of the dispatch that a run was reported for."""
        dispatch_id = next((row["dispatch_id"] for row in self.jobs if row["run_id"] == run_id), None)
        return dispatch_id or self.dispatch["id"]


def with_push(facts: Facts, pushed: Facts) -> Facts:
    """Merge the facts of a backend's dispatch with those of a push's dispatch for the same commit."""
    return replace(
        facts,
        jobs=(*facts.jobs, *pushed.jobs),
        reruns=(*facts.reruns, *pushed.reruns),
        run_statuses={**facts.run_statuses, **pushed.run_statuses},
        announced=(*facts.announced, *pushed.announced),
    )


async def read_facts(
    tx: Transaction, dispatches: Sequence[DispatchRow], *, tests_of: Collection[str] = ()
) -> dict[str, Facts]:
    """Return the facts of each dispatch by its id; failed tests and environment only of those in `tests_of`."""
    ids = [row["id"] for row in dispatches]
    reported = await jobs.read_jobs_of_dispatches(tx, ids, tests_of=tests_of)
    requested = await read_reruns(tx, ids)
    backends = {row["id"]: row["backend_key"] for row in dispatches}
    runs = {(backends[row["dispatch_id"] or ""], row["run_id"]) for row in reported}
    statuses = await read_run_statuses(tx, runs)
    jobs_of = _grouped(reported, lambda row: row["dispatch_id"])
    announced = await read_announced(
        tx, {(backends[key], row["run_id"]) for key, rows in jobs_of.items() if key for row in _ended(rows)}
    )
    reruns_of = _grouped(requested, lambda row: row["dispatch_id"])
    statuses_of = _grouped(statuses, lambda row: row["backend_key"])
    return {
        row["id"]: Facts(
            dispatch=row,
            jobs=jobs_of[row["id"]],
            announced=_announced(row["backend_key"], jobs_of[row["id"]], announced),
            reruns=reruns_of[row["id"]],
            run_statuses={
                (status["run_id"], status["run_attempt"]): status
                for status in statuses_of[row["backend_key"]]
            },
        )
        for row in dispatches
    }


def newest_by_backend(dispatches: Sequence[DispatchRow]) -> dict[str, DispatchRow]:
    """Return each backend's dispatch that counts: the newest that was not dropped, else the newest."""
    chosen: dict[str, DispatchRow] = {}
    for row in sorted(
        dispatches, key=lambda row: (row["state"] != "superseded", row["created_at"], row["id"])
    ):
        chosen[row["backend_key"]] = row
    return chosen


def of_own_events(dispatches: Sequence[DispatchRow]) -> list[DispatchRow]:
    """Return the dispatches other than pushes about a pull request, which count beside them."""
    return [row for row in dispatches if not _is_beside(row)]


def answered_pushes(dispatches: Sequence[DispatchRow]) -> list[DispatchRow]:
    """Return the dispatches of pushes about a pull request that count: the newest reported one of each ref.

    Silent ones mean nothing. Different refs ask for different runs, so none replaces another.
    """
    answered = [row for row in dispatches if _is_beside(row) and row["heard_at"] is not None]
    oldest_first = sorted(answered, key=lambda row: (row["created_at"], row["id"]))
    return list({(row["backend_key"], row["ref"]): row for row in oldest_first}.values())


def merge_facts(
    known: Mapping[str, Facts], counting: Mapping[str, DispatchRow], pushed: Iterable[DispatchRow]
) -> dict[str, Facts]:
    """Return the facts of each backend, from its dispatch that counts and the pushes beside it."""
    merged = {key: known[row["id"]] for key, row in counting.items()}
    for row in pushed:
        key = row["backend_key"]
        mine = merged.get(key)
        merged[key] = with_push(mine, known[row["id"]]) if mine else known[row["id"]]
    return merged


def latest_attempts(rows: Iterable[JobRow]) -> list[JobRow]:
    """Return each job's latest attempt, in the order in which the jobs were first reported."""
    chosen: dict[tuple[str, str, str], JobRow] = {}
    for row in rows:
        name = (row["run_id"], row["workflow_name"], row["job_name"])
        if name not in chosen or row["run_attempt"] > chosen[name]["run_attempt"]:
            chosen[name] = row
    return list(chosen.values())


def state_of(facts: Facts, entry: Entry | None, *, now: int) -> State:
    """Return the state of a dispatched backend; `entry` is None when it has left the allowlist."""
    return judge_backend(facts, entry, now=now).state


def judge_backend(facts: Facts, entry: Entry | None, *, now: int) -> Verdict:
    """Return the verdict on a dispatched backend; `entry` is None when it has left the allowlist."""
    if not facts.jobs:
        return _judge_dispatch(facts.dispatch)
    reported = judge_reports(facts, entry, blocks=facts.dispatch["level"] >= Level.L4, now=now)
    if facts.answered or reported.state.red:
        return reported
    return replace(_judge_dispatch(facts.dispatch), jobs=reported.jobs)  # a push's runs do not answer for it


def judge_reports(reports: Reports, entry: Entry | None, *, blocks: bool, now: int) -> Verdict:
    """Return the verdict on a backend that has reported; one that `blocks` is green only once confirmed."""
    jobs = _counted(reports, entry, now)
    state, reason = _judge_jobs(reports, jobs, entry, blocks=blocks, now=now)
    return Verdict(state=state, reason=reason, jobs=jobs)


def level_of(dispatch: DispatchRow, entry: Entry | None) -> int:
    """Return the level a backend was dispatched at, or L3 at most once its entry no longer blocks."""
    level = dispatch["level"]
    return min(level, Level.L3) if entry is None or entry.level < Level.L4 else level


def is_due(entry: Entry) -> bool:
    """Return whether a backend must have a verdict on every open pull request's head."""
    return entry.level >= Level.L4 and entry.wants("pull_request")


def as_blocking(facts: Facts, entry: Entry | None) -> Facts:
    """Return the facts that count for a backend that blocks now, whatever its level at dispatch.

    Reports accepted with less proof than its entry asks for now do not count, nor does an earlier attempt of a run
    whose newest has no others; and it has to answer now.
    """
    proven = [job for job in facts.jobs if entry is None or _proven(job, entry)]
    at_newest = {job["run_id"] for job in proven if job["run_attempt"] == facts.reported[job["run_id"]]}
    counted = [job for job in proven if job["run_id"] in at_newest]
    dispatch: DispatchRow = {
        **facts.dispatch,
        "level": int(Level.L4),
        "answers": None,
    }  # a row: a plain number
    if dispatch["state"] == "not_run":
        dispatch["state"] = "never_started"
    if is_skipped(dispatch) and not passes_unrun(dispatch, entry):
        dispatch["state"] = "unasked"
    if facts.jobs and not counted:
        dispatch["state"] = "unproven"
    return replace(facts, dispatch=dispatch, jobs=counted)


def is_skipped(dispatch: DispatchRow) -> bool:
    """Return whether a rule of the backend's entry decided against sending a dispatch."""
    return dispatch["state"].startswith(SKIPPED_BY)


def passes_unrun(dispatch: DispatchRow, entry: Entry | None) -> bool:
    """Return whether an unsent dispatch lets the gate pass: the entry has to say so now."""
    return dispatch["state"] == "skipped_paths" and entry is not None and entry.paths_pass


def is_finished(job: JobRow) -> bool:
    """Return whether a job has completed."""
    return job["status"] == "completed"


def is_red(job: JobRow) -> bool:
    """Return whether a job counts as failed (also with action_required, startup_failure or stale)."""
    return is_finished(job) and job["conclusion"] in RED_CONCLUSIONS


def unjudged_reruns(reports: Reports) -> dict[str, int]:
    """Return the newest attempts of runs that re-run an unsuccessful job and whose outcome GitHub has yet to report."""
    newest = reports.reported
    again = {
        job["run_id"]
        for job in reports.latest
        if _is_unsuccessful(job) and job["run_attempt"] < newest[job["run_id"]]
    }
    return {run: newest[run] for run in again if not _is_final(reports, run, newest[run])}


def _ended(rows: Sequence[JobRow]) -> Sequence[JobRow]:
    """Return a dispatch's jobs if all have finished: only then do other runs decide."""
    return rows if all(row["status"] == "completed" for row in rows) else ()


def _announced(
    backend: str, rows: Sequence[JobRow], announced: Mapping[tuple[str, str], Sequence[RunStatusRow]]
) -> list[RunStatusRow]:
    beside = [run for row in rows for run in announced.get((backend, row["run_id"]), ())]
    return list({run["run_id"]: run for run in beside}.values())


def _is_beside(row: DispatchRow) -> bool:
    return row["event_type"] == "push" and row["pr_number"] is not None


def _grouped(rows: Iterable[T], key: Callable[[T], str | None]) -> defaultdict[str | None, list[T]]:
    groups: defaultdict[str | None, list[T]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return groups


def _is_unsuccessful(job: JobRow) -> bool:
    """Whether a job failed or was cancelled: GitHub runs both again."""
    return is_red(job) or (is_finished(job) and job["conclusion"] == "cancelled")


def _proven(job: JobRow, entry: Entry) -> bool:
    return (entry.callback_token == "optional" or "no_callback_token" not in job["flags"]) and (  # noqa: S105 - a mode
        entry.static_key == "allowed" or "static_key" not in job["flags"]
    )


def _counted(reports: Reports, entry: Entry | None, now: int) -> list[JobRow]:
    """Return the jobs as they count: an unsuccessful job of an earlier attempt counts as running in the newest attempt.

    It is unfinished until it reports. It need not report: GitHub's conclusion of that attempt tells whether it passed;
    where GitHub cannot be asked, a minute without news means it was not run again.
    """
    known, newest = reports.latest, reports.reported
    waiting = unjudged_reruns(reports)
    others_run = any(not is_finished(job) for job in known)
    if waiting and entry and not entry.confirm and not others_run and _is_quiet(reports, now):
        return known
    jobs: list[JobRow] = []
    for job in known:
        run = job["run_id"]
        if not _is_unsuccessful(job) or job["run_attempt"] == newest[run]:
            jobs.append(job)
        elif run in waiting:
            jobs.append(
                {
                    **job,
                    "status": "in_progress",
                    "conclusion": None,
                    "completed_at": None,
                    "execution_time": None,
                }
            )
        elif reports.run_statuses[run, newest[run]]["conclusion"] != "success":
            jobs.append(job)
    return jobs


def _is_final(reports: Reports, run: str, attempt: int) -> bool:
    status = reports.run_statuses.get((run, attempt))
    return status is not None and status["status"] in FINAL_STATUSES


def _judge_dispatch(dispatch: DispatchRow) -> Verdict:
    """Return the verdict on a backend that has not reported."""
    state = State.SKIPPED if is_skipped(dispatch) else STATE_OF_DISPATCH.get(dispatch["state"], State.QUEUED)
    explained = state.finished or state in {State.WAITING, State.UNASKED}
    error = dispatch["error"] if explained else ""
    return Verdict(state=state, reason=error or REASONS.get(dispatch["state"], ""))


def _judge_jobs(
    reports: Reports, jobs: Sequence[JobRow], entry: Entry | None, *, blocks: bool, now: int
) -> tuple[State, str]:
    expected = reports.expected
    if awaited := {run: at for run, at in expected.items() if at > reports.reported.get(run, 0)}:
        return _failed_at_github(reports, awaited) or _judge_rerun(reports, awaited)
    if red := [job for job in jobs if is_red(job)]:
        timed_out = all(job["conclusion"] == "timed_out" for job in red)
        return (State.TIMED_OUT if timed_out else State.FAILURE), ""
    confirmed = blocks and (entry is None or entry.confirm)
    if confirmed and (contradiction := _contradiction(reports, expected)):
        return contradiction
    state, reason = _judge_unfailed(jobs)
    if state is State.SUCCESS and blocks:
        if announced := _judge_announced(reports.announced):
            return announced
        settled = _is_confirmed(reports, expected) if confirmed else _is_quiet(reports, now)
        state = State.SUCCESS if settled else State.CONFIRMING
    return state, reason


def _judge_unfailed(jobs: Sequence[JobRow]) -> tuple[State, str]:
    """Return the state of jobs none of which failed."""
    if not all(is_finished(job) for job in jobs):
        return State.RUNNING, ""
    if any(job["conclusion"] not in PASSING for job in jobs):
        return State.CANCELLED, ""
    if any("no_conclusion" in job["flags"] for job in jobs):
        return State.NEUTRAL, "a job did not say how it ended"
    if not any(job["conclusion"] == "success" for job in jobs):
        return State.NEUTRAL, "nothing was run"
    return State.SUCCESS, ""


def _judge_announced(runs: Sequence[RunStatusRow]) -> tuple[State, str] | None:
    """Return the state of a backend with green reports where another run of our event has not ended well."""
    ended = [run for run in runs if run["status"] == "completed" and run["conclusion"] not in PASSING]
    failures = [failure for run in ended if (failure := _unsuccessful_at_github(run))]
    if failures:
        return min(failures, key=lambda failure: WORST_FIRST.index(failure[0]))
    for run in runs:
        if run["status"] != "completed":
            return State.CONFIRMING, f"run {run['run_id']} of the same dispatch has not reported yet"
    return None


def _judge_rerun(reports: Reports, awaited: Mapping[str, int]) -> tuple[State, str]:
    """Return the state of a requested re-run without a report."""
    silent = [row for row in reports.reruns if row["state"] == "never_started"]
    if any(awaited.get(row["run_id"]) == row["from_attempt"] + 1 for row in silent):
        return State.NEVER_STARTED, "the re-run asked for did not report in time"
    return State.QUEUED, "re-run requested"


def _contradiction(reports: Reports, expected: Mapping[str, int]) -> tuple[State, str] | None:
    """Return the failure when GitHub contradicts the reports, or cannot confirm them."""
    return _worst(reports, expected, lambda known: _not_confirmed(known) or _unsuccessful_at_github(known))


def _failed_at_github(reports: Reports, attempts: Mapping[str, int]) -> tuple[State, str] | None:
    """Return the failure when GitHub's conclusion of an attempt is anything but success."""
    return _worst(reports, attempts, _unsuccessful_at_github)


def _worst(
    reports: Reports,
    attempts: Mapping[str, int],
    check: Callable[[RunStatusRow], tuple[State, str] | None],
) -> tuple[State, str] | None:
    """Return the worst failure that `check` finds in these attempts, whichever run was reported first."""
    known = [reports.run_statuses.get(attempt) for attempt in sorted(attempts.items())]
    failures = [failure for status in known if status and (failure := check(status))]
    return min(failures, key=lambda failure: WORST_FIRST.index(failure[0]), default=None)


def _not_confirmed(known: RunStatusRow) -> tuple[State, str] | None:
    """Return the failure when GitHub's status of an attempt does not prove that our dispatch started it."""
    run, status, event = known["run_id"], known["status"], known["event"]
    match status:
        case "missing":
            return State.FAILURE, f"GitHub knows no run {run} of this backend"
        case "unreadable":
            return State.TIMED_OUT, f"the App may not read run {run} of this backend: it needs actions: read"
        case "unconfirmed":
            return State.TIMED_OUT, f"GitHub did not confirm run {run} in time"
    if event and event not in DISPATCH_EVENTS:
        return State.FAILURE, f"run {run} was started by {event}, not by our dispatch"
    if not event and status == "completed":
        return State.FAILURE, f"GitHub does not say what started run {run}"
    return None


def _unsuccessful_at_github(known: RunStatusRow) -> tuple[State, str] | None:
    """Return the failure when GitHub's conclusion of an attempt is anything but success."""
    run, conclusion = known["run_id"], known["conclusion"]
    if known["status"] != "completed" or conclusion == "success":
        return None
    if conclusion == "cancelled":
        return State.CANCELLED, f"run {run} was cancelled"
    return State.FAILURE, f"GitHub says run {run} concluded {conclusion}"


def _is_confirmed(reports: Reports, expected: Mapping[str, int]) -> bool:
    known = [reports.run_statuses.get((run, attempt)) for run, attempt in expected.items()]
    return all(
        status and status["status"] == "completed" and status["conclusion"] == "success" for status in known
    )


def _is_quiet(reports: Reports, now: int) -> bool:
    """Whether there was no news for a minute, the only sign that a backend GitHub cannot confirm is finished."""
    return now - max(row["updated_at"] for row in reports.jobs) >= QUIET
