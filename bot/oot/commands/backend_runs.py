"""Running backends' runs again, by a command or a button of our check runs, and cancelling them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog

from bot.core.errors import GitHubRefused, GiveUp, OotbotError, RetryLater
from bot.core.json_fields import Kind, read_member
from bot.oot.allowlist import versions
from bot.oot.dispatch import redispatch
from bot.oot.publish import check_text, rows
from bot.oot.reports import lifecycle
from bot.oot.results import dispatches, jobs, runs, task_keys
from bot.oot.results.task_keys import request_publish
from bot.oot.verdict import pull_state, view
from bot.oot.verdict.verdict import is_finished, is_red

if TYPE_CHECKING:
    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.github.client import Client
    from bot.oot.results.tables import DispatchRow, RerunRow
    from bot.oot.verdict.verdict import Facts
    from bot.queue.tasks import Task

log = structlog.get_logger("bot.oot.commands.backend_runs")

SCOPES = {"rerun-all": "all", "rerun-failed": "failed"}  # by the identifier of our button
STILL_RUNNING = 15.0  # seconds until GitHub is asked again about a run that has reported its end
GOES_ON, OFTEN = 120.0, 4  # and, asked that often, about one that goes on: it may take days
ALREADY_ENDED = 409  # the run's own conclusion stands


class RunGoesOn(OotbotError):
    """GitHub re-runs nothing while the run is in progress."""


@dataclass(frozen=True, kw_only=True)
class ButtonPress:
    """A press of a re-run button, on a check run of ours or on our check suite of a head."""

    repo: str
    head_sha: str
    check_run_id: int | None  # None: the suite
    scope: str  # failed | all


async def handle_button(context: Context, task: Task) -> None:
    """Request the re-runs that a button asks for, if it is ours (key: the delivery's GUID).

    The gate runs nothing: it is published again.
    """
    async with context.store.transaction() as tx:
        _, body = await task_keys.read_delivery(context, tx, task)
        press = _read_press(body, context.github.app_id)
        if press is None:
            return
        for facts in await _choose_backends(tx, context, press):
            await request_rerun(tx, facts, press.scope, cause=task.key)


async def request_rerun(tx: Transaction, facts: Facts, scope: str, *, cause: str) -> bool:
    """Request a re-run of the `failed` jobs, or `all`, of a backend's runs; without a run, dispatch again.

    Returns False when that was requested already.
    """
    dispatch = facts.dispatch
    attempts = facts.expected
    if not attempts:
        if dispatch["state"] in {"pending", "waiting"} or await redispatch.is_held(tx, dispatch):
            return False
        await redispatch.redispatch(tx, dispatch, cause)
        return True
    failed = {row["run_id"] for row in facts.latest if is_red(row) or not is_finished(row)}
    scope = scope if failed else "all"  # nothing failed: there are no failed jobs to run again
    requested = False
    for run_id, attempt in attempts.items():
        vain = any(_never_started(row, run_id, attempt) for row in facts.reruns)
        if vain and _has_reported(facts, run_id) < attempt:
            repeated = await dispatches.get_dispatch(tx, facts.dispatch_of(run_id)) or dispatch
            await redispatch.redispatch(tx, repeated, cause)  # once, however many runs there were
            requested = True
        elif (scope == "all" or run_id in failed) and _has_reported(facts, run_id) == attempt:
            dispatch_id = facts.dispatch_of(run_id)
            row = {
                "dispatch_id": dispatch_id,
                "run_id": run_id,
                "from_attempt": attempt,
                "scope": scope,
                "cause": cause,
            }
            if await runs.add_rerun(tx, row):
                tx.enqueue("run_again", task_keys.rerun_key(dispatch_id, attempt, run_id))
                requested = True
    return requested


async def run_again(context: Context, task: Task) -> None:
    """Re-run a run at GitHub unless it already runs again (key: `dispatch/attempt/run_id`, the attempt so far).

    If it cannot, dispatch again, unless the pull request is closed or has a newer commit.
    """
    identifier, attempt, run_id = task_keys.parse_rerun(task.key)
    async with context.store.read() as tx:
        dispatch = await dispatches.get_dispatch(tx, identifier)
        of_run = [row for row in await runs.read_reruns(tx, [identifier]) if row["run_id"] == run_id]
    rerun = next((row for row in of_run if row["from_attempt"] == attempt), None)
    if dispatch is None or rerun is None:
        raise GiveUp(f"no re-run {task.key} was requested")
    if rerun["state"] != "asked":
        return
    try:
        started = await _start_at_github(context, dispatch, rerun)
    except RunGoesOn as unfinished:
        async with context.store.transaction() as tx:
            await runs.extend_rerun(tx, rerun)
        after = STILL_RUNNING if task.attempts <= OFTEN else GOES_ON
        raise RetryLater(str(unfinished), after=after) from unfinished
    async with context.store.transaction() as tx:
        await dispatches.lock_pull(tx, dispatch["upstream_repo"], dispatch["pr_number"])
        await runs.settle_rerun(tx, rerun, "sent" if started else "impossible")
        if not started:
            # once, however many runs that asked for
            await redispatch.redispatch(tx, dispatch, rerun["cause"])
        request_publish(tx, dispatch["upstream_repo"], dispatch["pr_number"])
    log.info("re-run", backend=dispatch["backend"], run=run_id, at_github=started, cause=rerun["cause"])


async def cancel_run(context: Context, task: Task) -> None:
    """Ask GitHub to cancel the run, then finish its jobs: cancelled jobs do not report."""
    identifier, _, run_id = task.key.partition("/")
    async with context.store.read() as tx:
        dispatch = await dispatches.get_dispatch(tx, identifier)
    if dispatch is None:
        raise GiveUp(f"there is no dispatch {identifier}")
    began = dispatch["dispatched_at"]
    client = context.backend_github.client(dispatch["backend"], since=began, actions="write")
    try:
        await client.post(client.path(f"actions/runs/{run_id}/cancel"), data={})
    except GitHubRefused as error:
        if error.status != ALREADY_ENDED:
            log.warning("not cancelled", backend=dispatch["backend"], run=run_id, reason=str(error))
            async with context.store.transaction() as tx:
                await _correct_answer(tx, dispatch, run_id, error.message)
            return
        if not await _was_cancelled(client, run_id):
            log.info("the run had ended already", backend=dispatch["backend"], run=run_id)
            return
    async with context.store.transaction() as tx:
        await _finish_jobs(tx, identifier, run_id)
        request_publish(tx, dispatch["upstream_repo"], dispatch["pr_number"])
    log.info("cancelled", backend=dispatch["backend"], run=run_id)


def _read_press(body: dict[str, Any], app_id: int) -> ButtonPress | None:
    """Return what a check_run or check_suite event asks for; None if the button is not ours."""
    kind = "check_run" if "check_run" in body else "check_suite"
    repo, sha = (
        read_member(body, ("repository", "full_name"), Kind.TEXT),
        read_member(body, (kind, "head_sha"), Kind.TEXT),
    )
    identifier = read_member(body, (kind, "id"), Kind.INT)
    if read_member(body, (kind, "app", "id"), Kind.INT) != app_id or not (repo and sha and identifier):
        return None
    scope: str | None = "failed"
    if body.get("action") == "requested_action":
        scope = SCOPES.get(read_member(body, ("requested_action", "identifier"), Kind.TEXT) or "")
    if scope is None:
        return None
    check_run_id = identifier if kind == "check_run" else None
    return ButtonPress(repo=repo, head_sha=sha, check_run_id=check_run_id, scope=scope)


async def _choose_backends(tx: Transaction, context: Context, press: ButtonPress) -> list[Facts]:
    """Return the backends to re-run: the check run's own, or every failed one of a suite's head."""
    repo, sha = press.repo, press.head_sha
    check = await rows.check_by_id(tx, press.check_run_id) if press.check_run_id else None
    if press.check_run_id and check is None:
        return []
    gate = check_text.gate_name(context.settings.check_prefix)
    if check is None or check["name"] == gate:
        await rows.force_rewrite(tx, repo, sha, gate)  # GitHub shows its suite as queued until it is written
    if check:
        numbers = {check["pr_number"]}
    else:
        numbers = {row["pr_number"] for row in await dispatches.read_dispatches_of_head(tx, repo, sha)}
        numbers |= {row["pr_number"] for row in await rows.gates_on(tx, repo, [sha], gate)}
    chosen = []
    for number in sorted(number for number in numbers if number is not None):
        await dispatches.lock_pull(tx, repo, number)
        request_publish(tx, repo, number)
        state = await pull_state.read_pull(tx, context.settings, repo, number, newest=0, also={sha})
        head = state.head(sha)
        for backend in head.view.backends if head else ():
            facts = head.facts.get(backend.repo.casefold()) if head else None
            is_its_own = check["basis"].startswith(f"{facts.dispatch['id']}/") if check and facts else False
            if facts and (is_its_own or (check is None and backend.state.red)):
                chosen.append(facts)
    return chosen


def _never_started(rerun: RerunRow, run_id: str, attempt: int) -> bool:
    """Whether this attempt is a re-run that never started."""
    return (rerun["state"], rerun["run_id"], rerun["from_attempt"]) == ("never_started", run_id, attempt - 1)


def _has_reported(facts: Facts, run_id: str) -> int:
    return facts.reported.get(run_id, 0)


async def _start_at_github(context: Context, dispatch: DispatchRow, rerun: RerunRow) -> bool:
    """Re-run at GitHub; returns False if GitHub never will."""
    run_id = rerun["run_id"]
    if not (run_id.isascii() and run_id.isdigit()):
        return False
    client = context.backend_github.client(dispatch["backend"], actions="write")
    everything, failed = f"actions/runs/{run_id}/rerun", f"actions/runs/{run_id}/rerun-failed-jobs"
    try:
        run = await client.getitem(client.path(f"actions/runs/{run_id}"))
        if run["run_attempt"] > rerun["from_attempt"]:
            return True
        if run["status"] != "completed":
            raise RunGoesOn(f"run {run_id} has not ended yet")
        await client.post(client.path(everything if rerun["scope"] == "all" else failed), data={})
    except GitHubRefused as error:
        log.info("cannot be run again", backend=dispatch["backend"], run=run_id, reason=str(error))
        return False
    return True


async def _was_cancelled(client: Client, run_id: str) -> bool:
    """Whether a run that has ended was cancelled, perhaps by us: our first answer may have been lost."""
    run = await client.getitem(client.path(f"actions/runs/{run_id}"))
    return bool(run["conclusion"] == "cancelled")


async def _correct_answer(tx: Transaction, dispatch: DispatchRow, run_id: str, reason: str) -> None:
    """Replace the answer that the run is being cancelled, since it continues."""
    repo, number = dispatch["upstream_repo"], dispatch["pr_number"]
    if number is None:
        return
    listed = await versions.read_in_force(tx)
    entry = listed.find(dispatch["backend"]) if listed else None
    name = entry.label if entry else dispatch["device"] or dispatch["backend"]
    before, end = view.being_cancelled(name), view.not_cancelled(name)
    going_on = f"GitHub does not cancel run {run_id}{end}{reason.rstrip('.')}."
    await dispatches.amend_answer(tx, repo, number, before=before, answer=going_on, known_by=end)
    request_publish(tx, repo, number)


async def _finish_jobs(tx: Transaction, dispatch_id: str, run_id: str) -> None:
    reported = jobs.in_lock_order(await jobs.read_jobs_of_dispatches(tx, [dispatch_id]))
    if not reported:
        await dispatches.end_cancelled(tx, dispatch_id, f"run {run_id} was cancelled before it reported")
    for job in reported:
        if job["run_id"] == run_id and job["status"] == "in_progress":
            await jobs.change_if_unchanged(
                tx, job, lifecycle.finish_unreported(job, now=tx.now, conclusion="cancelled")
            )
