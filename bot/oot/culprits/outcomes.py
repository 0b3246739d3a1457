"""What became of the steps that are under way: their runs say so, their dispatch, or the time that has passed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from bot.core import text
from bot.oot.culprits import job_runs, rows
from bot.oot.results.store import dispatches

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bot.ci.trunk.reading import Branch
    from bot.db.transaction import Transaction
    from bot.oot.culprits.job_runs import JobRun
    from bot.oot.culprits.tables import Signal, StepRow
    from bot.oot.results.tables import DispatchRow

Outcome = Literal["good", "bad", "unbuildable", "no_result", "silent", "refused"]
UNANSWERED = frozenset({"never_started", "not_run"})  # states of a dispatch
NOT_SENT = frozenset({"failed", "not_installed", "superseded", "cancelled"})
JOBS_NAMED = 3


class Ended(NamedTuple):
    """How a step ended."""

    outcome: Outcome
    detail: str


class Waiting(NamedTuple):
    """Steps that are still under way, and when the next of them has taken too long, in milliseconds."""

    steps: int
    until: int | None


async def settle_steps(
    tx: Transaction,
    branch: Branch,
    signal: Signal,
    steps: Sequence[StepRow],
    runs: Sequence[JobRun],
    *,
    job_timeout: int,
) -> Waiting:
    """Record the outcomes of steps that have one by now; `job_timeout` is in milliseconds."""
    open_steps = [step for step in steps if step["outcome"] is None]
    ids = {step["dispatch_id"] for step in open_steps if step["dispatch_id"]}
    known = await dispatches.get_by_id(tx, ids)
    shas = sorted({step["sha"] for step in open_steps})
    others = await job_runs.runs_without_job(tx, branch, signal, ids, shas) if ids else {}
    limits = []
    for step in open_steps:
        dispatch = known.get(step["dispatch_id"] or "")
        ended = _by_runs(step, runs) or _by_dispatch(step, dispatch, others)
        since = _since(step, dispatch)
        if ended is None and since is not None and tx.now - since >= job_timeout:
            ended = Ended("silent", f"no answer within {text.duration(job_timeout / 1000)}")
        if ended is None:
            limits += [] if since is None else [since + job_timeout]
            continue
        step["outcome"], step["detail"], step["ended_at"] = *ended, tx.now
        await rows.change_step(tx, step, outcome=ended.outcome, detail=ended.detail, ended_at=tx.now)
    return Waiting(steps=sum(step["outcome"] is None for step in open_steps), until=min(limits, default=None))


def _since(step: StepRow, dispatch: DispatchRow | None) -> int | None:
    """Return since when an answer may be expected."""
    if dispatch is not None:
        return dispatch["dispatched_at"] if dispatch["state"] == "sent" else None
    return step["sent_at"]


def _by_runs(step: StepRow, runs: Sequence[JobRun]) -> Ended | None:
    """Return what the run of a step says; of several attempts the last."""
    if step["dispatch_id"]:
        mine = [run for run in runs if run.dispatch_id == step["dispatch_id"]]
    elif step["run_id"] is not None:
        mine = [
            run
            for run in runs
            if run.run_id == str(step["run_id"]) and run.attempt > (step["from_attempt"] or 0)
        ]
    else:  # a tag: whatever begins on the commit from then on
        since = step["sent_at"]
        mine = [
            run for run in runs if run.sha == step["sha"] and since and run.at is not None and run.at >= since
        ]
    if not mine:
        return None
    last = max(mine, key=lambda run: (run.attempt, run.run_id))
    if last.word == "pending":
        return None
    if last.word == "no_result" and last.why == job_runs.SILENT:
        return Ended("silent", last.why)
    return Ended(last.word, last.why)


def _by_dispatch(
    step: StepRow, dispatch: DispatchRow | None, others: Mapping[str, Sequence[str]]
) -> Ended | None:
    if step["dispatch_id"] is None:
        return None
    if dispatch is None:
        return Ended("no_result", "its dispatch is not kept any more")
    if dispatch["state"] in UNANSWERED:
        return Ended("silent", dispatch["error"] or "no report came")
    if dispatch["state"] in NOT_SENT:
        return Ended("refused", dispatch["error"] or "it could not be dispatched")
    if ran := others.get(dispatch["id"]):
        return Ended("no_result", f"only {text.listing(ran, limit=JOBS_NAMED)} ran")
    return None
